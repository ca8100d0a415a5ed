//! The states of single Machines, and the decision whether one may be marked.

use crate::{Entry, Policy, Rule, Types};

/// The life of a Machine, as of a moment since which the group's size is what it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Life {
    /// It is there, and isn't being deleted.
    Alive,
    /// It is being deleted.
    Deleting,
    /// There is none of its name and uid.
    Gone,
}

/// A Machine that a request names.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Named<T: Types> {
    /// Its name, in the group's namespace.
    pub name: T::Name,
    /// Its uid.
    pub uid: T::Uid,
    /// True if it is given up as one that never joined: named by the id of such an instance, or chosen for a smaller
    /// target size.
    pub never_joined: bool,
}

/// The decision about the mark of a wanted entry whose Machine was given up as one that never joined.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Marking {
    /// It is marked; while it is alive, the mark tests the version in which it has no Node.
    Mark,
    /// It has the entry's mark, be it joined since or not: a smaller size that is on its way may take it already. Without its
    /// entry it would be one that nobody has named, and without its mark that size would take another.
    Marked,
    /// It is gone, and needs no mark.
    NotNeeded,
    /// It has a Node by now, and its entry is taken back.
    Joined,
    /// It was to steer which Machine goes, and goes by itself: the smaller size would take another.
    Going,
}

impl<P: Policy> Rule<P> {
    /// Decides about the mark of a wanted entry, by a read of its Machine, which may have a Node while it is alive, and
    /// may have a mark of this ticket unless it is gone.
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

    /// Returns true if the Machine of a soft entry has nothing left to go for: it goes, or no more Machines of the group are
    /// alive than its MachineSets' size. Until then a reconcile that failed may still have to take one, and marks say which.
    pub fn is_soft_over(self, is_alive: bool, alive: usize, size: i64) -> bool {
        !is_alive || crate::as_i64(alive) <= size || !self.0.waits_for_soft()
    }
}
