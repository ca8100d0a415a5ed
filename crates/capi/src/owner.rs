//! An object's owner. What an object is itself says the informers' [`Metadata`](shared_informer::Metadata).

/// The owner that decides which group a Machine or MachineSet belongs to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Owner<'a> {
    /// The kind of the owner.
    pub kind: &'a str,
    /// Its name, in the object's own namespace.
    pub name: &'a str,
}
