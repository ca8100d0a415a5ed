//! The differences between surroundings, where a scenario can't do without knowing them.

use std::time::Duration;

use serde_json::{Value, json};

use super::stage::{Controllers, PATIENCE, Stage};
use crate::{capd, existing};

impl Stage {
    /// Returns true if the sandbox's controllers work here.
    #[must_use]
    pub fn is_simulated(&self) -> bool {
        matches!(self.controllers, Controllers::Simulated(_))
    }

    /// Returns true if CAPD's machines in memory work here.
    #[must_use]
    pub fn is_in_memory(&self) -> bool {
        matches!(self.controllers, Controllers::InMemory(_))
    }

    /// Returns true if these are clusters that were there before, whose machines may be real.
    #[must_use]
    pub fn is_existing(&self) -> bool {
        matches!(self.controllers, Controllers::Existing(_))
    }

    /// Returns the maximum time for what controllers and machines do at once here.
    #[must_use]
    pub fn patience(&self) -> Duration {
        if self.is_existing() { existing::PATIENCE } else { PATIENCE }
    }

    /// The kind of infrastructure template that groups have unless they say otherwise.
    #[must_use]
    pub fn template_kind(&self) -> &str {
        match &self.controllers {
            Controllers::InMemory(_) => capd::TEMPLATE_KIND,
            Controllers::Existing(guest) => guest.template_kind(),
            Controllers::Real(_) | Controllers::Simulated(_) => "LoopbackMachineTemplate",
        }
    }

    /// Returns the mark that sets the scenario's Nodes and pods apart from those of others in its workload cluster.
    #[must_use]
    pub fn mark(&self) -> &str {
        match &self.controllers {
            Controllers::Existing(guest) => &guest.mark,
            Controllers::Real(_) | Controllers::Simulated(_) | Controllers::InMemory(_) => &self.namespace,
        }
    }

    /// So many CPUs, in a scenario whose biggest Nodes have `of`. Where all Nodes are real, those have what they have, and this is as
    /// large a part of it.
    #[must_use]
    pub fn cpu(&self, cpus: i64, of: i64) -> String {
        match &self.controllers {
            Controllers::Existing(guest) => format!("{}m", guest.cpu() * cpus / of),
            Controllers::Real(_) | Controllers::Simulated(_) | Controllers::InMemory(_) => cpus.to_string(),
        }
    }

    /// Returns the capacity of a Node with so many CPUs.
    #[must_use]
    pub fn capacity(&self, cpu: &str) -> Value {
        match &self.controllers {
            Controllers::Existing(guest) => json!({ "cpu": cpu, "memory": guest.memory() }),
            Controllers::Real(_) | Controllers::Simulated(_) | Controllers::InMemory(_) => {
                json!({ "cpu": cpu, "memory": "64Gi", "pods": "110" })
            }
        }
    }
}
