//! The Clusters that have an index. Must never be walked: each access is one look-up.

use std::{collections::HashMap, sync::Arc};

use arcstr::ArcStr;
use rules::capi::{Meta, ObjectKey, Uid};

use crate::{Change, Index};

/// A Cluster with its index.
#[derive(Debug)]
struct Entry {
    uid: Uid,
    index: Arc<Index>,
}

/// The Clusters that have an index, and the uids of all.
#[derive(Debug, Default)]
pub(super) struct Followed {
    entries: HashMap<ObjectKey, Entry>,
    uids: HashMap<ObjectKey, Uid>,
    /// The number of accesses to an entry.
    #[cfg(test)]
    pub(super) looks: usize,
}

impl Followed {
    /// Begins anew with this index; returns false if the Cluster doesn't exist.
    pub(super) fn insert(&mut self, cluster: &ObjectKey, index: Arc<Index>) -> bool {
        let Some(uid) = self.uids.get(cluster).cloned() else { return false };
        self.entries.insert(cluster.clone(), Entry { uid, index });
        true
    }

    pub(super) fn remove(&mut self, cluster: &ObjectKey) {
        self.entries.remove(cluster);
    }

    /// Notes that a Cluster exists, which ends an earlier one of its name.
    pub(super) fn seen(&mut self, cluster: &Meta) {
        let Meta { key, uid, .. } = cluster;
        if self.uids.get(key) != Some(uid) {
            self.uids.insert(key.clone(), uid.clone());
        }
        if self.entry(key).is_some_and(|entry| entry.uid != *uid) {
            self.remove(key);
        }
    }

    /// Notes that a Cluster doesn't exist any more. Its index stays: the same Cluster may come back in a later list.
    pub(super) fn gone(&mut self, cluster: &ObjectKey) {
        self.uids.remove(cluster);
    }

    /// Applies a change to the index of a Cluster, if it has one.
    pub(super) fn send(&mut self, namespace: &ArcStr, name: &ArcStr, change: Change) {
        let cluster = ObjectKey { namespace: namespace.clone(), name: name.clone() };
        if let Some(entry) = self.entry(&cluster) {
            entry.index.apply(change);
        }
    }

    fn entry(&mut self, cluster: &ObjectKey) -> Option<&mut Entry> {
        #[cfg(test)]
        {
            self.looks += 1;
        }
        self.entries.get_mut(cluster)
    }
}
