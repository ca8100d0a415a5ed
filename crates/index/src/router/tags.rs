//! The Cluster of each object, also of those whose Cluster has no index: an object that doesn't decode any more stays
//! where it was. An informer merges changes, so a deletion's last state may be of another Cluster than the one that has
//! the object.

use std::collections::{BTreeMap, HashMap, HashSet};

use arcstr::ArcStr;
use rules::capi::ObjectKey;

use super::RoutedKind;

/// The names of the objects' Clusters, by kind; `None` for an unrouted object.
#[derive(Debug, Default)]
pub(super) struct Tags {
    of_kind: BTreeMap<RoutedKind, HashMap<ObjectKey, Option<ArcStr>>>,
}

impl Tags {
    /// Returns the Cluster of an object, if it is known and routed.
    pub(super) fn get(&self, kind: RoutedKind, key: &ObjectKey) -> Option<&ArcStr> {
        self.of_kind.get(&kind)?.get(key)?.as_ref()
    }

    /// Sets the Cluster of an object, and returns the one before.
    pub(super) fn set(&mut self, kind: RoutedKind, key: &ObjectKey, cluster: Option<ArcStr>) -> Option<ArcStr> {
        let known = self.of_kind.entry(kind).or_default();
        let Some(known) = known.get_mut(key) else {
            known.insert(key.clone(), cluster);
            return None;
        };
        std::mem::replace(known, cluster)
    }

    /// Forgets an object, and returns its Cluster.
    pub(super) fn remove(&mut self, kind: RoutedKind, key: &ObjectKey) -> Option<ArcStr> {
        self.of_kind.get_mut(&kind)?.remove(key)?
    }

    /// Returns the keys of a kind.
    pub(super) fn keys(&self, kind: RoutedKind) -> HashSet<ObjectKey> {
        self.of_kind.get(&kind).into_iter().flat_map(HashMap::keys).cloned().collect()
    }

    /// Returns the number of unrouted objects.
    #[cfg(test)]
    pub(super) fn unrouted(&self) -> usize {
        self.of_kind.values().flat_map(HashMap::values).filter(|cluster| cluster.is_none()).count()
    }
}
