//! A shortage: for some time no new Machine of one group becomes ready, since its infrastructure has no capacity or its
//! new template is broken.

use sandbox::Behaviour;
use serde_json::Value;

use crate::{
    chance::Chance,
    entropy::{self, Nanos},
    faults::Decision,
    habits::Habits,
};

/// A shortage of one group.
#[derive(Clone, Debug)]
pub(crate) struct Shortage {
    /// The group's name.
    pub(crate) group: String,
    pub(crate) from: Nanos,
    to: Nanos,
    pub(crate) behaviour: Behaviour,
    /// True if it comes with a rollout.
    pub(crate) rolls_out: bool,
}

impl Shortage {
    /// The decision that removes it.
    pub(crate) const DECISION: Decision = Decision { what: "shortage", actor: 0, ordinal: 0 };

    /// Draws the shortage of a world, if it has one.
    pub(crate) fn of(chance: Chance, habits: Habits, until: Nanos) -> Option<Self> {
        let mut draw = chance.of("shortage", 0, 0);
        let is_there = habits == Habits::Any && draw.u32(0..3) == 0;
        is_there.then(|| {
            let from = draw.u64(0..until.max(1));
            Self {
                group: format!("group-{}", draw.u32(0..2)),
                from,
                to: draw.u64(from..until.max(from + 1)),
                behaviour: [Behaviour::NoCapacity, Behaviour::Fails][draw.usize(0..2)],
                rolls_out: draw.bool(),
            }
        })
    }

    /// Returns true if it affects a Machine that is created now.
    pub(crate) fn meets(&self, machine: &Value) -> bool {
        let group = machine["metadata"]["labels"]["group"].as_str();
        group == Some(&self.group) && (self.from..self.to).contains(&entropy::now())
    }
}
