//! Checks on the groups that copies return, on the time at which they forget deleted ones, and on the instances of a
//! group that a copy has seen completely.

use std::collections::BTreeSet;

use proto::{
    Instance, NodeGroupForNodeResponse, NodeGroupNodesResponse, NodeGroupsResponse, instance_status::InstanceState,
};

use super::{
    Check, Group, Ledger, Machine,
    calls::{Asked, decode},
    watches::TAKEN_UP,
};
use crate::entropy::{Nanos, SECOND};

/// The age from which a group is known after each Refresh.
const LONG_THERE: Nanos = 600 * SECOND;
/// The time since a group's deletion after which each Refresh drops it.
const LONG_GONE: Nanos = LONG_THERE;
/// The time since a group's deletion after which the next change drops it: 15 minutes, and the lag of a watch.
const FORGETS: Nanos = 1080 * SECOND;

impl Ledger {
    /// Records a Refresh, which changes the groups for all callers of this copy until they ask for them again.
    pub(super) fn refreshes(&mut self, copy: usize) {
        self.last_groups.remove(&copy);
        self.last_refreshed.insert(copy, self.now);
    }

    pub(super) fn groups_answered(&mut self, asked: &Asked, message: &[u8]) {
        let now = self.now;
        let answer: NodeGroupsResponse = decode(message);
        let groups: BTreeSet<String> = answer.node_groups.into_iter().map(|group| group.id).collect();
        self.are_of_caller(asked.copy, groups.iter());
        // Groups come and go with a successful Refresh; here copies don't know the connections of their callers.
        let fresh = self.last_fresh.get(&asked.copy).copied().unwrap_or(0);
        let is_missing = |(id, group): &(&String, &Group)| {
            !group.is_gone && !group.is_deleting && !groups.contains(*id) && fresh > group.created + LONG_THERE
        };
        let missing: Vec<_> = self.groups.iter().filter(is_missing).map(|(id, _)| id.clone()).collect();
        if !missing.is_empty() {
            self.find(Check::Consistent, format!("copy {} leaves {missing:?} out of its groups", asked.copy));
        }
        let is_left = |(id, since): &(&String, &Nanos)| groups.contains(*id) && fresh > **since + LONG_GONE;
        let left: Vec<_> = self.gone.iter().filter(is_left).map(|(id, _)| id.clone()).collect();
        if !left.is_empty() {
            self.find(Check::Consistent, format!("copy {} names {left:?}, which are long gone", asked.copy));
        }
        if self.last_refreshed.get(&asked.copy).is_none_or(|refreshed| *refreshed <= asked.at) {
            self.last_groups.insert(asked.copy, (now, groups));
        }
    }

    pub(super) fn group_of_node_answered(&mut self, asked: &Asked, message: &[u8]) {
        let answer: NodeGroupForNodeResponse = decode(message);
        let id = answer.node_group.unwrap_or_default().id;
        self.are_of_caller(asked.copy, [&id].into_iter());
        let known = self.last_groups.get(&asked.copy).filter(|(since, _)| *since <= asked.at);
        if !id.is_empty() && known.is_some_and(|(_, known)| !known.contains(&id)) {
            let what = format!("copy {} answers that a Node is of {id}, which NodeGroups didn't name", asked.copy);
            self.find(Check::Consistent, what);
        }
    }

    /// Returns the groups that no copy may know any more: each change of an object drops those deleted long ago.
    pub(crate) fn forgotten(&self) -> Vec<String> {
        let is_forgotten = |since: Nanos| self.last_changed > since + FORGETS;
        self.gone.iter().filter(|(_, since)| is_forgotten(**since)).map(|(id, _)| id.clone()).collect()
    }
}

const PENDING: &str = "pending-machine-";
const REPLICA: &str = "replica-";
/// The prefix of the ids of instances that a recent increase has brought.
const NEW: &str = "new-";

/// Returns the id that an instance has once its increase is old.
pub(crate) fn lasting(id: &str) -> &str {
    id.strip_prefix(NEW).unwrap_or(id)
}

impl Ledger {
    /// Checks the instances that a copy has returned for a group and the time of the call.
    pub(super) fn instances(&mut self, copy: usize, id: &str, asked: Nanos, answer: &NodeGroupNodesResponse) {
        let is_creating = |state: i32| state == i32::from(InstanceState::InstanceCreating);
        let sends_error = |instance: &&Instance| {
            instance.status.as_ref().is_some_and(|it| it.error_info.is_some() && is_creating(it.instance_state))
        };
        let failed: Vec<_> = answer.instances.iter().filter(sends_error).map(|instance| instance.id.as_str()).collect();
        for uid in self.errors_in_vain(copy, asked, &failed) {
            self.find(Check::ErrorsInVain, format!("copy {copy} sends the error of {uid}, which it may not delete"));
        }
        self.note_errors(id, &failed);
        if !self.knows(copy, id, asked.saturating_sub(TAKEN_UP)) {
            return;
        }
        let Some(group) = self.groups.get(id).filter(|group| !group.is_gone) else { return };
        if asked < group.created + TAKEN_UP {
            return;
        }
        let mut found = Vec::new();
        let machines = || self.machines.values().filter(|machine| machine.group == *id && !machine.is_gone);
        for instance in &answer.instances {
            let name =
                lasting(&instance.id).strip_prefix(PENDING).and_then(|rest| rest.split_once('_')).map(|(_, name)| name);
            let joined = name.and_then(|name| machines().find(|machine| machine.name == name));
            if let Some(machine) = joined.filter(|machine| !machine.provider_id.is_empty() && self.has_node(machine)) {
                found.push(format!("copy {copy} names {}, and {} has a Node", instance.id, machine.name));
            }
        }
        let holding = machines().filter(|machine| !machine.is_deleting || self.has_node(machine)).count();
        let missing = group.size - i64::try_from(holding).unwrap_or(i64::MAX);
        let named = answer.instances.iter().filter(|instance| lasting(&instance.id).starts_with(REPLICA)).count();
        if i64::try_from(named) != Ok(missing.max(0)) {
            let size = group.size;
            found.push(format!(
                "copy {copy} names {named} placeholders of {id}, of size {size} with {holding} Machines in place"
            ));
        }
        let above = (group.size - group.min).max(0);
        let errors = failed.len();
        let at_min = i64::from(self.replaces);
        let most = if self.rolls(id).is_some() || self.read_only == Some(copy) { 0 } else { above.max(at_min) };
        if i64::try_from(errors).unwrap_or(i64::MAX) > most {
            found.push(format!("copy {copy} sends {errors} errors of {id}, of which {most} may be deleted"));
        }
        for what in found {
            self.find(Check::Consistent, what);
        }
    }

    /// Records the errors that a copy sends of a group's instances.
    fn note_errors(&mut self, id: &str, failed: &[&str]) {
        for failed in failed.iter().map(|failed| lasting(failed)) {
            if self.now < self.calm_from {
                self.sent_errors.insert(failed.to_owned());
                continue;
            }
            let is_it = |machine: &&Machine| machine.group == id && failed.ends_with(&format!("_{}", machine.name));
            let machine = self.machines.values().find(is_it);
            if !self.sent_errors.contains(failed) && machine.is_some_and(|machine| machine.created < self.calm_from) {
                self.late_errors.insert(id.to_owned());
            }
        }
    }

    /// Returns true if the first error of an older Machine of a group was sent after the end of faults: while the group
    /// is at its minimum none is sent, and after the next increase Cluster Autoscaler backs the group off for it.
    pub(crate) fn sent_late_error(&self, group: &str) -> bool {
        self.late_errors.contains(group)
    }

    pub(super) fn has_node(&self, machine: &Machine) -> bool {
        let of_id = || !machine.provider_id.is_empty() && self.nodes.contains_key(&machine.provider_id);
        let of_name = || machine.node.as_ref().is_some_and(|node| self.nodes.values().any(|name| name == node));
        of_id() || of_name()
    }
}
