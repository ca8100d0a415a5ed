//! The objects at the API server, and their views in caches.

use super::set::{SLOTS, Set};

/// The life of a Machine.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq, PartialOrd)]
pub enum Life {
    /// Not created yet.
    #[default]
    Unborn,
    /// Created, and not being deleted.
    Alive,
    /// Its deletionTimestamp is set; a MachineSet still counts it.
    Deleting,
    /// Gone.
    Gone,
}

/// A Machine. Its name is never reused, so that it stands for the uid as well.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Machine {
    /// The life of the Machine.
    pub life: Life,
    /// The ticket in its delete-machine annotation, or 0.
    pub mark: u8,
    /// True if it has a Node.
    pub has_node: bool,
    /// True if its `nodeRef` is set.
    pub has_ref: bool,
    /// True if it belongs to the old MachineSet of a rollout.
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
    /// Its deletion is decided, and the size isn't lowered yet.
    Wanted,
    /// The size is lowered for it.
    Lowered,
}

/// A Machine's entry in the log.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a field of the log's own")]
pub struct Entry {
    /// The progress of the deletion.
    pub phase: Phase,
    /// The number of its acceptance, which the mark carries too.
    pub ticket: u8,
    /// True if it only steers which Machine goes for a smaller target size, so that its Machine need not go.
    pub is_soft: bool,
    /// True if the Machine was given up as one that never joined, so that it must have no Node when it is marked; true
    /// for soft entries.
    pub never_joined: bool,
    /// True if the Machine was being deleted when it was logged, and was counted then.
    pub is_counted: bool,
}

/// A MachineDeployment as its controller sees it.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Deployment {
    /// The `spec.replicas`.
    pub replicas: i8,
    /// The Machines of the log's lowered entries.
    pub lowered: Set,
    /// The Machines of earlier lowered entries that have been logged again since, under another ticket.
    pub stale: Set,
    /// The index in `seen` of the snapshot of Machines that was the newest when this version was written.
    pub since: u8,
}

/// A MachineSet, with the values copied from its MachineDeployment.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct MachineSet {
    /// The values that were copied.
    pub copied: Deployment,
    /// The `spec.replicas`, which differs from the copied size only during a rollout.
    pub size: i8,
    /// During a rollout, the entries that were lowered in the version of the MachineDeployment for which its size was
    /// chosen.
    pub given: Set,
    /// The `metadata.generation`, counted from the oldest version that is kept.
    pub generation: u8,
}

/// A snapshot of all Machines in the MachineSet controller's cache.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct CacheView {
    /// The Machines that exist, including those being deleted.
    pub existing: Set,
    /// Those that are being deleted.
    pub deleting: Set,
    /// The Machines with the delete-machine annotation.
    pub marked: Set,
    /// The Machines with a Node by their `nodeRef`.
    pub with_node: Set,
}

impl CacheView {
    /// Returns the snapshot of only these Machines.
    #[must_use]
    pub fn only(self, machines: Set) -> Self {
        let Self { existing, deleting, marked, with_node } = self;
        let (existing, deleting) = (existing & machines, deleting & machines);
        Self { existing, deleting, marked: marked & machines, with_node: with_node & machines }
    }

    /// Creates a snapshot of the Machines.
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

/// All Machines at one moment, as the program's cache may show them.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Past {
    /// The Machines that exist and aren't being deleted.
    pub alive: Set,
    /// Those that are being deleted.
    pub deleting: Set,
    /// The Machines with a Node by their `nodeRef`.
    pub with_node: Set,
}

impl Past {
    /// Creates the view of the present.
    #[must_use]
    pub fn of(machines: &[Machine; SLOTS]) -> Self {
        Self {
            alive: Set::of(|machine| machines[machine].life == Life::Alive),
            deleting: Set::of(|machine| machines[machine].life == Life::Deleting),
            with_node: Set::of(|machine| machines[machine].has_ref),
        }
    }

    /// Returns this view with these Machines as they are in `now`.
    pub(super) fn with(self, machines: Set, now: Self) -> Self {
        let mix = |then: Set, now: Set| then.without(machines) | (now & machines);
        Self {
            alive: mix(self.alive, now.alive),
            deleting: mix(self.deleting, now.deleting),
            with_node: mix(self.with_node, now.with_node),
        }
    }
}
