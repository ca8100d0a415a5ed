//! The memory of the copies of the program.

use super::{
    ring::Ring,
    running::{Running, Stage},
    set::{SLOTS, Set},
};

/// The memory of one copy of the program, which a crash clears: the command in progress, and how its knowledge compares
/// with the world. A command numbers tickets, generations and versions in the order in which it has seen them, so that
/// states that differ in nothing else are equal.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Memory {
    /// The number of the command and the calls that it waits for, among all distinct ones; 0 for none.
    pub held: u32,
    /// The command of the simple rule, if that is searched.
    pub running: Running,
    /// The Machines that carry the mark of this command.
    pub marked: Set,
    /// The Machines that its caller names.
    pub named: Set,
    /// The Machines that the caller of a joined DeleteNodes names.
    pub joined: Set,
    /// The number of placeholders that its caller names, or the number by which a target size is to be lowered.
    pub asked: i8,
    /// The number by which it has lowered the size for placeholders.
    pub lowered: i8,
    /// The callers that have left, by their numbers.
    pub left: Set,
    /// The Machines that it is about to log.
    pub to_log: Set,
    /// True if it may still read Machines to decide which are logged.
    pub may_view: bool,
    /// True if it is between a count of placeholders and the end of the write that relies on it.
    pub is_counting: bool,
    /// The entries that it takes back because their size is refused.
    pub refused: Set,
    /// The Machines that were alive when it marked them: it can't know that they are going by now.
    pub seen_alive: Set,
    /// The generation that it knows, by its own numbering.
    pub generation: u8,
    /// The number of sizes that were written since, at most 3.
    pub behind: u8,
    /// The tickets that it knows.
    pub tickets: Ring<u8, 8>,
    /// The versions of Machines that it knows, by its own numbering.
    pub versions: [u8; SLOTS],
    /// The Machines that haven't changed since it read their versions.
    pub is_read: Set,
    /// The identity under which it writes a size; 0 for none.
    pub writer: u8,
    /// The list, for the variant that lists Machines before it views the group.
    pub listed: Option<Listing>,
    /// A fingerprint of the log that it views, for the variant that logs after the marks.
    pub pretends_at: Option<u32>,
}

/// A list of the Machines at the API server.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Listing {
    /// The Machines that aren't being deleted.
    pub alive: Set,
    /// The Machines that are being deleted and have their Node.
    pub draining: Set,
    /// The Machines that are being deleted and have no Node.
    pub hanging: Set,
}

impl Memory {
    /// Returns true if it has no command.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.held == 0 && self.running.stage == Stage::Idle
    }

    /// Notes that a Machine has changed, so that a version that was read is outdated.
    pub(super) fn machine_changed(&mut self, machine: usize) {
        self.running.current = self.running.current.without(Set::one(machine));
        if self.is_read.has(machine) {
            self.is_read = self.is_read.without(Set::one(machine));
            self.versions[machine] += 1;
        }
    }
}
