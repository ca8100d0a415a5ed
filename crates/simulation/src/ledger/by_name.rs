//! Checks on Machines that copies delete by name: each MachineSet of the group has observed its smaller size before,
//! and that of all other entries. One that hasn't would make a new Machine, or take one that nobody has named.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    Check, Ledger, Machine,
    log::{self, ANNOTATION, Log},
};
use crate::entropy::{Nanos, SECOND};

/// The longest time between a read of the log and a deletion that relies on it.
const RELIES_FOR: Nanos = 300 * SECOND;

/// Returns the id of the group that a request reads; `None` if it reads anything else.
fn group_of(path: &str) -> Option<String> {
    let parts: Vec<_> = path.split('/').collect();
    let ["", "apis", _, _, "namespaces", namespace, plural, name] = parts[..] else { return None };
    let kind = match plural {
        "machinedeployments" => "MachineDeployment",
        "machinesets" => "MachineSet",
        _ => return None,
    };
    Some(format!("{kind}/{namespace}/{name}"))
}

fn entries(log: &Log) -> BTreeSet<(String, String)> {
    log.iter().map(|(uid, entry)| (uid.clone(), entry.ticket.clone())).collect()
}

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

    /// Records the entries that a copy reads.
    pub(super) fn reads_group(&mut self, copy: usize, path: &str) {
        let Some(group) = group_of(path) else { return };
        let read = self.groups.get(&group).map(|group| entries(&group.log)).unwrap_or_default();
        let now = self.now;
        let reads = self.group_reads.entry((copy, group)).or_default();
        reads.retain(|(at, _)| at + RELIES_FOR > now);
        reads.push((now, read));
    }

    /// Returns the name of an entry that isn't followed, although a copy has known it for as long as it may have known
    /// the group.
    fn waits_for(&self, copy: usize, group: &str) -> Option<String> {
        let since = self.sent.saturating_sub(RELIES_FOR);
        let reads = self.group_reads.get(&(copy, group.to_owned())).into_iter().flatten();
        let reads = reads.filter(|(at, _)| (since..=self.sent).contains(at)).map(|(_, read)| read.clone());
        let known = reads.reduce(|one, other| &one & &other)?;
        let log = &self.groups.get(group)?.log;
        let mut left = log.iter().filter(|(uid, entry)| {
            let key = ((*uid).clone(), entry.ticket.clone());
            known.contains(&key) && !self.followed.contains(&key)
        });
        left.next().map(|(_, entry)| entry.name.clone())
    }

    /// Checks a Machine that a copy has deleted.
    pub(super) fn deleted_by_name(&mut self, copy: usize, uid: &str, machine: &Machine) {
        let group = &machine.group;
        if group.starts_with("MachinePool/") {
            return;
        }
        let entry = self.groups.get(group).and_then(|group| group.log.get(uid)).filter(|entry| entry.is_lowered);
        let Some(entry) = entry else { return };
        let name = &machine.name;
        let what = if !self.followed.contains(&(uid.to_owned(), entry.ticket.clone())) {
            format!(
                "copy {copy} deleted {name} of {group} by name before its MachineSets had observed the smaller size"
            )
        } else if let Some(other) = self.waits_for(copy, group) {
            format!("copy {copy} deleted {name} of {group} by name before the smaller size for {other} was observed")
        } else {
            return;
        };
        self.find(Check::ByNameTooSoon, what);
    }
}
