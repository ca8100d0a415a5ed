//! The memory of the checker, and what it finds.

use super::set::Set;

/// The memory of the checker.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Ledger {
    /// Named by a command.
    pub named: Set,
    /// The command that named it was answered OK.
    pub accepted: Set,
    /// The size was lowered for it.
    pub paid: Set,
    /// The MachineSet controller chose it.
    pub chosen: Set,
    /// Someone else deleted it, or it went for someone else's smaller size.
    pub foreign: Set,
    /// Of these, those that a command had viewed and not logged yet.
    pub early: Set,
    /// Of these, those that went for someone else's smaller size.
    pub taken: Set,
    /// Those that need not have lowered the size, although their deletion is accepted: they went for another reason.
    pub excused: Set,
    /// The size as it should be.
    pub size: i8,
    /// Those that had a Node when they were marked, for an entry that gives up a Machine without one.
    pub joined_before: Set,
    /// Those that were marked for such an entry by a copy to which nothing had come of the Node that they had.
    pub unseen: Set,
    /// Those that a MachinePool's provider took against the marks.
    pub strayed: Set,
    /// In a rollout, those for which the size was lowered and no MachineSet is smaller yet.
    pub owed: Set,
    /// Those that are alive and have left the log as soft entries, while their mark may still be seen.
    pub left_softly: Set,
    /// Those created since placeholders were counted whose smaller size is on its way.
    pub came: Set,
    /// The number of placeholders whose smaller size is on its way.
    pub places: i8,
    /// The number of them for which a Machine with a Node went, since another one had come into the place.
    pub places_missed: i8,
    /// The number of Machines with a Node that may still be chosen although nobody named them.
    pub others: i8,
    /// A rule that broke in the last step.
    pub fault: Option<Fault>,
}

/// A violation that a step can cause.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Fault {
    /// The size was lowered twice for one Machine.
    PaidTwice(u8),
    /// A Machine with a Node was chosen that nobody named.
    TookAnother(u8),
    /// The deletion of a Machine was accepted and it is gone, and the size wasn't lowered for it.
    NotCounted(u8),
    /// A Machine that had its Node before it was marked goes for an entry of one that never joined.
    TookJoined(u8),
    /// The size was lowered for more placeholders than were named.
    TooManyPlaces,
    /// The size was lowered below min.
    BelowMin,
}
