//! The memory of the copies of the program.

use super::{
    few::Few,
    set::{SLOTS, Set},
};

/// The memory of one copy of the program, which a crash takes away: the command that it carries out, and how what that
/// command knows compares with what is. A command knows tickets, generations and versions by numbers of its own, in the
/// order in which it has seen them, so that moments that differ in nothing else are one.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Memory {
    /// The command and the calls that it waits for, by its number among all that were met; 0 for none.
    pub held: u32,
    /// The Machines that its caller names.
    pub named: Set,
    /// The Machines that a caller names whose DeleteNodes joined.
    pub joined: Set,
    /// The placeholders that its caller names, or by how many a target size is to be smaller.
    pub asked: i8,
    /// The number by which it has lowered the size for placeholders.
    pub lowered: i8,
    /// The callers that have left, by their numbers.
    pub left: Set,
    /// The Machines that it is about to log.
    pub to_log: Set,
    /// True if it may yet look at Machines to decide what is logged.
    pub may_view: bool,
    /// True if it is between a count of placeholders and the end of the write that relies on it.
    pub is_counting: bool,
    /// The entries that it takes back, since their size is refused.
    pub refused: Set,
    /// The Machines that were alive when it marked them: it can't know that they are going by now.
    pub seen_alive: Set,
    /// True if a write of it has failed.
    pub has_failed: bool,
    /// The generation that it knows, by its own count.
    pub generation: u8,
    /// The number of sizes that were written since, 3 for more.
    pub behind: u8,
    /// The tickets that it knows.
    pub tickets: Few<u8, 8>,
    /// The versions of Machines that it knows, by its own count.
    pub versions: [u8; SLOTS],
    /// The Machines that haven't changed since it read their versions.
    pub is_read: Set,
    /// The identity under which it writes a size; 0 for none.
    pub writer: u8,
    /// For the variant that lists Machines before it views the group: the list.
    pub listed: Option<Listing>,
    /// For the variant that logs after the marks: the log that it views, by a fingerprint.
    pub pretends_at: Option<u32>,
}

/// A list of the Machines at the API server.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Listing {
    /// Those that aren't being deleted.
    pub alive: Set,
    /// Those that are being deleted and have their Node.
    pub draining: Set,
    /// Those that are being deleted and have none.
    pub hanging: Set,
}

impl Memory {
    /// True if it has no command.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.held == 0
    }

    /// A Machine has changed: a version that was read is an old one.
    pub(super) fn machine_changed(&mut self, machine: usize) {
        if self.is_read.has(machine) {
            self.is_read = self.is_read.without(Set::one(machine));
            self.versions[machine] += 1;
        }
    }
}
