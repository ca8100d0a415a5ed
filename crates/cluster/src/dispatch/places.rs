//! The Cluster of each object, also of those whose Cluster isn't served: an object that doesn't decode any more stays
//! where it was. An informer merges changes, so a deletion's last state may be of another Cluster than the one that has
//! the object.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use arcstr::ArcStr;
use index::Change;
use rules::{GroupId, capi::ObjectKey};

use super::CoreKind;

/// The names of the objects' Clusters, by kind; `None` for an orphan.
#[derive(Default)]
pub(super) struct Places {
    of_kind: BTreeMap<CoreKind, HashMap<ObjectKey, Option<ArcStr>>>,
}

impl Places {
    /// Returns the Cluster of an object, if it is known.
    pub(super) fn get(&self, kind: CoreKind, key: &ObjectKey) -> Option<&ArcStr> {
        self.of_kind.get(&kind)?.get(key)?.as_ref()
    }

    /// Sets the Cluster of an object, and returns the one before.
    pub(super) fn set(&mut self, kind: CoreKind, key: &ObjectKey, cluster: Option<ArcStr>) -> Option<ArcStr> {
        let known = self.of_kind.entry(kind).or_default();
        let Some(known) = known.get_mut(key) else {
            known.insert(key.clone(), cluster);
            return None;
        };
        std::mem::replace(known, cluster)
    }

    /// Forgets an object, and returns its Cluster.
    pub(super) fn remove(&mut self, kind: CoreKind, key: &ObjectKey) -> Option<ArcStr> {
        self.of_kind.get_mut(&kind)?.remove(key)?
    }

    /// Returns the keys of a kind.
    pub(super) fn keys(&self, kind: CoreKind) -> HashSet<ObjectKey> {
        self.of_kind.get(&kind).into_iter().flat_map(HashMap::keys).cloned().collect()
    }
}

type Id = (CoreKind, ObjectKey);

/// The objects that name no Cluster, with their owner and last change: they move with their owner, which may come later.
/// They are few, since Cluster API gives every object its Cluster's name.
#[derive(Default)]
pub(super) struct Owned {
    by_owner: BTreeMap<GroupId, BTreeSet<Id>>,
    objects: HashMap<Id, (GroupId, Change)>,
}

impl Owned {
    /// Sets the owner and the last change of an object; `None` if it names its Cluster or has no owner.
    pub(super) fn set(&mut self, kind: CoreKind, key: &ObjectKey, owned: Option<(GroupId, Change)>) {
        if self.objects.is_empty() && owned.is_none() {
            return;
        }
        let id = (kind, key.clone());
        if let Some((owner, _)) = self.objects.remove(&id)
            && let Some(siblings) = self.by_owner.get_mut(&owner)
        {
            siblings.remove(&id);
            if siblings.is_empty() {
                self.by_owner.remove(&owner);
            }
        }
        if let Some((owner, change)) = owned {
            self.by_owner.entry(owner.clone()).or_default().insert(id.clone());
            self.objects.insert(id, (owner, change));
        }
    }

    /// Returns the objects of an owner, with their last changes.
    pub(super) fn of_owner(&self, owner: &GroupId) -> Vec<(CoreKind, ObjectKey, Change)> {
        let known = |id: &Id| Some((id.0, id.1.clone(), self.objects.get(id)?.1.clone()));
        self.by_owner.get(owner).into_iter().flatten().filter_map(known).collect()
    }
}
