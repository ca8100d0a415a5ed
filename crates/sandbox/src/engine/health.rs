//! MachineHealthCheck: deletes Machines of MachineSets whose Node is unhealthy for long. In Cluster API it sets a
//! condition, and the MachineSet's controller deletes the Machine: an ordinary delete either way.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::Value;

use crate::{
    clock::after,
    controllers::{
        node,
        object::Object as _,
        plan::{Plan, Side},
    },
};

/// The conditions under which a Machine counts as unhealthy.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HealthCheck {
    /// The time for which its Node isn't Ready, or doesn't exist any more.
    pub unhealthy: Duration,
    /// The time for which it has no `status.nodeRef`, since its creation.
    pub startup: Duration,
}

impl HealthCheck {
    /// Deletes a Machine that has been unhealthy for long. `missing` is the time since which the Node that it refers to
    /// isn't seen.
    pub(super) fn plan(
        self,
        machine: &Arc<Value>,
        node: Option<&Value>,
        missing: &mut Option<Timestamp>,
        now: Timestamp,
    ) -> Plan {
        let mut plan = Plan::default();
        let is_of_set = machine.controller().is_some_and(|owner| owner["kind"] == "MachineSet");
        if machine.deleting() || !is_of_set {
            return plan;
        }
        let time = |text: Option<&str>| text.and_then(|text| text.parse::<Timestamp>().ok());
        let refers = machine.text("/status/nodeRef/name").is_some();
        let due = match node {
            Some(node) if refers => {
                *missing = None;
                if node::is_ready(node) {
                    return plan;
                }
                let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
                let ready = conditions.into_iter().find(|condition| condition["type"] == "Ready");
                let since = time(ready.and_then(|ready| ready.text("/lastTransitionTime"))).unwrap_or(now);
                after(since, self.unhealthy)
            }
            None if refers => after(*missing.get_or_insert(now), self.unhealthy),
            Some(_) | None => {
                *missing = None;
                after(time(machine.text("/metadata/creationTimestamp")).unwrap_or(now), self.startup)
            }
        };
        if now < due {
            plan.look_again(due);
        } else {
            plan.delete(Side::Management, machine);
        }
        plan
    }
}
