//! The states of single Machines, and the decision if one may be marked.

use crate::{Entry, Policy, Rule, Types};

/// The life of a Machine at a moment since which the group's size is unchanged.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Life {
    /// The Machine exists, and isn't being deleted.
    Alive,
    /// The Machine is being deleted.
    Deleting,
    /// No Machine with this name and uid exists.
    Gone,
}

/// A Machine that a request names.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Named<T: Types> {
    /// The name, in the group's namespace.
    pub name: T::Name,
    /// The uid.
    pub uid: T::Uid,
    /// True if the Machine is given up as one that never joined: it was named by the id of such an instance, or chosen
    /// for a smaller target size.
    pub never_joined: bool,
}

/// The decision about the mark of a wanted entry whose Machine is given up as one that never joined.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Marking {
    /// The Machine is to be marked; while it is alive, the write tests the version in which it has no Node.
    Mark,
    /// The Machine has the entry's mark, and keeps entry and mark even if it has joined since: a smaller size may
    /// already be on its way to take it. Without its entry it would be a Machine that nobody has named, and without its
    /// mark that size would take another one.
    Marked,
    /// The Machine is gone and needs no mark.
    NotNeeded,
    /// The Machine has joined by now, and its entry is taken back.
    Joined,
    /// The entry was only to steer which Machine goes, and its Machine goes by itself: the smaller size would take
    /// another one.
    Going,
}

impl<P: Policy> Rule<P> {
    /// Decides about the mark of a wanted entry from a read of its Machine: `has_node` matters only while it is alive,
    /// and `mark` is the ticket of its mark.
    pub fn marking<T: Types>(self, entry: &Entry<T>, life: Life, has_node: bool, mark: Option<&T::Ticket>) -> Marking {
        let is_spared = entry.gives_up() && self.0.spares_joined();
        match life {
            Life::Alive | Life::Deleting if mark == Some(&entry.ticket) => Marking::Marked,
            Life::Gone | Life::Deleting if entry.soft && is_spared => Marking::Going,
            Life::Gone => Marking::NotNeeded,
            Life::Alive if has_node && is_spared => Marking::Joined,
            Life::Deleting | Life::Alive => Marking::Mark,
        }
    }

    /// Returns true if a soft entry is over: its Machine is going, or the group has no more Machines alive than the
    /// size of its MachineSets. Until then the retry of a failed reconcile may still have to take a Machine, and the
    /// marks say which one.
    pub fn is_soft_over(self, is_alive: bool, alive: usize, size: i64) -> bool {
        !is_alive || crate::as_i64(alive) <= size || !self.0.waits_for_soft()
    }
}
