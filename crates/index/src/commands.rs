//! The state that commands and the finisher decide on, each read under one lock.

use std::{sync::Arc, time::Instant};

use arcstr::ArcStr;

use super::{Index, members::Member, version::Era};
use capi::{Machine, ObjectKey, REPLACED, ScalableKind, Uid};
use nodegroup::{
    Bounds, GroupId,
    writing::{GroupVersion, NotScalable, Ongoing, SetView},
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
    /// The annotation with the last replacement of a Machine.
    pub replaced: Option<ArcStr>,
    /// The rollout that forbids deletes; `None` if there is none, or the group opts out of that.
    pub rollout: Option<Ongoing>,
}

/// The progress of a group's deletions, as far as the watches have reported it.
#[derive(Clone, Debug)]
pub struct DeletionView {
    /// The group's version, including own writes.
    pub version: GroupVersion,
    /// The min size, which is 0 if the object isn't a group any more.
    pub min: i32,
    /// The objects that create the Machines: the MachineSets of a MachineDeployment, else the group's own object.
    pub sets: Vec<SetView>,
    /// The Machines.
    pub machines: Vec<Arc<Machine>>,
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
                replaced: group.object.as_ref().and_then(|object| object.annotations.get(REPLACED).cloned()),
                rollout: group.holding_rollout().cloned(),
            }),
            Some(excluded) => Err(NotScalable::Excluded(excluded.clone())),
        }
    }

    /// Returns the uid of a group's object; `None` if it was deleted.
    #[must_use]
    pub fn uid(&self, id: &GroupId) -> Option<Uid> {
        Some(self.inner.read().live.groups.get(id)?.object.as_ref()?.meta.uid.clone())
    }

    /// Returns the era of a group's current generation; `None` if there is no such object.
    #[must_use]
    pub fn era(&self, id: &GroupId) -> Option<Era> {
        self.inner.read().live.groups.get(id)?.versions.era().cloned()
    }

    /// Returns the progress of a group's deletions. `None` if the object doesn't exist, is paused, or isn't in scope:
    /// then its deletions wait, or belong to another program.
    #[must_use]
    pub fn deletions(&self, id: &GroupId) -> Option<DeletionView> {
        let inner = self.inner.read();
        let live = &inner.live;
        let min = live.groups.get(id)?.min_of_deletions()?;
        let (version, sets) = live.sets(id)?;
        Some(DeletionView { version, min, sets, machines: live.machines_of(id).cloned().collect() })
    }

    /// Returns a group's version, including own writes, and the objects that create its Machines.
    #[must_use]
    pub fn sets(&self, id: &GroupId) -> Option<(GroupVersion, Vec<SetView>)> {
        self.inner.read().live.sets(id)
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

    /// Returns true if a Machine with that uid is known, even if it is being deleted.
    #[must_use]
    pub fn has_machine(&self, key: &ObjectKey, uid: &Uid) -> bool {
        self.inner.read().live.machines.get(key).is_some_and(|machine| machine.meta.uid == *uid)
    }

    /// Returns true if a Machine with that uid belongs to this group; `None` if the Machine, or the MachineSet that
    /// owns it, isn't known.
    #[must_use]
    pub fn is_of(&self, id: &GroupId, key: &ObjectKey, uid: &Uid) -> Option<bool> {
        let inner = self.inner.read();
        let machine = inner.live.machines.get(key).filter(|machine| machine.meta.uid == *uid)?;
        match inner.live.group_of(machine) {
            Some(group) => Some(group == *id),
            None if machine.owner.is_none() => Some(false),
            None => None,
        }
    }

    /// Returns the delete-machine annotation of a Machine with that uid.
    #[must_use]
    pub fn mark_of(&self, key: &ObjectKey, uid: &Uid) -> Option<ArcStr> {
        let inner = self.inner.read();
        inner.live.machines.get(key).filter(|machine| machine.meta.uid == *uid)?.delete_mark().cloned()
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
