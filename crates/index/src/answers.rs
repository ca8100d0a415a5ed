//! Answers Cluster Autoscaler's reads, each from one consistent state of the index.

use std::{collections::BTreeSet, sync::Arc, time::Instant};

use super::{
    Index, Inner,
    group::{Group, Served},
    pinned::PinnedGroup,
    resolve::{NodeQuery, Resolved},
};
use capi::ScalableKind;
use nodegroup::{GroupId, Instance, instance};

impl Index {
    /// Returns true once a Refresh, or a NodeGroups before the first one, has pinned the membership.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        self.inner.read().pinned.is_some()
    }

    /// Returns the pinned groups, ordered by id. Pins them if there was no Refresh yet.
    #[must_use]
    pub fn groups(&self) -> Arc<[PinnedGroup]> {
        if let Some(pinned) = &self.inner.read().pinned {
            return Arc::clone(&pinned.groups);
        }
        self.refresh();
        self.inner.read().pinned.as_ref().map(|pinned| Arc::clone(&pinned.groups)).unwrap_or_default()
    }

    /// Returns the pinned group of a Node; `None` if it belongs to none.
    #[must_use]
    pub fn group_of_node(&self, query: NodeQuery<'_>) -> Option<PinnedGroup> {
        let inner = self.inner.read();
        let id = inner.live.group_of_node(query)?;
        inner.pinned.as_ref()?.get(&id).cloned()
    }

    /// Returns the Machine or group that a Node stands for.
    #[must_use]
    pub fn resolve(&self, query: NodeQuery<'_>) -> Resolved {
        self.inner.read().live.resolve(query)
    }

    /// Returns true if a MachinePool lists this providerID, whole, by the part after the last `/`, or in another form.
    #[must_use]
    pub fn lists(&self, pool: &GroupId, provider_id: &str) -> bool {
        self.inner.read().live.lists(pool, provider_id)
    }

    /// Returns the served values of a group: the current ones, or the last ones if it has stopped being a group since
    /// the last Refresh.
    #[must_use]
    pub fn served(&self, id: &GroupId) -> Option<Arc<Served>> {
        self.inner.read().live.groups.get(id)?.served.clone()
    }

    /// Returns the desired size, including own writes; `None` if there is no such group.
    #[must_use]
    pub fn target_size(&self, id: &GroupId) -> Option<i32> {
        let inner = self.inner.read();
        Some(inner.answering(id)?.size(Instant::now()))
    }

    /// Returns the instances of a group: its Machines, or a MachinePool's providerIDs, and a placeholder for each
    /// missing replica. The instances of a recent increase have temporary ids. `None` if there is no such group.
    #[must_use]
    pub fn instances(&self, id: &GroupId) -> Option<Vec<Instance>> {
        let inner = self.inner.read();
        let live = &inner.live;
        let group = inner.answering(id)?;
        let now = Instant::now();
        // A deleted group creates no more Machines.
        let size = if group.object.is_some() { group.size(now) } else { 0 };
        let mut members = Vec::new();
        let conditions = || group.delete_conditions(live.rules.errors);
        let mut instances = match live.pool_view(id, group) {
            Some(view) => {
                let ids = live.instance_ids_of(view.pool);
                instance::of_pool(id, size, ids.iter().map(|id| id.as_str()), view, conditions)
            }
            None if id.kind == ScalableKind::MachinePool => Vec::new(),
            None => {
                members.extend(live.members_of(id));
                instance::of_group(id, size, &members, conditions)
            }
        };
        if let Some(increase) = group.increase {
            increase.rename(&mut instances, &members);
        }
        Some(instances)
    }

    /// Returns the GPU types of all templates: the values of their GPU label.
    #[must_use]
    pub fn gpu_types(&self) -> BTreeSet<String> {
        let inner = self.inner.read();
        let served = inner.live.groups.values().filter_map(|group| group.served.as_deref());
        served
            .filter_map(|served| served.definition.template.as_ref()?.labels.get(nodegroup::GPU_LABEL))
            .map(|label| label.value.clone())
            .collect()
    }
}

impl Inner {
    /// Returns a group that is served: a live one, or one that was live at the last Refresh.
    fn answering(&self, id: &GroupId) -> Option<&Group> {
        self.live.groups.get(id).filter(|group| group.served.is_some())
    }
}
