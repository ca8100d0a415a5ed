//! The expected content of each index, found without look-ups: after each event the Cluster of every object is computed
//! anew, and an index is rebuilt from the objects of its Cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use rules::capi::{Meta, ObjectKey, Uid};

use super::super::*;
use crate::{
    Detail,
    objects::{routed::Id, rules},
};

/// The Cluster of an object as its maker meant it.
#[derive(Clone, Debug)]
pub(super) enum Own {
    Cluster(String),
    Owner(Id),
    None,
    /// It can't be read.
    Unreadable,
}

struct Known {
    own: Own,
    cluster: Option<String>,
    /// The change for its current state; an error if that doesn't decode.
    change: Result<Change, Option<Change>>,
    /// The last state that decoded and that the index of its Cluster has received.
    indexed: Option<Change>,
}

struct Follows {
    index: Arc<Index>,
    uid: Uid,
}

#[derive(Default)]
pub(super) struct Model {
    /// The Cluster of each state, by its version.
    owns: BTreeMap<String, Own>,
    known: BTreeMap<Id, Known>,
    uids: BTreeMap<ObjectKey, Uid>,
    followed: BTreeMap<ObjectKey, Follows>,
    /// Indexes that get no changes any more, with their last state.
    left: Vec<(Arc<Index>, Vec<String>)>,
    /// The objects of a kind that the list in progress hasn't shown yet.
    awaited: BTreeSet<Id>,
}

impl Model {
    pub(super) fn means(&mut self, version: u64, own: Own) {
        self.owns.insert(version.to_string(), own);
    }

    pub(super) fn put(&mut self, kind: RoutedKind, object: &Meta, change: Result<Change, Option<Change>>) {
        let id = (kind, object.key.clone());
        self.awaited.remove(&id);
        if kind == RoutedKind::Cluster {
            self.uids.insert(object.key.clone(), object.uid.clone());
            if self.followed.get(&object.key).is_some_and(|followed| followed.uid != object.uid) {
                self.opt_out(&object.key);
            }
        }
        let own = self.owns[&object.resource_version.to_string()].clone();
        let before = self.known.remove(&id);
        let cluster = before.as_ref().and_then(|before| before.cluster.clone());
        let indexed = match &change {
            Ok(change) => Some(change.clone()),
            Err(_) => before.and_then(|before| before.indexed),
        };
        self.known.insert(id, Known { own, cluster, change, indexed });
        self.place();
    }

    pub(super) fn delete(&mut self, id: &Id) {
        self.known.remove(id);
        if id.0 == RoutedKind::Cluster {
            self.uids.remove(&id.1);
        }
        self.place();
    }

    /// Begins a list: what it doesn't show is gone at its end.
    pub(super) fn list(&mut self, kind: RoutedKind) {
        self.awaited.extend(self.known.keys().filter(|id| id.0 == kind).cloned());
    }

    pub(super) fn listed(&mut self, kind: RoutedKind) {
        let gone: Vec<_> = self.awaited.iter().filter(|id| id.0 == kind).cloned().collect();
        for id in gone {
            self.awaited.remove(&id);
            self.delete(&id);
        }
    }

    fn place(&mut self) {
        // An object, its owner, and the owner's owner.
        for _ in 0..3 {
            let clusters: BTreeMap<_, _> =
                self.known.iter().map(|(id, known)| (id.clone(), known.cluster.clone())).collect();
            for known in self.known.values_mut() {
                let cluster = match &known.own {
                    Own::Cluster(name) => Some(name.clone()),
                    Own::Owner(owner) => clusters.get(owner).cloned().flatten(),
                    Own::None => None,
                    Own::Unreadable => known.cluster.clone(),
                };
                if cluster != known.cluster {
                    known.cluster = cluster;
                    known.indexed = known.change.as_ref().ok().cloned();
                }
            }
        }
    }

    fn of_cluster(&mut self, cluster: &ObjectKey) -> impl Iterator<Item = &mut Known> {
        let is_of = |(id, known): &(&Id, &mut Known)| {
            id.1.namespace == cluster.namespace && known.cluster.as_deref() == Some(cluster.name.as_str())
        };
        self.known.iter_mut().filter(is_of).map(|(_, known)| known)
    }

    pub(super) fn exists(&self, cluster: &ObjectKey) -> bool {
        self.uids.contains_key(cluster)
    }

    pub(super) fn opt_in(&mut self, cluster: &ObjectKey, index: Arc<Index>) {
        self.opt_out(cluster);
        for known in self.of_cluster(cluster) {
            known.indexed = None;
        }
        let uid = self.uids[cluster].clone();
        self.followed.insert(cluster.clone(), Follows { index, uid });
    }

    /// An object that has arrived is handed to the index of its Cluster as it is now, before the event of that state.
    pub(super) fn fill(&mut self, cluster: &ObjectKey, kind: RoutedKind, object: &Meta, change: Option<Change>) {
        let own = &self.owns[&object.resource_version.to_string()];
        let names_another = matches!(own, Own::None) || matches!(own, Own::Cluster(name) if *cluster.name != **name);
        let is_of = |known: &&mut Known| known.cluster.as_deref() == Some(cluster.name.as_str());
        let known = self.known.get_mut(&(kind, object.key.clone())).filter(is_of);
        if let (false, true, Some(known), Some(change)) =
            (names_another, self.followed.contains_key(cluster), known, change)
        {
            known.indexed = Some(change);
        }
    }

    pub(super) fn opt_out(&mut self, cluster: &ObjectKey) {
        if let Some(Follows { index, .. }) = self.followed.remove(cluster) {
            let shown = shown(&index);
            self.left.push((index, shown));
        }
    }

    /// Compares everything, once nothing waits to be delivered.
    pub(super) fn check(&mut self, router: &Router) {
        let unrouted = self.known.values().filter(|known| known.cluster.is_none()).count();
        assert_eq!(router.unrouted(), unrouted, "unrouted");
        for (index, last) in &self.left {
            assert_eq!(shown(index), *last, "an index that was left has changed");
        }
        let clusters: Vec<_> = self.followed.keys().cloned().collect();
        for cluster in clusters {
            let single = Index::new(rules());
            for known in self.of_cluster(&cluster) {
                match &known.change {
                    Ok(change) => drop(single.apply_quietly(change.clone())),
                    Err(change) => {
                        let changes = [&known.indexed, change].into_iter().flatten();
                        changes.for_each(|change| drop(single.apply_quietly(change.clone())));
                    }
                }
            }
            assert_eq!(shown(&self.followed[&cluster].index), shown(&single), "{cluster}");
        }
    }
}

/// Returns the content of an index.
pub(super) fn shown(index: &Index) -> Vec<String> {
    index.refresh();
    let mut shown: Vec<_> = index
        .snapshot(None, Detail::Instances)
        .groups
        .iter()
        .map(|group| {
            let instances = group.instances().into_iter().flatten().map(|owned| owned.instance.clone());
            let mut instances: Vec<_> = instances.map(|instance| format!("{instance:?}")).collect();
            instances.sort();
            // A deleted group keeps its size until the next Refresh, also if it comes back without decoding.
            let size = group.object.as_ref().map(|_| group.size);
            format!("{} {:?} {:?} {size:?} {instances:?}", group.id, group.standing, group.object)
        })
        .collect();
    let inner = index.inner.read();
    shown.extend(inner.live.clusters.values().map(|cluster| format!("{cluster:?}")));
    shown.extend(inner.live.machines.values().map(|machine| format!("{machine:?}")));
    drop(inner);
    shown.sort();
    shown
}
