//! The memory of the checker, and the violations that it finds.

use super::set::Set;

/// The memory of the checker: sets of Machines, and counters.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Ledger {
    /// The Machines that a command named.
    pub named: Set,
    /// The Machines whose command was answered OK.
    pub accepted: Set,
    /// The Machines for which the size was lowered.
    pub paid: Set,
    /// The Machines that the MachineSet controller chose.
    pub chosen: Set,
    /// The Machines that somebody else deleted, or that went for somebody else's smaller size.
    pub foreign: Set,
    /// The Machines of `foreign` that a command had viewed and not logged yet.
    pub early: Set,
    /// The Machines of `foreign` that went for somebody else's smaller size.
    pub taken: Set,
    /// The Machines whose accepted deletion needs no smaller size, since they were deleted for another reason.
    pub excused: Set,
    /// The expected size.
    pub size: i8,
    /// The Machines that had a Node when they were marked, for an entry that gives up a Machine as one without a Node.
    pub joined_before: Set,
    /// The Machines that were marked for such an entry by a copy that couldn't know of their Node yet.
    pub unseen: Set,
    /// The Machines that a MachinePool's provider took against the marks.
    pub strayed: Set,
    /// During a rollout, the Machines for which the size was lowered while no MachineSet is smaller yet.
    pub owed: Set,
    /// The live Machines whose soft entries have left the log, while a controller may still see their mark.
    pub left_softly: Set,
    /// The Machines created since placeholders were counted, while the smaller size for these is in flight.
    pub came: Set,
    /// The number of placeholders whose smaller size is in flight.
    pub places: i8,
    /// The number of these for which a Machine with a Node was deleted, because a new Machine had replaced them.
    pub places_missed: i8,
    /// The number of Machines with a Node that may still be chosen although nobody named them.
    pub others: i8,
    /// The violation that the last step caused.
    pub fault: Option<Fault>,
}

/// A violation that a step can cause.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Fault {
    /// The size was lowered twice for one Machine.
    PaidTwice(u8),
    /// The controller chose a Machine with a Node that no command named.
    TookAnother(u8),
    /// The deletion of a Machine was accepted and it is gone, and the size wasn't lowered for it.
    NotCounted(u8),
    /// A Machine that had its Node before it was marked is deleted for an entry that says it never joined.
    TookJoined(u8),
    /// The size was lowered for more placeholders than were named.
    TooManyPlaces,
    /// The size was lowered below min.
    BelowMin,
}
