//! The fate of a Machine: its outcome, the times of its steps, and what goes wrong.

use std::time::Duration;

use serde_json::Value;

use super::object::Object as _;
use crate::settings::{BEHAVIOUR_LABEL, Behaviour, Times};

/// The outcome of a Machine, and the times of its steps.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Fate {
    /// The outcome: its infrastructure is created and its Node joins, or not. `Slow` equals `Joins` because `times` has
    /// all durations.
    pub behaviour: Behaviour,
    /// The times of its steps, drain included. `slow_factor` is ignored.
    pub times: Times,
    /// The time by which `status.nodeRef` and the Node's annotations lag behind the Node.
    pub reference: Duration,
    /// True if its kubelet registers the Node with the taint that Cluster API takes off together with the annotations.
    pub with_kubeadm: bool,
    /// The loss of its Node object, which returns under the same name and providerID.
    pub rejoins: Option<Rejoin>,
    /// The period during which its Node isn't Ready.
    pub unready: Option<Unready>,
    /// An annotation that holds its deletion.
    pub hook: Option<Hook>,
    /// The time for which the Machine stays after its Node was deleted.
    pub hang: Duration,
    /// The time for which its Node stays after the Machine, if Cluster API hasn't deleted it.
    pub lingers: Duration,
}

/// The loss and return of a Node object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rejoin {
    /// The time of the loss, after the Node has joined.
    pub after: Duration,
    /// The time until the return.
    pub gap: Duration,
}

/// A period during which a Node isn't Ready.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Unready {
    /// The beginning, after the last time at which it was due to become Ready.
    pub after: Duration,
    /// The duration.
    pub lasts: Duration,
}

/// An annotation that holds a Machine's deletion, set when the Machine is first seen.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Hook {
    /// The step that is held.
    pub at: HookPoint,
    /// The time after which it is removed, since the Machine's deletion was seen.
    pub held: Duration,
}

/// The steps of a deletion that can be held.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HookPoint {
    /// Before its Node is drained.
    PreDrain,
    /// Before its infrastructure is deleted.
    PreTerminate,
}

impl Fate {
    /// Creates the fate of a Machine whose Node joins, and which is deleted without delay.
    #[must_use]
    pub fn plain(times: Times) -> Self {
        Self {
            behaviour: Behaviour::Joins,
            times,
            reference: Duration::ZERO,
            with_kubeadm: false,
            rejoins: None,
            unready: None,
            hook: None,
            hang: Duration::ZERO,
            lingers: Duration::ZERO,
        }
    }

    /// Creates the fate that a Machine's label selects.
    pub(crate) fn of_label(machine: &Value, times: Times) -> Self {
        let behaviour = Behaviour::parse(machine.label(BEHAVIOUR_LABEL));
        let factor = if behaviour == Behaviour::Slow { times.slow_factor } else { 1 };
        let Times { bootstrap, provision, join, ready, drain, terminate, slow_factor } = times;
        let [bootstrap, provision, join, ready, drain, terminate] =
            [bootstrap, provision, join, ready, drain, terminate].map(|time| time.saturating_mul(factor));
        Self { behaviour, ..Self::plain(Times { bootstrap, provision, join, ready, drain, terminate, slow_factor }) }
    }
}
