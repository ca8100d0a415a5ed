//! Checks on rollouts as the MachineSets show them: no Machine is taken from a group that a copy knows to be rolling
//! out.

use sandbox::api::ChangeKind;
use serde_json::Value;

use super::{
    Ledger,
    watches::{Kind, TAKEN_UP},
};

const REVISION: &str = "machinedeployment.clusters.x-k8s.io/revision";

/// The state of a MachineSet.
#[derive(Clone, Debug)]
pub(super) struct Set {
    pub(super) group: String,
    revision: i64,
    has_replicas: bool,
}

impl Ledger {
    /// Records a change of a MachineSet of a group.
    pub(super) fn set(&mut self, change: ChangeKind, id: &str, group: &str, object: &Value) {
        self.change(Kind::Sets, group);
        if change == ChangeKind::Deleted {
            self.all_sets.remove(id);
        } else {
            let revision = object["metadata"]["annotations"][REVISION].as_str().and_then(|text| text.parse().ok());
            let count = |field: &str| object[field]["replicas"].as_i64().unwrap_or_default();
            let has_replicas = count("spec") > 0 || count("status") > 0;
            let set = Set { group: group.to_owned(), revision: revision.unwrap_or_default(), has_replicas };
            self.all_sets.insert(id.to_owned(), set);
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
}
