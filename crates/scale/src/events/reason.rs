//! The content of Events: the reasons, which are a closed set, and their notes.

use std::fmt::Write as _;

use arcstr::ArcStr;
use rules::named_enum;

use crate::{error::ScaleError, history::Outcome};

/// The maximum number of Machines in a note.
const MOST_NAMES: usize = 10;

named_enum! {
    /// The reason of an Event.
    #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
    pub enum EventReason {
        /// A larger size was written.
        ScaledUp = "ScaledUp",
        /// A smaller size was written.
        ScaledDown = "ScaledDown",
        /// A larger size was refused by a rule.
        ScaleUpRefused = "ScaleUpRefused",
        /// A smaller size, or the deletion of a Machine, was refused by a rule.
        ScaleDownRefused = "ScaleDownRefused",
        /// A larger size couldn't be written.
        ScaleUpFailed = "ScaleUpFailed",
        /// A smaller size couldn't be written, or a Machine couldn't be deleted.
        ScaleDownFailed = "ScaleDownFailed",
        /// A Machine that never became a Node was deleted at the min size, so that another one is created.
        ReplacedFailedMachine = "ReplacedFailedMachine",
        /// A MachinePool without Machines was scaled down: its infrastructure provider chooses the instance.
        InstanceChosenByProvider = "InstanceChosenByProvider",
        /// Another field manager keeps reverting sizes that this program wrote.
        SizePutBack = "SizePutBack",
        /// Cluster API creates no Machine for a larger size that this program wrote.
        ScaleUpHeldBack = "ScaleUpHeldBack",
        /// A Node is smaller than what was remembered when this program wrote a larger size.
        SmallerThanRemembered = "SmallerThanRemembered",
    }
}

impl EventReason {
    /// Returns the action and the type as they stand in the Event, and the outcome as the history has it.
    pub(crate) fn kind(self) -> (&'static str, &'static str, Outcome) {
        match self {
            Self::ScaledUp => ("ScaleUp", "Normal", Outcome::Done),
            Self::ScaledDown => ("ScaleDown", "Normal", Outcome::Done),
            Self::ScaleUpRefused => ("ScaleUp", "Warning", Outcome::Refused),
            Self::ScaleDownRefused => ("ScaleDown", "Warning", Outcome::Refused),
            Self::ScaleUpFailed | Self::ScaleUpHeldBack | Self::SmallerThanRemembered => {
                ("ScaleUp", "Warning", Outcome::Failed)
            }
            Self::ScaleDownFailed => ("ScaleDown", "Warning", Outcome::Failed),
            Self::ReplacedFailedMachine => ("ReplaceMachine", "Normal", Outcome::Done),
            Self::InstanceChosenByProvider => ("ScaleDown", "Warning", Outcome::Done),
            Self::SizePutBack => ("WatchSize", "Warning", Outcome::Failed),
        }
    }
}

/// The content of an Event.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct EventContent {
    pub(super) reason: EventReason,
    pub(super) note: String,
    /// The clients that asked for it, as the end of the note.
    pub(super) origin: String,
}

impl EventContent {
    fn new(reason: EventReason, note: impl Into<String>) -> Self {
        Self { reason, note: note.into(), origin: String::new() }
    }

    pub(crate) fn reason(&self) -> EventReason {
        self.reason
    }

    /// Returns the whole note.
    pub(crate) fn text(&self) -> String {
        format!("{}{}", self.note, self.origin)
    }

    /// Returns the content for a written size; `machines` are the Machines that the size removes, if known.
    pub(crate) fn scaled(from: i32, to: i32, machines: &[ArcStr]) -> Self {
        let reason = if to > from { EventReason::ScaledUp } else { EventReason::ScaledDown };
        let mut note = format!("{from}→{to}");
        if !machines.is_empty() {
            note.push_str(if machines.len() == 1 { ": Machine " } else { ": Machines " });
            note.push_str(&machines[..machines.len().min(MOST_NAMES)].join(", "));
            if machines.len() > MOST_NAMES {
                let _ = write!(note, " and {} more", machines.len() - MOST_NAMES);
            }
        }
        Self::new(reason, note)
    }

    /// Returns the content for a command that was refused or failed. Returns `None` if the error concerns only the
    /// caller: its request was invalid, or another write took precedence.
    pub(crate) fn of_error(scales_up: bool, error: &ScaleError) -> Option<Self> {
        let reason = match (error, scales_up) {
            (ScaleError::FailedPrecondition(_), true) => EventReason::ScaleUpRefused,
            (ScaleError::FailedPrecondition(_), false) => EventReason::ScaleDownRefused,
            (ScaleError::PermissionDenied(_) | ScaleError::Unavailable(_), true) => EventReason::ScaleUpFailed,
            (ScaleError::PermissionDenied(_) | ScaleError::Unavailable(_), false) => EventReason::ScaleDownFailed,
            (
                ScaleError::InvalidArgument(_)
                | ScaleError::NotFound(_)
                | ScaleError::Aborted(_)
                | ScaleError::ReadOnly(_),
                _,
            ) => return None,
        };
        Some(Self::new(reason, error.to_string()))
    }

    /// Returns the same content with the clients that asked for it.
    pub(crate) fn requested_by(self, clients: Option<&str>) -> Self {
        match clients {
            Some(clients) => Self { origin: format!("{}{}", self.origin, asked_for_by(clients)), ..self },
            None => self,
        }
    }

    /// Returns the content for a Machine that was deleted so that another one is created.
    pub(crate) fn replaced(machine: &str, why: &str) -> Self {
        Self::new(
            EventReason::ReplacedFailedMachine,
            format!("Machine {machine} never became a Node and is replaced: {why}"),
        )
    }

    /// Returns the content for a field manager that keeps overwriting the sizes that this program writes.
    pub(crate) fn put_back(from: i32, to: i32, manager: &str) -> Self {
        Self::new(
            EventReason::SizePutBack,
            format!(
                "field manager {manager} keeps putting the size back: {from}→{to}; leave spec.replicas out of what it \
                 applies to this group, once both size annotations are set, or the group out of autoscaling"
            ),
        )
    }

    /// Returns the content for a written size for which no Machine is created.
    pub(crate) fn held_back(size: i32, why: &str) -> Self {
        Self::new(EventReason::ScaleUpHeldBack, format!("no Machine is made for the size {size} for now: {why}"))
    }

    /// Returns the content for a Node that is smaller than what was remembered.
    pub(crate) fn smaller(note: &str) -> Self {
        Self::new(EventReason::SmallerThanRemembered, note)
    }

    /// Returns the content for a MachinePool that was scaled down by this number of instances that aren't Machines.
    pub(crate) fn chosen_by_provider(instances: usize) -> Self {
        Self::new(
            EventReason::InstanceChosenByProvider,
            format!(
                "the MachinePool is smaller by {instances} and has no Machines, so its infrastructure provider chooses \
                 which instance goes, be it another than the drained one; --machine-pool-deletes=refuse forbids that"
            ),
        )
    }
}

/// Returns the end of a text about something that clients asked for.
pub(crate) fn asked_for_by(clients: &str) -> String {
    format!(" (asked for by {clients})")
}

#[cfg(test)]
mod tests {
    use super::EventContent;

    #[test]
    fn the_texts_of_events_have_no_gaps() {
        let contents = [
            EventContent::scaled(2, 1, &["a".into()]),
            EventContent::replaced("a", "no capacity"),
            EventContent::put_back(1, 2, "kubectl"),
            EventContent::held_back(1, "paused"),
            EventContent::chosen_by_provider(2),
        ];
        for content in contents {
            assert!(!content.text().contains("  "), "{}", content.text());
        }
    }
}
