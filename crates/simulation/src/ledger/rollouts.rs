//! Checks on rollouts as the MachineSets show them: no Machine is taken from a group that a copy knows to be rolling
//! out.

use sandbox::api::ChangeKind;
use serde_json::Value;

use super::{
    Check, Ledger,
    by_name::Following,
    log::Log,
    watches::{Kind, TAKEN_UP},
};

const REVISION: &str = "machinedeployment.clusters.x-k8s.io/revision";

/// The state of a MachineSet.
#[derive(Clone, Debug)]
pub(super) struct Set {
    pub(super) group: String,
    revision: i64,
    has_replicas: bool,
    pub(super) following: Following,
}

impl Ledger {
    /// Records a change of a MachineSet of a group.
    pub(super) fn set(&mut self, change: ChangeKind, id: &str, group: &str, object: &Value) {
        self.change(Kind::Sets, group);
        let before = if change == ChangeKind::Deleted {
            self.all_sets.remove(id)
        } else {
            let revision = object["metadata"]["annotations"][REVISION].as_str().and_then(|text| text.parse().ok());
            let count = |field: &str| object[field]["replicas"].as_i64().unwrap_or_default();
            let has_replicas = count("spec") > 0 || count("status") > 0;
            let set = Set {
                group: group.to_owned(),
                revision: revision.unwrap_or_default(),
                has_replicas,
                following: Following::read(object),
            };
            self.all_sets.insert(id.to_owned(), set)
        };
        for group in before.iter().map(|set| set.group.as_str()).chain([group]) {
            self.follow(group);
        }
        let sets = || self.all_sets.values().filter(|set| set.group == group);
        let newest = sets().map(|set| set.revision).max();
        if sets().any(|set| set.has_replicas && Some(set.revision) != newest) {
            self.rolling.entry(group.to_owned()).or_insert(self.revision);
        } else if self.rolling.remove(group).is_some()
            && let Some(group) = self.groups.get_mut(group)
        {
            group.rolled = Some(self.now);
        }
    }

    /// Returns the revision since which a group rolls out.
    pub(super) fn rolls(&self, group: &str) -> Option<u64> {
        self.rolling.get(group).copied()
    }

    /// Returns the revision since which a group rolls out, if a copy has processed it.
    pub(super) fn known_rollout(&self, copy: usize, group: &str) -> Option<u64> {
        let at = self.now.saturating_sub(TAKEN_UP);
        self.rolls(group).filter(|since| self.has_seen(copy, Kind::Sets, *since, at))
    }

    /// Checks a log that a copy has written: it must add no Machine that was only named after the copy knew of the
    /// rollout.
    pub(super) fn added(&mut self, copy: usize, id: &str, before: &Log, after: &Log) {
        let rolls = self.rolls(id);
        let mut found = Vec::new();
        for (uid, entry) in
            after.iter().filter(|(uid, entry)| before.get(*uid).is_none_or(|old| old.ticket != entry.ticket))
        {
            let Some(machine) = self.machines.get(uid).filter(|machine| !machine.is_deleting) else { continue };
            let known = self.named_in_rollout(copy, uid);
            if !entry.is_soft && rolls.is_some() && known == rolls {
                found.push((Check::RollsOut, format!("copy {copy} logged {} of {id}, which rolls out", machine.name)));
            }
            if !entry.is_soft && !entry.is_pending && !self.named_with_node.contains(uid) && self.named.contains(uid) {
                let what = format!(
                    "copy {copy} logged {} of {id} as one that joined, and it was named as pending",
                    machine.name
                );
                found.push((Check::TakenUnnamed, what));
            }
        }
        for (check, what) in found {
            self.find(check, what);
        }
    }
}
