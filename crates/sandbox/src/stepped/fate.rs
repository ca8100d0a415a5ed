//! The fate of a Machine: decided once, when it is first seen, by whoever drives the controllers.

use std::time::Duration;

use serde_json::Value;

use crate::{
    controllers::{
        machine::{Course, Joining},
        object::Object as _,
    },
    settings::{BEHAVIOUR_LABEL, Behaviour, Times},
};

/// The outcome of a Machine, and the times of its steps.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Fate {
    /// The outcome: its infrastructure comes and its Node joins, or not. `Slow` is as `Joins`: `times` say it all.
    pub behaviour: Behaviour,
    /// The times of its steps, drain included. `react` and `slow_factor` count for nothing.
    pub times: Times,
    /// `status.nodeRef` and the Node's annotations lag behind the Node for so long.
    pub reference: Duration,
    /// Its Node object goes and comes back under the same name and providerID.
    pub rejoins: Option<Rejoin>,
    /// Its Node isn't Ready for a while.
    pub unready: Option<Unready>,
    /// An annotation that holds its deletion.
    pub hook: Option<Hook>,
    /// The Machine stays for so long after its Node was deleted.
    pub hang: Duration,
    /// Its Node stays for so long after the Machine, where Cluster API hasn't deleted it.
    pub lingers: Duration,
}

/// A Node object that goes and comes back.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rejoin {
    /// When it goes, after it has joined.
    pub after: Duration,
    /// It is away for so long.
    pub gap: Duration,
}

/// A Node that isn't Ready for a while.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Unready {
    /// When, after it was last to become Ready.
    pub after: Duration,
    /// For how long.
    pub lasts: Duration,
}

/// An annotation that holds a Machine's deletion, put on when the Machine is first seen.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Hook {
    /// At which step.
    pub at: HookPoint,
    /// It is taken off so long after the Machine's deletion was seen.
    pub held: Duration,
}

/// The steps of a deletion that can be held.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HookPoint {
    /// Before its Node is drained.
    PreDrain,
    /// Before its infrastructure goes.
    PreTerminate,
}

impl Fate {
    /// A Machine whose Node joins, and which goes when it is deleted.
    #[must_use]
    pub fn plain(times: Times) -> Self {
        Self {
            behaviour: Behaviour::Joins,
            times,
            reference: Duration::ZERO,
            rejoins: None,
            unready: None,
            hook: None,
            hang: Duration::ZERO,
            lingers: Duration::ZERO,
        }
    }

    /// As [`BEHAVIOUR_LABEL`] on the Machine says.
    #[must_use]
    pub fn of_label(machine: &Value, times: Times) -> Self {
        let Course { behaviour, times, .. } = Course::of_label(machine, times);
        debug_assert_eq!(behaviour, Behaviour::parse(machine.label(BEHAVIOUR_LABEL)));
        Self { behaviour, ..Self::plain(times) }
    }

    pub(super) fn course(&self) -> Course {
        let joining = Joining::ByKubelet { reference: self.reference, hang: self.hang };
        Course { behaviour: self.behaviour, times: self.times, joining }
    }
}
