//! The differences between environments, for scenarios that depend on them.

use std::time::Duration;

use serde_json::{Value, json};

use super::testbed::{Controllers, TIMEOUT, Testbed};
use crate::existing;

impl Testbed {
    /// Returns true with the sandbox's controllers.
    #[must_use]
    pub fn is_simulated(&self) -> bool {
        matches!(self.controllers, Controllers::Simulated(_))
    }

    /// Returns true with CAPD's machines in memory.
    #[must_use]
    pub(crate) fn is_in_memory(&self) -> bool {
        matches!(self.controllers, Controllers::InMemory(_))
    }

    /// Returns true in existing clusters, whose machines may be real.
    #[must_use]
    pub fn is_existing(&self) -> bool {
        matches!(self.controllers, Controllers::Existing(_))
    }

    /// Returns the time within which idle controllers and machines react here.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        if self.is_existing() { existing::TIMEOUT } else { TIMEOUT }
    }

    /// Returns the label value that distinguishes the scenario's Nodes and Pods in its workload cluster.
    #[must_use]
    pub fn mark(&self) -> &str {
        match &self.controllers {
            Controllers::Existing(tenant) => &tenant.mark,
            Controllers::Real(_) | Controllers::Simulated(_) | Controllers::InMemory(_) => &self.namespace,
        }
    }

    /// Returns a CPU quantity for a scenario whose biggest Nodes have `of` CPUs. If all Nodes are real, it is the same
    /// share of a real Node.
    #[must_use]
    pub fn cpu(&self, cpus: i64, of: i64) -> String {
        match &self.controllers {
            Controllers::Existing(tenant) => format!("{}m", tenant.cpu() * cpus / of),
            Controllers::Real(_) | Controllers::Simulated(_) | Controllers::InMemory(_) => cpus.to_string(),
        }
    }

    /// Returns the capacity of a Node with this CPU.
    #[must_use]
    pub fn capacity(&self, cpu: &str) -> Value {
        match &self.controllers {
            Controllers::Existing(tenant) => json!({ "cpu": cpu, "memory": tenant.memory() }),
            Controllers::Real(_) | Controllers::Simulated(_) | Controllers::InMemory(_) => {
                json!({ "cpu": cpu, "memory": "64Gi", "pods": "110" })
            }
        }
    }
}
