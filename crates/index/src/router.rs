//! The router: the feeds of a management cluster fill the indexes of many Clusters. Each change goes to the index of
//! its object's Cluster, by one look-up of the tag, however many Clusters there are. Nothing here may visit all of
//! them.

mod followed;
mod kind;
mod tags;
#[cfg(test)]
mod tests;
mod untagged;

use std::{collections::HashSet, sync::Arc};

use arcstr::ArcStr;
use capi::{Meta, ObjectKey};
use nodegroup::GroupId;
use parking_lot::Mutex;

pub use self::kind::{Routed, RoutedKind};
use self::{followed::Followed, tags::Tags, untagged::Untagged};
use super::{Change, Index, Sink, Tag};

/// A [`Sink`] for the objects of many Clusters, each of which may have an index.
///
/// An object that names no Cluster belongs to that of its owner. Without one it is unrouted: its key is kept, and it is
/// routed when the owner comes.
#[derive(Debug, Default)]
pub struct Router {
    /// One lock for all kinds, so that an object and its owner never move at the same time.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    followed: Followed,
    tags: Tags,
    untagged: Untagged,
}

impl Router {
    /// Opts a Cluster in, with an empty index in place of any earlier one, and returns the mark that ends its filling.
    /// Returns `None` if there is no such Cluster.
    ///
    /// From now on the index gets the changes of the Cluster's objects. What the informers of `kinds` hold already must
    /// be [replayed](shared_informer::Registration::replay) by the caller: the objects in the Cluster's namespace whose
    /// tag [may be](Tag::may_be) the Cluster, and then the mark. If a feed is replaced meanwhile, its mark is lost, and
    /// the new feed must replay it.
    ///
    /// The index stays that of this Cluster: one of the same name with another uid ends it, and has to be opted in
    /// anew.
    pub fn insert(
        &self,
        cluster: &ObjectKey,
        index: Arc<Index>,
        kinds: impl IntoIterator<Item = RoutedKind>,
    ) -> Option<u64> {
        self.state.lock().followed.insert(cluster, index, kinds.into_iter().collect())
    }

    /// Opts a Cluster out. Its index gets no changes any more, and keeps its last state.
    pub fn remove(&self, cluster: &ObjectKey) {
        self.state.lock().followed.remove(cluster);
    }

    /// Returns true if the Cluster has an index, and the replays for it have arrived.
    #[must_use]
    pub fn is_filled(&self, cluster: &ObjectKey) -> bool {
        self.state.lock().followed.is_filled(cluster)
    }

    /// Returns the number of objects that belong to no Cluster.
    #[must_use]
    pub fn unrouted(&self) -> usize {
        self.state.lock().tags.unrouted()
    }
}

impl<T: Routed> Sink<T> for Router {
    fn apply(&self, kind: &T::Kind, object: &Meta, tag: Tag<'_>, change: Option<Change>) {
        self.state.lock().apply(T::routed(kind), object, tag, change);
    }

    fn delete(&self, kind: &T::Kind, key: ObjectKey) {
        self.state.lock().delete(T::routed(kind), &key);
    }

    fn keys(&self, kind: &T::Kind) -> HashSet<ObjectKey> {
        self.state.lock().tags.keys(T::routed(kind))
    }

    fn replayed(&self, kind: &T::Kind, mark: u64) {
        self.state.lock().followed.replayed(T::routed(kind), mark);
    }
}

impl State {
    fn apply(&mut self, kind: RoutedKind, object: &Meta, tag: Tag<'_>, change: Option<Change>) {
        let key = &object.key;
        if kind == RoutedKind::Cluster {
            self.followed.seen(object);
        }
        let owner = match tag {
            Tag::Owner(kind, name) => {
                let key = ObjectKey { namespace: key.namespace.clone(), name: name.clone() };
                Some(GroupId::new(kind, key))
            }
            Tag::Cluster(_) | Tag::None | Tag::Unreadable => None,
        };
        let cluster = match (kind, tag) {
            // Also if it doesn't decode.
            (RoutedKind::Cluster, _) => Some(key.name.clone()),
            (_, Tag::Cluster(name)) => Some(name.clone()),
            (_, Tag::Owner(..)) => owner.as_ref().and_then(|owner| self.cluster_of(owner)),
            (_, Tag::None) => None,
            (_, Tag::Unreadable) => self.tags.get(kind, key).cloned(),
        };
        let untagged = match (owner, &change) {
            (Some(owner), Some(change)) => Some((owner, change.clone())),
            (Some(_), None) | (None, _) => None,
        };
        self.untagged.set(kind, key, untagged);
        self.place(kind, key, cluster, change);
    }

    fn delete(&mut self, kind: RoutedKind, key: &ObjectKey) {
        if kind == RoutedKind::Cluster {
            self.followed.gone(key);
        }
        self.untagged.set(kind, key, None);
        if let Some(cluster) = self.tags.remove(kind, key) {
            self.followed.send(&key.namespace, &cluster, kind.gone(key.clone()));
            self.place_owned(kind, key);
        }
    }

    /// Returns the Cluster of a known owner.
    fn cluster_of(&self, owner: &GroupId) -> Option<ArcStr> {
        self.tags.get(RoutedKind::Scalable(owner.kind), &owner.key).cloned()
    }

    /// Moves an object to the index of this Cluster, and applies its change there.
    fn place(&mut self, kind: RoutedKind, key: &ObjectKey, cluster: Option<ArcStr>, change: Option<Change>) {
        let before = self.tags.set(kind, key, cluster.clone());
        let moves = before != cluster;
        if let Some(before) = before.filter(|_| moves) {
            self.followed.send(&key.namespace, &before, kind.gone(key.clone()));
        }
        if let (Some(cluster), Some(change)) = (cluster, change) {
            self.followed.send(&key.namespace, &cluster, change);
        }
        if moves {
            self.place_owned(kind, key);
        }
    }

    /// Places the objects without a tag that this one owns. They have no more than an owner and its owner above them.
    fn place_owned(&mut self, kind: RoutedKind, key: &ObjectKey) {
        let RoutedKind::Scalable(kind) = kind else { return };
        let owner = GroupId::new(kind, key.clone());
        let cluster = self.cluster_of(&owner);
        for (kind, key, change) in self.untagged.of_owner(&owner) {
            self.place(kind, &key, cluster.clone(), Some(change));
        }
    }
}
