//! Which changes may bring the deletions of a group further, for whoever finishes them. A group's Machines are looked at
//! only where one of its owners comes, or where its deletions go on that had to wait; never at every change.

use std::sync::Arc;

use capi::{Machine, ScalableResource};
use nodegroup::GroupId;

use super::{group::Group, live_state::LiveState, relation::group_of};

impl LiveState {
    /// A MachineDeployment, MachineSet or MachinePool has changed, of which a log was known before or not.
    pub(super) fn look_at_log(&mut self, had_log: bool, object: &ScalableResource) {
        let group = group_of(object);
        if had_log || object.deleting_log.is_some() || self.has_log(&group) {
            self.unfinished.insert(group);
        }
    }

    /// A MachineSet has joined a group or left it. Its Machines may have come before it.
    pub(super) fn look_at_deletions_of_set(&mut self, set: &GroupId, group: GroupId) {
        if self.has_log(&group) || self.has_marks(set) {
            self.unfinished.insert(group);
        }
    }

    /// A Machine has changed.
    pub(super) fn look_at_deletions(&mut self, machine: &Machine) {
        let Some(id) = self.group_of(machine) else { return };
        if machine.delete_mark.is_some() || self.has_log(&id) {
            self.unfinished.insert(id);
        }
    }

    /// The deletions of a group go on that had to wait.
    pub(super) fn look_at_deletions_of(&mut self, id: &GroupId) {
        if self.has_log(id) || self.has_marks(id) {
            self.unfinished.insert(id.clone());
        }
    }

    fn has_log(&self, id: &GroupId) -> bool {
        self.groups.get(id).is_some_and(Group::has_log)
    }

    fn has_marks(&self, id: &GroupId) -> bool {
        self.machines_of(id).any(|machine: &Arc<Machine>| machine.delete_mark.is_some())
    }
}
