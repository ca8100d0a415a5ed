//! Identity of an object and its owner, with text shared where it repeats.

use std::{fmt, sync::Arc};

/// Namespace and name of an object within its kind; the namespace is empty for cluster-scoped kinds.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ObjectKey {
    /// The namespace, empty for cluster-scoped kinds.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

impl ObjectKey {
    /// A key of its parts.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() { f.write_str(&self.name) } else { write!(f, "{}/{}", self.namespace, self.name) }
    }
}

/// Which object this is, and which version of it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Meta {
    /// Namespace and name.
    pub key: ObjectKey,
    /// Differs between objects that had the same name one after the other.
    pub uid: Arc<str>,
    /// The version that was read.
    pub resource_version: Arc<str>,
}

/// The owner that decides which group a Machine or MachineSet belongs to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Owner<'a> {
    /// The kind of the owner.
    pub kind: &'a str,
    /// Its name, in the object's own namespace.
    pub name: &'a str,
}
