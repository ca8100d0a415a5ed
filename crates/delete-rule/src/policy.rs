//! The test seam of the rule: each step that could be left out is a method of a policy. The program's policy returns
//! constants, which cost nothing; the model explores the rule with one of them changed.

use std::fmt::Debug;

/// The steps of the rule. Each method returns the rule's own answer unless a test overrides it.
pub trait Policy: Copy + Debug {
    /// Returns true if older views of Machines are out of date once the log gains an entry that was counted.
    fn minds_counted_entries(self) -> bool {
        true
    }

    /// Returns true if older views of Machines are out of date once a soft entry leaves the log.
    fn minds_soft_entries(self) -> bool {
        true
    }

    /// Returns true if a Machine that has left the log is read from the API server.
    fn reads_what_left(self) -> bool {
        true
    }

    /// Returns true if a named Machine that is gone needs nothing.
    fn spares_gone(self) -> bool {
        true
    }

    /// Returns true if a named Machine that is being deleted lowers the size only if it would be replaced.
    fn counts_deleting(self) -> bool {
        true
    }

    /// Returns true if an entry, a mark and a copy of the log are matched to one acceptance by its ticket.
    fn compares_tickets(self) -> bool {
        true
    }

    /// Returns true if the watch of the Nodes is checked once more before a mark that tests a version read earlier.
    fn marks_look_again(self) -> bool {
        true
    }

    /// Returns true if the size is lowered only for Machines that are marked.
    fn marks(self) -> bool {
        true
    }

    /// Returns true if a Machine that is given up as one that never joined is marked only while it has no Node.
    fn spares_joined(self) -> bool {
        true
    }

    /// Returns true if an entry whose Machine existed when it was logged lowers the size even if the Machine is gone
    /// when it is to be marked.
    fn lowers_for_gone(self) -> bool {
        true
    }

    /// Returns true if an entry whose Machine something else deletes lowers the size only while its place is open.
    fn counts_deleted_elsewhere(self) -> bool {
        true
    }

    /// Returns true if placeholders are counted without the Machines that the log takes.
    fn counts_by_log(self) -> bool {
        true
    }

    /// Returns true if placeholders are counted again at each decision after the first.
    fn counts_again(self) -> bool {
        true
    }

    /// Returns true if a size that depends on counted Machines is written only if spec and log are those that were
    /// counted for.
    fn tests_count(self) -> bool {
        true
    }

    /// Returns true if the Machine of a lowered soft entry still counts as one that stays.
    fn counts_soft_as_staying(self) -> bool {
        true
    }

    /// Returns true if the last writer of the size decides the fate of a size write whose response was lost.
    fn knows_own_writes(self) -> bool {
        true
    }

    /// Returns true if any copy carries on with wanted entries, whoever logged them.
    fn carries_on(self) -> bool {
        true
    }

    /// Returns true if a smaller size counts as followed only once the controller of its MachineSet has observed it.
    fn waits_until_seen(self) -> bool {
        true
    }

    /// Returns true if a smaller size counts as followed only once the copied log has the entry as lowered; otherwise
    /// once the MachineSet has the size that was copied.
    fn waits_for_log(self) -> bool {
        true
    }

    /// Returns true if, during a rollout, a smaller size counts as followed only once a single MachineSet has replicas,
    /// and has the size that was copied with the log.
    fn waits_until_alone(self) -> bool {
        true
    }

    /// Returns true if a Machine of a MachinePool is left to its provider for a time, before it is deleted by name.
    fn leaves_to_provider(self) -> bool {
        true
    }

    /// Returns true if a Machine that should have gone for a smaller size is deleted by name.
    fn deletes_by_name(self) -> bool {
        true
    }

    /// Returns true if a Machine is deleted by name only when all entries of the log are followed.
    fn waits_for_others(self) -> bool {
        true
    }

    /// Returns the condition under which an entry leaves the log.
    fn forgets(self) -> Forgets {
        Forgets::GoneAndFollowed
    }

    /// Returns true if a soft entry of a Machine that is alive stays until no more Machines are alive than the size
    /// says.
    fn waits_for_soft(self) -> bool {
        true
    }

    /// Returns true if marks of ours that belong to no entry are removed.
    fn takes_marks_off(self) -> bool {
        true
    }

    /// Returns true if a Machine with an entry is marked again if its mark has another ticket.
    fn marks_again(self) -> bool {
        true
    }
}

/// The whole rule, with all of its steps.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Complete;

impl Policy for Complete {}

/// The condition under which an entry leaves the log.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Forgets {
    /// A read from the API server shows that its Machine is gone, and its smaller size is followed.
    GoneAndFollowed,
    /// A read from the API server shows that its Machine is gone.
    Gone,
    /// A cache shows that its Machine is being deleted.
    Deleting,
    /// A cache doesn't have its Machine.
    Absent,
}
