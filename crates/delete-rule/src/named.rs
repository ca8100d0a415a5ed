//! A Machine that a request names, and its life.

use crate::Types;

/// The life of a Machine at a moment since which the group's size is unchanged.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Life {
    /// The Machine exists, and isn't being deleted.
    Alive,
    /// The Machine is being deleted.
    Deleting,
    /// No Machine with this name and uid exists.
    Gone,
}

/// A Machine that a request names.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Named<T: Types> {
    /// The name, in the group's namespace.
    pub name: T::Name,
    /// The uid.
    pub uid: T::Uid,
    /// True if the Machine is given up as one that never joined: it was named by the id of such an instance, or chosen
    /// for a smaller target size.
    pub never_joined: bool,
}
