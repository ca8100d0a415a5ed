//! The receiver of the changes of one kind, and the Cluster to which each object belongs.

use std::collections::HashSet;

use arcstr::ArcStr;
use capi::{Meta, ObjectKey, ScalableKind};
use shared_informer::Object;

use super::{Change, Index, IndexFeed};

/// The Cluster of an object, in the object's namespace, by what is read of the object alone. It borrows from the object.
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
    /// Returns the tag of an object. One that doesn't decode may have it nevertheless.
    #[must_use]
    pub fn of<T: IndexFeed>(object: &'a Object<T>) -> Self {
        match &object.content {
            Ok(content) => T::tag(content),
            Err(error) => error.salvaged().map_or(Self::Unreadable, Self::Cluster),
        }
    }

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
    pub fn may_be(self, cluster: &str) -> bool {
        match self {
            Self::Cluster(name) => name == cluster,
            Self::Owner(..) | Self::Unreadable => true,
            Self::None => false,
        }
    }
}

/// A receiver of the changes of one kind of object, from one [`Feed`](super::Feed) at a time.
pub trait Sink<T: IndexFeed>: Send + Sync + 'static {
    /// Applies a change of an object that exists. `None` stands for one that doesn't decode, whose last state stays.
    fn apply(&self, kind: &T::Kind, object: &Meta, tag: Tag<'_>, change: Option<Change>);
    /// Removes a deleted object.
    fn delete(&self, kind: &T::Kind, key: ObjectKey);
    /// Returns the keys of this kind that it holds.
    fn held(&self, kind: &T::Kind) -> HashSet<ObjectKey>;
    /// Notes that all objects of a replay have been applied.
    fn replayed(&self, _kind: &T::Kind, _mark: u64) {}
}

/// The index of a single Cluster, or of all: its scope decides which groups it serves, whatever their tags.
impl<T: IndexFeed> Sink<T> for Index {
    fn apply(&self, _: &T::Kind, _: &Meta, _: Tag<'_>, change: Option<Change>) {
        if let Some(change) = change {
            Index::apply(self, change);
        }
    }

    fn delete(&self, kind: &T::Kind, key: ObjectKey) {
        Index::apply(self, T::deleted(kind, key));
    }

    fn held(&self, kind: &T::Kind) -> HashSet<ObjectKey> {
        T::keys(self, kind)
    }
}
