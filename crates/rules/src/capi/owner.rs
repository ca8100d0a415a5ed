//! The owner of an object. [`Metadata`](shared_informer::Metadata) is the object's own identity.

/// The owner that decides which group a Machine or MachineSet belongs to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Owner<'a> {
    /// The kind of the owner.
    pub kind: &'a str,
    /// Its name, in the object's own namespace.
    pub name: &'a str,
}
