//! Checks on Machines that copies delete by name: each MachineSet of the group has observed its smaller size before.
//! One that hasn't would make a new Machine, and later take one that nobody has named.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    Check, Ledger, Machine,
    log::{self, ANNOTATION},
};

/// The size of a MachineSet as its controller knows it.
#[derive(Clone, Debug, Default)]
pub(super) struct Following {
    /// True if its controller has observed the newest generation.
    is_seen: bool,
    /// The entries that have lowered the size, by uid and ticket.
    lowered: BTreeSet<(String, String)>,
}

impl Following {
    /// Reads a MachineSet.
    pub(super) fn read(object: &Value) -> Self {
        let status = &object["status"];
        let conditions = [&status["conditions"], &status["v1beta2"]["conditions"]];
        let mut conditions = conditions.into_iter().filter_map(Value::as_array).flatten();
        // Since Cluster API 1.11 this condition moves when a reconcile ends with an error, too.
        let scaling_down = conditions.find(|condition| condition["type"] == "ScalingDown");
        let seen = scaling_down.and_then(|condition| condition["observedGeneration"].as_i64());
        let seen = seen.or_else(|| status["observedGeneration"].as_i64());
        let log = log::parse(object["metadata"]["annotations"][ANNOTATION].as_str()).unwrap_or_default();
        let lowered = log.into_iter().filter(|(_, entry)| entry.is_lowered).map(|(uid, entry)| (uid, entry.ticket));
        Self { is_seen: seen == object["metadata"]["generation"].as_i64(), lowered: lowered.collect() }
    }
}

impl Ledger {
    /// Records the entries of a group whose smaller size each of its MachineSets has observed. They stay so.
    pub(super) fn follow(&mut self, group: &str) {
        if self.have_observed(group) {
            let sets = self.all_sets.values().filter(|set| set.group == group);
            self.followed.extend(sets.flat_map(|set| set.following.lowered.iter().cloned()));
        }
    }

    /// Returns true if each MachineSet of a group has observed its newest generation.
    pub(super) fn have_observed(&self, group: &str) -> bool {
        self.all_sets.values().filter(|set| set.group == group).all(|set| set.following.is_seen)
    }

    /// Checks a Machine that a copy has deleted.
    pub(super) fn deleted_by_name(&mut self, copy: usize, uid: &str, machine: &Machine) {
        let group = &machine.group;
        if group.starts_with("MachinePool/") {
            return;
        }
        let entry = self.groups.get(group).and_then(|group| group.log.get(uid)).filter(|entry| entry.is_lowered);
        if entry.is_some_and(|entry| !self.followed.contains(&(uid.to_owned(), entry.ticket.clone()))) {
            let what = format!(
                "copy {copy} deleted {} of {group} by name before its MachineSets had observed the smaller size",
                machine.name
            );
            self.find(Check::ByNameTooSoon, what);
        }
    }
}
