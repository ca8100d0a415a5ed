//! The objects that name no Cluster, with their last change: they move with their owner, which may come later. They are
//! few, since Cluster API gives every object its Cluster's name.

use std::collections::HashMap;

use rules::GroupId;
use rules::capi::ObjectKey;

use super::RoutedKind;
use crate::{Change, multimap::Multimap};

type Id = (RoutedKind, ObjectKey);

/// The objects that belong to their owner's Cluster.
#[derive(Debug, Default)]
pub(super) struct Untagged {
    by_owner: Multimap<GroupId, Id>,
    objects: HashMap<Id, (GroupId, Change)>,
}

impl Untagged {
    /// Sets the owner and the last change of an object; `None` if it names its Cluster or has no owner.
    pub(super) fn set(&mut self, kind: RoutedKind, key: &ObjectKey, owned: Option<(GroupId, Change)>) {
        if self.objects.is_empty() && owned.is_none() {
            return;
        }
        let id = (kind, key.clone());
        if let Some((owner, _)) = self.objects.remove(&id) {
            self.by_owner.remove(&owner, &id);
        }
        if let Some((owner, change)) = owned {
            self.by_owner.insert(owner.clone(), id.clone());
            self.objects.insert(id, (owner, change));
        }
    }

    /// Returns the objects of an owner, with their last changes.
    pub(super) fn of_owner(&self, owner: &GroupId) -> Vec<(RoutedKind, ObjectKey, Change)> {
        let known = |id: &Id| Some((id.0, id.1.clone(), self.objects.get(id)?.1.clone()));
        self.by_owner.get(owner).filter_map(known).collect()
    }
}
