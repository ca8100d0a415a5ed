//! The router: it passes the changes of a management cluster's feeds to the indexes of many Clusters. Each change goes
//! to the index of its object's Cluster. This takes one lookup by tag, whatever the number of Clusters; no code here
//! may iterate over all Clusters.

mod followed;
mod kind;
mod tags;
#[cfg(test)]
mod tests;
mod untagged;

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use arcstr::ArcStr;
use parking_lot::Mutex;
use rules::GroupId;
use rules::capi::{Meta, ObjectKey};
use shared_informer::Object;

pub use self::kind::{Routed, RoutedKind};
use self::{followed::Followed, tags::Tags, untagged::Untagged};
use super::{Change, Index, Sink, Tag};

/// The number of objects that fill an index before events get their turn.
const AT_A_TIME: usize = 1_000;

/// A [`Sink`] for the objects of many Clusters, each of which may have an index.
///
/// An object that names no Cluster belongs to its owner's Cluster. The object is unrouted while that Cluster is
/// unknown: the router keeps its key, and routes it when the owner arrives.
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
    /// Opts a Cluster in with a new, empty index. Returns false if there is no such Cluster.
    ///
    /// The index receives all later changes of the Cluster's objects. The caller must [fill](Router::fill) it with the
    /// objects that arrived before.
    ///
    /// The index belongs to the Cluster with this uid. A new Cluster of the same name removes the index, and must be
    /// opted in again.
    #[must_use]
    pub fn insert(&self, cluster: &ObjectKey, index: Arc<Index>) -> bool {
        self.state.lock().followed.insert(cluster, index)
    }

    /// Fills the indexes of these Clusters of a namespace with the objects under these keys, as `current` returns them.
    ///
    /// Only objects that have arrived before are taken: one whose first event still waits may be deleted before, and then
    /// nobody would ever remove it from an index. Each is taken as it is at its turn, not as it was at the beginning, since
    /// a later state may have been passed on meanwhile. Changes of it that wait come again, and then the last one.
    pub fn fill<T: Routed>(
        &self,
        kind: &T::Kind,
        clusters: &BTreeSet<ArcStr>,
        keys: &[ObjectKey],
        current: impl Fn(&ObjectKey) -> Option<Arc<Object<T>>>,
    ) {
        for keys in keys.chunks(AT_A_TIME) {
            let mut state = self.state.lock();
            for key in keys {
                let Some(cluster) = state.tags.get(T::routed(kind), key).cloned() else { continue };
                if clusters.contains(&cluster)
                    && let Some(object) = current(key).filter(|object| T::tag_of(object).may_be(&cluster))
                    && let Some(change) = T::change(kind, &object)
                {
                    state.followed.send(&key.namespace, &cluster, change);
                }
            }
        }
    }

    /// Opts a Cluster out. Its index gets no changes any more, and keeps its last state.
    pub fn remove(&self, cluster: &ObjectKey) {
        self.state.lock().followed.remove(cluster);
    }

    /// Returns the Cluster of a MachineDeployment, MachineSet or MachinePool, with an index or without.
    #[must_use]
    pub fn cluster_of(&self, group: &GroupId) -> Option<ObjectKey> {
        let name = self.state.lock().cluster_of(group)?;
        Some(ObjectKey { namespace: group.key.namespace.clone(), name })
    }

    /// Returns the number of objects that belong to no Cluster.
    #[cfg(test)]
    fn unrouted(&self) -> usize {
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
            // The name needs no decoding.
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

    /// Routes the untagged objects that this object owns, recursively. An object has at most two levels of owners above
    /// it.
    fn place_owned(&mut self, kind: RoutedKind, key: &ObjectKey) {
        let RoutedKind::Scalable(kind) = kind else { return };
        let owner = GroupId::new(kind, key.clone());
        let cluster = self.cluster_of(&owner);
        for (kind, key, change) in self.untagged.of_owner(&owner) {
            self.place(kind, &key, cluster.clone(), Some(change));
        }
    }
}
