//! The Clusters that have an index. Must never be walked: each access is one look-up. Only a replaced feed looks at all
//! Clusters that are being filled.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use arcstr::ArcStr;
use rules::capi::{Meta, ObjectKey, Uid};

use super::RoutedKind;
use crate::{Change, Index};

/// A Cluster with its index.
#[derive(Debug)]
struct Entry {
    uid: Uid,
    index: Arc<Index>,
    mark: u64,
    /// The kinds whose replay hasn't arrived yet.
    awaited: BTreeSet<RoutedKind>,
}

/// The Clusters that have an index, and the uids of all.
#[derive(Debug, Default)]
pub(super) struct Followed {
    entries: HashMap<ObjectKey, Entry>,
    uids: HashMap<ObjectKey, Uid>,
    /// The Clusters whose replays haven't all arrived, by the mark that ends them.
    marks: HashMap<u64, ObjectKey>,
    last_mark: u64,
    /// The number of accesses to an entry.
    #[cfg(test)]
    pub(super) looks: usize,
}

impl Followed {
    /// Begins anew with this index; returns `None` if the Cluster doesn't exist.
    pub(super) fn insert(
        &mut self,
        cluster: &ObjectKey,
        index: Arc<Index>,
        awaited: BTreeSet<RoutedKind>,
    ) -> Option<u64> {
        let uid = self.uids.get(cluster)?.clone();
        self.remove(cluster);
        self.last_mark += 1;
        let mark = self.last_mark;
        self.marks.insert(mark, cluster.clone());
        self.entries.insert(cluster.clone(), Entry { uid, index, mark, awaited });
        Some(mark)
    }

    pub(super) fn remove(&mut self, cluster: &ObjectKey) {
        if let Some(entry) = self.entries.remove(cluster) {
            self.marks.remove(&entry.mark);
        }
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

    /// Notes that the replay of a kind has arrived.
    pub(super) fn replayed(&mut self, kind: RoutedKind, mark: u64) {
        let Some(cluster) = self.marks.get(&mark).cloned() else { return };
        let is_filled = self.entry(&cluster).is_some_and(|entry| {
            entry.awaited.remove(&kind);
            entry.awaited.is_empty()
        });
        if is_filled {
            self.marks.remove(&mark);
        }
    }

    /// Returns the marks that haven't arrived for a kind.
    pub(super) fn awaited(&self, kind: RoutedKind) -> Vec<u64> {
        let awaits = |cluster: &ObjectKey| self.entries.get(cluster).is_some_and(|entry| entry.awaited.contains(&kind));
        let mut marks: Vec<_> =
            self.marks.iter().filter(|(_, cluster)| awaits(cluster)).map(|(mark, _)| *mark).collect();
        marks.sort_unstable();
        marks
    }

    /// Returns true if the Cluster has an index, and all replays for it have arrived.
    pub(super) fn is_filled(&self, cluster: &ObjectKey) -> bool {
        self.entries.get(cluster).is_some_and(|entry| entry.awaited.is_empty())
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
