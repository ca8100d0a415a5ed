//! The size writes of this process, and observations of their outcome. Nothing here decides on sizes.

use std::collections::BTreeSet;

use capi::{ScalableKind, ScalableResource};
use nodegroup::{GroupId, writing::GroupVersion};

use super::{
    Index,
    increase::Increase,
    live_state::LiveState,
    own_size::{Overwritten, OwnSize},
};

/// A size write in progress. Drop it after the API server has answered.
#[derive(Debug)]
#[must_use]
pub struct SizeWrite<'a> {
    index: &'a Index,
    id: &'a GroupId,
}

impl Drop for SizeWrite<'_> {
    fn drop(&mut self) {
        let mut inner = self.index.inner.write();
        let live = &mut inner.live;
        let Some(group) = live.groups.get_mut(self.id) else { return };
        group.size_writes = group.size_writes.saturating_sub(1);
        group.check_shown_size();
        if group.overwritten.is_some() {
            live.observed.insert(self.id.clone());
            self.index.observed.send_replace(());
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

    /// Marks a group as observed if its size, written by this process, was overwritten, or if the creation of its
    /// Machines has stopped or resumed.
    pub(super) fn check_size(&mut self, id: GroupId, old: Option<&ScalableResource>, new: &ScalableResource) {
        let Some(group) = self.groups.get(&id) else { return };
        let has_turned = old.and_then(|old| old.held_back.as_ref()) != new.held_back.as_ref();
        if group.overwritten.is_some() || (group.own_size.is_some() && has_turned) {
            self.observed.insert(id);
        }
    }
}

impl Index {
    /// Begins a size write of a group.
    pub fn begin_size_write<'a>(&'a self, id: &'a GroupId) -> SizeWrite<'a> {
        if let Some(group) = self.inner.write().live.groups.get_mut(id) {
            group.size_writes = group.size_writes.saturating_add(1);
        }
        SizeWrite { index: self, id }
    }

    /// Records that this process has replaced the size `from` with another one.
    pub fn set_own_size(&self, id: &GroupId, from: i32, version: &GroupVersion) {
        let mut inner = self.inner.write();
        let live = &mut inner.live;
        if let Some(group) = live.groups.get_mut(id) {
            group.own_size = OwnSize::of(version);
            if version.replicas > from {
                group.increase = Some(Increase::now());
            }
            // The watch may have been quicker.
            group.check_shown_size();
            live.observed.insert(id.clone());
            self.observed.send_replace(());
        }
    }

    /// Returns the groups with observations of their sizes since the last call.
    #[must_use]
    pub fn take_observed(&self) -> BTreeSet<GroupId> {
        std::mem::take(&mut self.inner.write().live.observed)
    }

    /// Takes the size with which another writer has replaced this process's.
    #[must_use]
    pub fn take_overwritten(&self, id: &GroupId) -> Option<Overwritten> {
        self.inner.write().live.groups.get_mut(id)?.overwritten.take()
    }

    /// Returns the size that this process wrote and that is still in force, with the reason for which no Machine is
    /// created for it.
    #[must_use]
    pub fn held_back_own(&self, id: &GroupId) -> Option<(i32, String)> {
        let inner = self.inner.read();
        let own = inner.live.groups.get(id)?.own_size.as_ref()?;
        Some((own.replicas, inner.live.held_back(id)?.to_owned()))
    }
}
