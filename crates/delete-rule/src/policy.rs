//! The seam for tests of the rule: each step that could be left out is a question to a policy. The program's answers are
//! constants, which cost nothing; the model explores the rule with one of them changed.

use std::fmt::Debug;

/// The steps of the rule. Each has the rule's own answer unless a test gives another.
pub trait Policy: Copy + Debug {
    /// An entry that was counted makes older views of Machines out of date when the log gains it.
    fn minds_counted_entries(self) -> bool {
        true
    }

    /// A soft entry makes older views of Machines out of date when it leaves the log.
    fn minds_soft_entries(self) -> bool {
        true
    }

    /// A Machine that has left the log is read from the API server.
    fn reads_what_left(self) -> bool {
        true
    }

    /// A named Machine that is gone needs nothing.
    fn spares_gone(self) -> bool {
        true
    }

    /// A named Machine that is being deleted lowers the size only where it would be replaced.
    fn counts_deleting(self) -> bool {
        true
    }

    /// An entry, a mark and a copy of the log are about one acceptance, by its ticket.
    fn compares_tickets(self) -> bool {
        true
    }

    /// The size is lowered only for Machines that are marked.
    fn marks(self) -> bool {
        true
    }

    /// A Machine that is given up as one that never joined is marked only while it has no Node.
    fn spares_joined(self) -> bool {
        true
    }

    /// An entry whose Machine was there when it was logged lowers the size, also if it is gone when it is to be marked.
    fn lowers_for_gone(self) -> bool {
        true
    }

    /// An entry whose Machine goes by itself lowers the size only while its place is open.
    fn counts_going(self) -> bool {
        true
    }

    /// Placeholders are counted without the Machines that the log takes.
    fn counts_by_log(self) -> bool {
        true
    }

    /// A soft entry that is lowered doesn't take its Machine from those that stay.
    fn counts_soft_as_staying(self) -> bool {
        true
    }

    /// A lost answer of a size write is cleared up by who wrote the size last.
    fn knows_own_writes(self) -> bool {
        true
    }

    /// Any copy carries on with what is wanted, whoever logged it.
    fn carries_on(self) -> bool {
        true
    }

    /// A smaller size is followed only when the controller of its MachineSet has seen it.
    fn waits_until_seen(self) -> bool {
        true
    }

    /// A Machine that a smaller size has left is deleted by name.
    fn deletes_by_name(self) -> bool {
        true
    }

    /// A Machine is deleted by name only when all entries of the log are followed.
    fn waits_for_others(self) -> bool {
        true
    }

    /// The moment at which an entry leaves the log.
    fn forgets(self) -> Forgets {
        Forgets::GoneAndFollowed
    }

    /// A soft entry of a Machine that is alive stays until no more Machines are alive than the size says.
    fn waits_for_soft(self) -> bool {
        true
    }

    /// Marks of ours that belong to no entry are taken off.
    fn takes_marks_off(self) -> bool {
        true
    }

    /// A Machine with an entry whose mark is of another ticket is marked again.
    fn marks_again(self) -> bool {
        true
    }
}

/// The whole rule.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Complete;

impl Policy for Complete {}

/// The moment at which an entry leaves the log.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Forgets {
    /// The API server says that its Machine is gone, and its smaller size is followed.
    GoneAndFollowed,
    /// The API server says that its Machine is gone.
    Gone,
    /// A cache says that its Machine is being deleted.
    Deleting,
    /// A cache doesn't have its Machine.
    Absent,
}
