//! The objects at the API server, and how caches show them.

use super::set::{SLOTS, Set};

/// The life of a Machine.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq, PartialOrd)]
pub enum Life {
    /// Not created yet.
    #[default]
    Unborn,
    /// There.
    Alive,
    /// Its deletionTimestamp is set; a MachineSet still counts it.
    Deleting,
    /// No longer there.
    Gone,
}

/// A Machine. Its name is never used again, so that it stands for the uid as well.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Machine {
    /// Its life.
    pub life: Life,
    /// The ticket in its delete-machine annotation, or 0.
    pub mark: u8,
    /// True if it has a Node.
    pub has_node: bool,
    /// True if its nodeRef says so.
    pub has_ref: bool,
    /// True if it is of the old MachineSet in a rollout.
    pub is_old: bool,
}

impl Machine {
    /// Returns true if the API server still has it.
    #[must_use]
    pub fn exists(&self) -> bool {
        matches!(self.life, Life::Alive | Life::Deleting)
    }
}

/// The progress of a logged Machine's deletion.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Phase {
    /// It isn't in the log.
    #[default]
    None,
    /// Its deletion is decided; the size doesn't say so yet.
    Wanted,
    /// The size is lowered by it.
    Lowered,
}

/// A Machine's entry in the log.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a field of the log's own")]
pub struct Entry {
    /// The progress of the deletion.
    pub phase: Phase,
    /// The number of its acceptance; the mark carries the same.
    pub ticket: u8,
    /// True if it only steers which Machine a smaller target size takes, and need not go.
    pub is_soft: bool,
    /// The Machine was given up as one that never joined: it must have no Node when it is marked. Soft entries are so.
    pub never_joined: bool,
    /// The Machine was being deleted when it was logged, and was counted then.
    pub is_counted: bool,
}

/// A MachineDeployment as its controller sees it.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Deployment {
    /// spec.replicas.
    pub replicas: i8,
    /// The log's entries whose size is lowered.
    pub lowered: Set,
    /// Of those it had, the ones whose Machines have been logged anew since, under another ticket.
    pub stale: Set,
    /// The Machine picture in `seen` that was the newest when it was written, by its place.
    pub since: u8,
}

/// A MachineSet, with what was copied from its MachineDeployment.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct MachineSet {
    /// The values that were copied.
    pub copied: Deployment,
    /// spec.replicas, which differs from the size that was copied in a rollout alone.
    pub size: i8,
    /// In a rollout, the entries that were lowered in the version of the MachineDeployment for which its size was chosen.
    pub given: Set,
    /// metadata.generation, counted from the oldest version that is kept.
    pub generation: u8,
}

/// A picture of all Machines, as the MachineSet controller's cache has it.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Picture {
    /// Those that are there, deleting ones included.
    pub existing: Set,
    /// Those that are being deleted.
    pub deleting: Set,
    /// Those with the delete-machine annotation.
    pub marked: Set,
    /// Those with a Node by their nodeRef.
    pub with_node: Set,
}

impl Picture {
    /// Of these Machines alone.
    #[must_use]
    pub fn only(self, machines: Set) -> Self {
        let Self { existing, deleting, marked, with_node } = self;
        let (existing, deleting) = (existing & machines, deleting & machines);
        Self { existing, deleting, marked: marked & machines, with_node: with_node & machines }
    }

    /// Of these Machines.
    #[must_use]
    pub fn of(machines: &[Machine; SLOTS]) -> Self {
        let existing = Set::of(|machine| machines[machine].exists());
        Self {
            existing,
            deleting: Set::of(|machine| machines[machine].life == Life::Deleting),
            marked: existing & Set::of(|machine| machines[machine].mark != 0),
            with_node: Set::of(|machine| machines[machine].life == Life::Alive && machines[machine].has_ref),
        }
    }
}

/// All Machines at one moment, as the program's cache may have them.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Past {
    /// Those that are there and not being deleted.
    pub alive: Set,
    /// Those that are being deleted.
    pub deleting: Set,
    /// Those of them with a Node by their nodeRef.
    pub with_node: Set,
}

impl Past {
    /// The present.
    #[must_use]
    pub fn of(machines: &[Machine; SLOTS]) -> Self {
        Self {
            alive: Set::of(|machine| machines[machine].life == Life::Alive),
            deleting: Set::of(|machine| machines[machine].life == Life::Deleting),
            with_node: Set::of(|machine| machines[machine].has_ref),
        }
    }

    /// The same, with these Machines as they are in `now`.
    pub(super) fn with(self, machines: Set, now: Self) -> Self {
        let mix = |then: Set, now: Set| then.without(machines) | (now & machines);
        Self {
            alive: mix(self.alive, now.alive),
            deleting: mix(self.deleting, now.deleting),
            with_node: mix(self.with_node, now.with_node),
        }
    }
}
