//! The state that commands decide on, each read under one lock.

use std::time::Instant;

use arcstr::ArcStr;

use super::{Index, members::Member};
use capi::{ObjectKey, ScalableKind, Uid};
use nodegroup::{
    Bounds, GroupId,
    replacement::Replaced,
    writing::{GroupVersion, NotScalable, Ongoing},
};

/// The state of a group that a command needs before it writes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ScaleView {
    /// The current bounds, not the pinned ones.
    pub bounds: Bounds,
    /// The version that a write is based on, including own writes.
    pub version: GroupVersion,
    /// The number of Machines, including those that are being deleted: a MachineSet counts them as replicas until
    /// they are gone.
    pub machines: i32,
    /// The number of Machines that have a Node and aren't being deleted.
    pub machines_with_node: i32,
    /// The last Machine that this process replaced at the min size.
    pub replaced: Option<Replaced>,
    /// The rollout that forbids deletes; `None` if there is none, or the group opts out of that.
    pub rollout: Option<Ongoing>,
    /// The MachineSet from which a smaller size is taken in a rollout with the strategy OnDelete, if the group permits
    /// deletes meanwhile: no other loses a Machine.
    pub shrinks_first: Option<ArcStr>,
}

impl Index {
    /// Returns the state of a group that a command needs before it writes.
    ///
    /// # Errors
    /// When it isn't a group now: a command is refused, while a read would get the last values.
    pub fn scale_view(&self, id: &GroupId) -> Result<ScaleView, NotScalable> {
        let inner = self.inner.read();
        let live = &inner.live;
        let group = live.groups.get(id).ok_or(NotScalable::Unknown)?;
        let served = group.served.as_ref().ok_or(NotScalable::Unknown)?;
        match &group.excluded {
            None => Ok(ScaleView {
                bounds: served.definition.bounds,
                version: group.versions.current(Instant::now()).ok_or(NotScalable::Unknown)?.clone(),
                machines: live.machine_count(id, group),
                machines_with_node: live.joined(id, group.object.as_deref()),
                replaced: group.replaced.clone(),
                rollout: group.holding_rollout().cloned(),
                shrinks_first: group.rollout.as_ref().and_then(|_| live.shrinks_first(id, group.object.as_deref()?)),
            }),
            Some(excluded) => Err(NotScalable::Excluded(excluded.clone())),
        }
    }

    /// Returns the uid of a group's object; `None` if it was deleted.
    #[must_use]
    pub fn uid(&self, id: &GroupId) -> Option<Uid> {
        Some(self.inner.read().live.groups.get(id)?.object.as_ref()?.meta.uid.clone())
    }

    /// Returns the Machines of a group with their Nodes, including those that are being deleted.
    #[must_use]
    pub fn members(&self, id: &GroupId) -> Vec<Member> {
        let inner = self.inner.read();
        inner.live.copy_members(id)
    }

    /// Returns true if a known Node leads to a Machine with this key and providerID, as the API server has them.
    #[must_use]
    pub fn knows_node_of(&self, key: &ObjectKey, provider_id: Option<&ArcStr>) -> bool {
        self.inner.read().live.node_that_leads_to(key, provider_id).is_some()
    }

    /// Records that this process has replaced a Machine at the min size.
    pub fn set_replaced(&self, id: &GroupId, replaced: Replaced) {
        if let Some(group) = self.inner.write().live.groups.get_mut(id) {
            group.replaced = Some(replaced);
        }
    }

    /// Returns the MachineSets or the MachinePool that own the Machines of a group, by kind and name.
    #[must_use]
    pub fn owners(&self, id: &GroupId) -> Vec<(ScalableKind, ArcStr)> {
        match id.kind {
            ScalableKind::MachineDeployment => {
                let inner = self.inner.read();
                let sets = inner.live.sets_of(&id.key);
                sets.map(|set| (ScalableKind::MachineSet, set.meta.key.name.clone())).collect()
            }
            ScalableKind::MachineSet | ScalableKind::MachinePool => vec![(id.kind, id.key.name.clone())],
        }
    }
}
