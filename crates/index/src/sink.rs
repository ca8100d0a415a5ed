//! The receiver of the changes of one kind.

use std::collections::HashSet;

use rules::capi::{Meta, ObjectKey};

use super::{Change, Index, index_feed::IndexFeed, tag::Tag};

/// A receiver of the changes of one kind of object, from one [`Feed`](super::Feed) at a time.
pub trait Sink<T: IndexFeed>: Send + Sync + 'static {
    /// Applies a change of an object that exists. `None` stands for one that doesn't decode, whose last state stays.
    fn apply(&self, kind: &T::Kind, object: &Meta, tag: Tag<'_>, change: Option<Change>);
    /// Removes a deleted object.
    fn delete(&self, kind: &T::Kind, key: ObjectKey);
    /// Returns the keys of the objects of this kind.
    fn keys(&self, kind: &T::Kind) -> HashSet<ObjectKey>;
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

    fn keys(&self, kind: &T::Kind) -> HashSet<ObjectKey> {
        T::keys(self, kind)
    }
}
