//! The server of a Machine, which follows its fate: the times at which its Node object exists, and is Ready.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::Value;

use crate::{
    clock::after,
    controllers::{
        fate::Fate,
        node,
        object::Object as _,
        plan::{Plan, Side},
    },
    settings::Behaviour,
};

/// A server.
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
    pub(super) fn new(machine: Arc<Value>, fate: Fate, up: Timestamp) -> Self {
        let is_settled = machine.text("/status/nodeRef/name").is_some();
        Self { machine, fate, up, is_settled, registered: 0, gone: None }
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

    /// Brings its Node to the state that is due now. `make` creates one.
    pub(super) fn plan(&self, known: Option<&Arc<Value>>, make: impl FnOnce(bool) -> Value, now: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let story = self.story();
        let present = story.iter().rev().find(|(time, _)| *time <= now).map_or(Presence::NotYet, |(_, is)| *is);
        if let Some((time, _)) = story.iter().find(|(time, _)| *time > now) {
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
                if node::is_ready(node) != is_ready {
                    let mut wanted = Value::clone(node);
                    node::set_ready(&mut wanted, is_ready, now);
                    plan.change(Side::Workload, node, wanted);
                }
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
