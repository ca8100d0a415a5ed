//! Those who act beside Cluster API: the server of a Machine, which follows its fate, MachineHealthCheck, and hooks.
//!
//! MachineHealthCheck deletes Machines of MachineSets whose Node is unhealthy for long. In Cluster API it sets a
//! condition, and the MachineSet's controller deletes the Machine: an ordinary delete either way. Hooks hold the
//! deletion of Machines by an annotation, and are removed after a while.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Hook, HookPoint, reconcile::Op};
use crate::{
    clock::after,
    controllers::{
        Plan, Side, keys,
        machine::{Fate, Plugin},
        node,
        object::{Object as _, annotation},
    },
    settings::Behaviour,
};

#[derive(Clone, Debug)]
pub(super) struct Server {
    /// The Machine as it was last seen.
    pub(super) machine: Arc<Value>,
    pub(super) fate: Fate,
    /// The time at which it came up.
    up: Timestamp,
    /// True if its Machine referred to its Node when it was first seen: it has long joined.
    is_settled: bool,
    /// The number of times that it has registered its Node.
    pub(super) registered: u8,
    /// The time at which its Machine was gone.
    pub(super) gone: Option<Timestamp>,
}

/// The presence of its Node at a time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Presence {
    /// The Node hasn't joined yet.
    NotYet,
    /// The Node was removed.
    Away,
    /// The Node exists, and was registered this many times.
    There { registered: u8, is_ready: bool },
}

impl Server {
    pub(super) fn new(machine: Arc<Value>, fate: &Fate, up: Timestamp) -> Self {
        let is_settled = machine.text("/status/nodeRef/name").is_some();
        Self { machine, fate: *fate, up, is_settled, registered: 0, gone: None }
    }

    pub(super) fn id(&self) -> &str {
        self.machine.text("/spec/providerID").unwrap_or_default()
    }

    /// Returns all states of its Node, in order.
    fn story(&self) -> Vec<(Timestamp, Presence)> {
        let mut story = vec![(self.up, Presence::NotYet)];
        if self.fate.behaviour != Behaviour::NeverJoins && !self.is_settled {
            let mut time = self.up;
            let mut add = |by: Duration, presence| {
                time = after(time, by);
                story.push((time, presence));
            };
            let times = self.fate.times;
            let mut registered = 1;
            let there = |registered, is_ready| Presence::There { registered, is_ready };
            add(times.join, there(1, times.ready.is_zero()));
            add(times.ready, there(1, true));
            // A server whose Machine is being deleted doesn't restart.
            if let Some(rejoin) = self.fate.rejoins.filter(|_| self.registered > 1 || !self.machine.deleting()) {
                registered = 2;
                add(rejoin.after.saturating_sub(times.ready), Presence::Away);
                add(rejoin.gap, there(2, times.ready.is_zero()));
                add(times.ready, there(2, true));
            }
            if let Some(unready) = self.fate.unready {
                add(unready.after, there(registered, false));
                add(unready.lasts, there(registered, true));
            }
        }
        if let Some(gone) = self.gone {
            story.retain(|(time, _)| *time < gone);
            story.push((after(gone, self.fate.lingers), Presence::Away));
        }
        story
    }

    /// Returns the reports of its device plugin, in order: the times, and the devices.
    fn reports(&self) -> Vec<(Timestamp, u32)> {
        let times = self.fate.times;
        let mut time = after(after(self.up, times.join), times.ready);
        let reports = self.fate.plugin.filter(|_| !self.is_settled).into_iter().flat_map(Plugin::reports);
        let mut at = |(by, devices)| {
            time = after(time, by);
            (time, devices)
        };
        reports.map(&mut at).collect()
    }

    /// Brings its Node to the state that is due now. `make` creates one.
    pub(super) fn plan(&self, known: Option<&Arc<Value>>, make: impl FnOnce(bool) -> Value, now: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let story = self.story();
        let present = story.iter().rev().find(|(time, _)| *time <= now).map_or(Presence::NotYet, |(_, is)| *is);
        let reports = self.reports();
        let times = story.iter().map(|(time, _)| time).chain(reports.iter().map(|(time, _)| time));
        if let Some(time) = times.filter(|time| **time > now).min() {
            plan.look_again(*time);
        }
        match (present, known) {
            (Presence::NotYet, _) | (Presence::Away, None) => {}
            (Presence::Away, Some(node)) => plan.delete(Side::Workload, node),
            (Presence::There { registered, is_ready }, None) => {
                // A Node that somebody deletes doesn't come back by itself.
                if self.registered < registered {
                    plan.create(Side::Workload, make(is_ready));
                }
            }
            (Presence::There { is_ready, .. }, Some(node)) => {
                // Times in objects have seconds.
                let is_due = |time: Timestamp| {
                    node::reported_at(node).is_none_or(|reported| reported.as_second() < time.as_second())
                };
                let report = reports.iter().rev().find(|(time, _)| *time <= now);
                let mut wanted = Value::clone(node);
                match report {
                    Some((time, devices)) if is_ready && is_due(*time) => node::report(&mut wanted, *devices, now),
                    Some(_) | None if node::is_ready(node) != is_ready => node::set_ready(&mut wanted, is_ready, now),
                    Some(_) | None => return plan,
                }
                plan.change(Side::Workload, node, wanted);
            }
        }
        plan
    }

    /// Counts a registration, after its Node was created.
    pub(super) fn has_registered(&mut self, now: Timestamp) {
        let story = self.story();
        let registered = story.iter().rev().filter(|(time, _)| *time <= now).find_map(|(_, is)| match is {
            Presence::There { registered, .. } => Some(*registered),
            Presence::NotYet | Presence::Away => None,
        });
        self.registered = registered.unwrap_or(self.registered).max(self.registered);
    }
}

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

impl Hook {
    fn annotation(self) -> String {
        let prefix = match self.at {
            HookPoint::PreDrain => keys::PRE_DRAIN_HOOK,
            HookPoint::PreTerminate => keys::PRE_TERMINATE_HOOK,
        };
        format!("{prefix}/simulated")
    }

    /// Returns the next write on a Machine, if one is due, and the time of the next reconcile. `since` is when its
    /// deletion was first seen.
    pub(super) fn plan(
        self,
        machine: &Value,
        since: &mut Option<Timestamp>,
        now: Timestamp,
    ) -> (Option<Op>, Option<Timestamp>) {
        let name = self.annotation();
        let is_on = machine.annotation(&name).is_some();
        let write = |value: Value| {
            let mut body = json!({});
            body.set(&annotation(&name), value);
            Op::patch(Side::Management, machine, body)
        };
        if !machine.deleting() {
            return ((!is_on).then(|| write(json!("simulated"))), None);
        }
        let due = after(*since.get_or_insert(now), self.held);
        if now < due {
            return (None, Some(due));
        }
        (is_on.then(|| write(Value::Null)), None)
    }
}
