//! What commands read of the state, each under one lock, and what they tell it: what they have written, which deletes
//! failed, and which groups are left alone for a while.

use std::{collections::BTreeSet, time::Instant};

use arcstr::ArcStr;
use rules::capi::{ObjectKey, ScalableKind, ScalableResource, Uid};
use rules::{
    Bounds, GroupId,
    group_version::{GroupVersion, NotScalable},
    replacement::Replaced,
    rollout::{self, Rollout},
};
use tokio::{sync::watch, time};

use super::{
    failed_delete::FailedDelete,
    hold::{Held, Hold},
    increase::Increase,
    remembered_groups::{BOUGHT_FOR, Unconfirmed},
    state::{Index, LiveState},
    versions::{Overwritten, OwnSize},
};

/// The state of a group that a command needs before it writes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ScaleView {
    /// The current bounds, not the pinned ones.
    pub bounds: Bounds,
    /// The version that a write is based on, including own writes.
    pub version: GroupVersion,
    /// The number of Machines that have a Node and aren't being deleted; of a MachinePool, of its nodeRefs.
    pub machines_with_node: i32,
    /// The last Machine that this process replaced at the min size.
    pub replaced: Option<Replaced>,
    /// The rollout that forbids deletes; `None` if there is none, or the group opts out of that.
    pub rollout: Option<Rollout>,
    /// The MachineSet from which a smaller size is taken in a rollout with the strategy OnDelete: no other loses a Machine.
    /// It matters where the group permits deletes meanwhile.
    pub on_delete_shrinks_first: Option<ArcStr>,
}

impl ScaleView {
    /// Returns true if a rollout keeps the size from being lowered by replicas that nobody named: it forbids deletes, or a
    /// smaller size is taken from one MachineSet alone.
    pub fn keeps_unnamed_replicas(&self) -> bool {
        self.rollout.is_some() || self.on_delete_shrinks_first.is_some()
    }
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
                machines_with_node: live.joined(id, group.object.as_deref()),
                replaced: group.replaced.clone(),
                rollout: group.rollout_in_force().cloned(),
                on_delete_shrinks_first: group.rollout.as_ref().and_then(|_| {
                    rollout::on_delete_shrinks_first(group.object.as_deref()?, live.sets_of(&id.key).map(AsRef::as_ref))
                }),
            }),
            Some(excluded) => Err(NotScalable::Excluded(excluded.clone())),
        }
    }

    /// Returns the uid of a group's object; `None` if it was deleted.
    pub fn uid(&self, id: &GroupId) -> Option<Uid> {
        Some(self.inner.read().live.groups.get(id)?.object.as_ref()?.meta.uid.clone())
    }

    /// Returns the number of instances that a MachinePool lists; `None` if it is gone.
    pub fn pool_instances(&self, id: &GroupId) -> Option<usize> {
        Some(self.inner.read().live.groups.get(id)?.object.as_ref()?.provider_ids.len())
    }

    /// Records that this process has replaced a Machine at the min size.
    pub fn set_replaced(&self, id: &GroupId, replaced: Replaced) {
        if let Some(group) = self.inner.write().live.groups.get_mut(id) {
            group.replaced = Some(replaced);
        }
    }

    /// Stores a version that was written or read, until the watch has caught up with it.
    pub fn set_known_version(&self, id: &GroupId, version: GroupVersion) {
        let live = &mut self.inner.write().live;
        if let Some(group) = live.groups.get_mut(id) {
            group.versions.set_known(version, Instant::now());
        }
    }

    /// Records that the API server has refused to delete a Machine, or hasn't answered.
    pub fn record_failed_delete(&self, key: &ObjectKey, uid: &Uid) {
        let live = &mut self.inner.write().live;
        if live.machine(key).is_some_and(|machine| machine.meta.uid == *uid) {
            let failed = FailedDelete::after(live.failed_deletes.get(key));
            live.failed_deletes.insert(key.clone(), failed);
        }
    }

    /// Leaves a group alone for a while, or ends that. A size that is put back is the stronger reason.
    pub fn hold(&self, id: &GroupId, why: Option<Hold>) {
        let mut inner = self.inner.write();
        let Some(group) = inner.live.groups.get_mut(id) else { return };
        let is_put_back = matches!(group.held.as_ref().and_then(Held::why), Some(Hold::SizePutBack(_)));
        if is_put_back && !matches!(why, Some(Hold::SizePutBack(_))) {
            return;
        }
        group.held = why.map(|why| Held { until: time::Instant::now() + why.lasts(), why });
    }

    /// Returns the reason why a group is left alone now.
    pub fn held(&self, id: &GroupId) -> Option<Hold> {
        self.inner.read().live.groups.get(id)?.held.as_ref()?.why().cloned()
    }

    /// Returns true if the API server has refused to delete Machines of a group lately.
    pub fn are_deletes_refused(&self, id: &GroupId) -> bool {
        matches!(self.held(id), Some(Hold::DeletesRefused(_)))
    }

    /// Returns the MachineSets or the MachinePool that own the Machines of a group, by kind and name.
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

// The size writes of this process, and observations of their outcome. Nothing here decides on sizes.

/// A size write in progress. Drop it after the API server has answered.
#[derive(Debug)]
#[must_use]
pub struct WriteInProgress<'a> {
    index: &'a Index,
    id: &'a GroupId,
}

impl Drop for WriteInProgress<'_> {
    fn drop(&mut self) {
        let mut inner = self.index.inner.write();
        let live = &mut inner.live;
        let Some(group) = live.groups.get_mut(self.id) else { return };
        group.size_writes = group.size_writes.saturating_sub(1);
        group.check_shown_size();
        if group.overwritten.is_some() {
            live.sizes_to_observe.insert(self.id.clone());
            self.index.written_sizes.send_replace(());
        }
    }
}

impl LiveState {
    /// Returns the reason for which no Machine is created for a larger size, from the MachineSets of a group.
    pub(super) fn held_back(&self, id: &GroupId) -> Option<&str> {
        let reason = |object: &ScalableResource| object.held_back.is_some();
        let object = |id: &GroupId| self.groups.get(id)?.object.as_deref().filter(|object| reason(object));
        let set = match id.kind {
            ScalableKind::MachineDeployment => self
                .sets_by_deployment
                .get(&id.key)
                .find_map(|key| object(&GroupId::new(ScalableKind::MachineSet, key.clone()))),
            ScalableKind::MachineSet | ScalableKind::MachinePool => object(id),
        };
        set?.held_back.as_deref()
    }

    /// Notes a group whose size, written by this process, was overwritten, or for which the creation of Machines has
    /// stopped or resumed.
    pub(super) fn check_size(&mut self, id: GroupId, old: Option<&ScalableResource>, new: &ScalableResource) {
        let Some(group) = self.groups.get(&id) else { return };
        let has_turned = old.and_then(|old| old.held_back.as_ref()) != new.held_back.as_ref();
        if group.overwritten.is_some() || (group.own_size.is_some() && has_turned) {
            self.sizes_to_observe.insert(id);
        }
    }
}

impl Index {
    /// Begins a size write of a group.
    pub fn begin_size_write<'a>(&'a self, id: &'a GroupId) -> WriteInProgress<'a> {
        if let Some(group) = self.inner.write().live.groups.get_mut(id) {
            group.size_writes = group.size_writes.saturating_add(1);
        }
        WriteInProgress { index: self, id }
    }

    /// Records that this process has replaced the size `from` with another one.
    pub fn set_own_size(&self, id: &GroupId, from: i32, version: &GroupVersion) {
        let mut inner = self.inner.write();
        let live = &mut inner.live;
        if let Some(group) = live.groups.get_mut(id) {
            group.own_size = OwnSize::of(version);
            if version.replicas > from {
                group.increase = Some(Increase::now());
                if group.uses_memory() {
                    let now = time::Instant::now();
                    // Of an increase whose Nodes never came nothing is known.
                    let unconfirmed = group.unconfirmed.take().filter(|it| now - it.since < BOUGHT_FOR);
                    group.unconfirmed = Some(unconfirmed.unwrap_or_else(|| Unconfirmed::new(now)));
                    group.bought_by_memory = Some(now);
                }
            }
            // The watch may have been quicker.
            group.check_shown_size();
            live.sizes_to_observe.insert(id.clone());
            self.written_sizes.send_replace(());
        }
    }

    /// Returns a receiver that is notified when [`Index::take_written_sizes`] has groups to return.
    pub fn written_sizes(&self) -> watch::Receiver<()> {
        self.written_sizes.subscribe()
    }

    /// Returns the groups whose size was written, overwritten or held back since the last call.
    pub fn take_written_sizes(&self) -> BTreeSet<GroupId> {
        std::mem::take(&mut self.inner.write().live.sizes_to_observe)
    }

    /// Takes the size with which another writer has replaced this process's.
    pub fn take_overwritten(&self, id: &GroupId) -> Option<Overwritten> {
        self.inner.write().live.groups.get_mut(id)?.overwritten.take()
    }

    /// Returns the size that this process wrote and that is still in force, with the reason for which no Machine is
    /// created for it.
    pub fn held_back_own(&self, id: &GroupId) -> Option<(i32, String)> {
        let inner = self.inner.read();
        let own = inner.live.groups.get(id)?.own_size.as_ref()?;
        Some((own.replicas, inner.live.held_back(id)?.to_owned()))
    }
}
