//! The Cluster to which an object belongs.

use arcstr::ArcStr;
use rules::capi::ScalableKind;

/// The Cluster of an object, in the object's namespace, by what is read of the object alone. It borrows from the
/// object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Tag<'a> {
    /// The name of its Cluster.
    Cluster(&'a ArcStr),
    /// The object names no Cluster, but has this owner.
    Owner(ScalableKind, &'a ArcStr),
    /// The object names neither a Cluster nor an owner.
    None,
    /// The object doesn't decode, and its Cluster couldn't be read: it stays where it was.
    Unreadable,
}

impl<'a> Tag<'a> {
    /// Returns the tag of an object that names its Cluster unless the name is empty, and may have an owner.
    pub(super) fn named(cluster: &'a ArcStr, owner: Option<(ScalableKind, &'a ArcStr)>) -> Self {
        match owner {
            _ if !cluster.is_empty() => Self::Cluster(cluster),
            Some((kind, name)) => Self::Owner(kind, name),
            None => Self::None,
        }
    }

    /// Returns true if the object may belong to this Cluster of its namespace, by itself or by an owner.
    #[must_use]
    pub fn may_be(self, cluster: &ArcStr) -> bool {
        match self {
            Self::Cluster(name) => name == cluster,
            Self::Owner(..) | Self::Unreadable => true,
            Self::None => false,
        }
    }
}
