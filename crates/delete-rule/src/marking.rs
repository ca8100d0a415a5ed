//! The decision if the Machine of an entry may be marked.

use crate::{Entry, Life, Policy, Rule, Types};

/// The decision about the mark of a wanted entry whose Machine is given up as one that never joined.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Marking {
    /// The Machine must be marked. While it is alive, the write tests the version in which it has no Node.
    Mark,
    /// The Machine has the entry's mark. Entry and mark stay even if the Machine has joined since, because a smaller
    /// size may already be removing it. Without the mark, that size would remove another Machine; without the entry, it
    /// would remove a Machine that no request named.
    Marked,
    /// The Machine is gone and needs no mark.
    NotNeeded,
    /// The Machine has joined in the meantime, and its entry is removed.
    Joined,
    /// The entry is soft, and something else deletes its Machine: the smaller size would remove another Machine.
    DeletedElsewhere,
}

impl<P: Policy> Rule<P> {
    /// Decides about the mark of a wanted entry from a read of its Machine: `has_node` matters only while it is alive,
    /// and `mark` is the ticket of its mark.
    pub fn marking<T: Types>(self, entry: &Entry<T>, life: Life, has_node: bool, mark: Option<&T::Ticket>) -> Marking {
        let is_spared = entry.gives_up() && self.0.spares_joined();
        match life {
            Life::Alive | Life::Deleting if mark == Some(&entry.ticket) => Marking::Marked,
            Life::Gone | Life::Deleting if entry.soft && is_spared => Marking::DeletedElsewhere,
            Life::Gone => Marking::NotNeeded,
            Life::Alive if has_node && is_spared => Marking::Joined,
            Life::Deleting | Life::Alive => Marking::Mark,
        }
    }

    /// Returns true if a soft entry is finished: its Machine isn't alive, or the group has no more live Machines than
    /// the size of its MachineSets. Until then, the retry of a failed reconcile may still delete a Machine, which the
    /// marks choose.
    pub(crate) fn is_soft_over(self, is_alive: bool, alive: usize, size: i64) -> bool {
        !is_alive || crate::as_i64(alive) <= size || !self.0.waits_for_soft()
    }
}
