//! Nodes by providerID, and the time that each existed without the labels of its group.

use sandbox::api::ChangeKind;
use serde_json::Value;

use super::{Ledger, watches::Kind};
use crate::entropy::{Nanos, SECOND};

/// The time for which a Node must be ready before Cluster Autoscaler may remember it for its group.
const SEEN: Nanos = 5 * SECOND;

impl Ledger {
    pub(super) fn node(&mut self, kind: ChangeKind, node: &Value) {
        self.remembers_node(kind, node);
        let Some(provider_id) = node["spec"]["providerID"].as_str() else { return };
        let name = node["metadata"]["name"].as_str().unwrap_or_default();
        match kind {
            ChangeKind::Deleted => {
                self.nodes.remove(provider_id);
                self.change(Kind::Nodes, "");
            }
            ChangeKind::Added | ChangeKind::Modified => {
                if self.nodes.insert(provider_id.to_owned(), name.to_owned()).is_none() {
                    self.change(Kind::Nodes, "");
                }
            }
        }
        let labels = node["metadata"]["labels"].as_object();
        let is_bare = !labels.is_some_and(|labels| labels.contains_key(crate::setup::POOL));
        if is_bare && kind != ChangeKind::Deleted {
            self.bare.entry(provider_id.to_owned()).or_insert(self.now);
        } else if let Some(since) = self.bare.remove(provider_id)
            && self.now.saturating_sub(since) > SEEN
            && let Some(machine) = self.machines.values().find(|machine| machine.provider_id == provider_id)
        {
            self.without_labels.insert(machine.group.clone());
        }
    }

    /// Returns true if a Node of a group existed for long without the group's labels: Cluster Autoscaler may take it as
    /// the group's template as long as the group has no other.
    pub(crate) fn was_without_labels(&self, group: &str) -> bool {
        self.without_labels.contains(group)
    }
}
