//! The changes that may advance the deletions of a group, for the finisher. A group's Machines are visited only when
//! one of its owners is added, or when its waiting deletions may continue; never at every change.

use std::sync::Arc;

use capi::{Machine, ScalableResource};
use nodegroup::GroupId;

use super::{group::Group, live_state::LiveState, relation::group_of};

impl LiveState {
    /// Marks the group of a MachineDeployment, MachineSet or MachinePool that has changed, if it has or had a log.
    pub(super) fn check_log(&mut self, had_log: bool, object: &ScalableResource) {
        let group = group_of(object);
        if had_log || object.deleting_log.is_some() || self.has_log(&group) {
            self.pending_deletes.insert(group);
        }
    }

    /// Marks a group that a MachineSet has joined or left. The set's Machines may have arrived before it.
    pub(super) fn check_deletions_of_set(&mut self, set: &GroupId, group: GroupId) {
        if self.has_log(&group) || self.has_marks(set) {
            self.pending_deletes.insert(group);
        }
    }

    /// Marks the group of a Machine that has changed.
    pub(super) fn check_deletions(&mut self, machine: &Machine) {
        let Some(id) = self.group_of(machine) else { return };
        if machine.delete_mark().is_some() || self.has_log(&id) {
            self.pending_deletes.insert(id);
        }
    }

    /// Marks a group whose waiting deletions may continue.
    pub(super) fn check_deletions_of(&mut self, id: &GroupId) {
        if self.has_log(id) || self.has_marks(id) {
            self.pending_deletes.insert(id.clone());
        }
    }

    fn has_log(&self, id: &GroupId) -> bool {
        self.groups.get(id).is_some_and(Group::has_log)
    }

    fn has_marks(&self, id: &GroupId) -> bool {
        self.machines_of(id).any(|machine: &Arc<Machine>| machine.delete_mark().is_some())
    }
}
