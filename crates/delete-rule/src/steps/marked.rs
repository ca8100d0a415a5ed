//! The marks of a command's Machines.

use super::Calls;
use crate::{Entry, Life, Map, Set};

/// The Machines of entries that are marked, and those that couldn't be.
#[derive(Clone, Debug)]
pub struct Marked<T: Calls> {
    /// Each Machine, with the ticket that its mark has.
    pub(super) tickets: Map<T, T::Ticket>,
    /// Those of them that are being deleted or gone.
    pub(super) going: Set<T>,
    /// The Machines that couldn't be marked.
    pub(super) failures: Map<T, NotMarked<T>>,
}

/// The reason for which a Machine wasn't marked.
#[derive(Clone, Debug)]
pub enum NotMarked<T: Calls> {
    /// A call failed.
    Failed(T::Failed),
    /// It is given up as one that never joined, and has a Node by now.
    Joined,
    /// It was to steer which Machine goes, and goes by itself: the smaller size would take another.
    Going,
}

impl<T: Calls> Default for Marked<T> {
    fn default() -> Self {
        Self { tickets: Map::<T, _>::default(), going: Set::<T>::default(), failures: Map::<T, _>::default() }
    }
}

impl<T: Calls> Marked<T> {
    /// Takes the outcome of a mark.
    pub(super) fn took(&mut self, entry: Entry<T>, outcome: Result<Life, NotMarked<T>>) {
        match outcome {
            Ok(life) => {
                if life != Life::Alive {
                    self.going.insert(entry.uid.clone());
                }
                self.tickets.insert(entry.uid, entry.ticket);
            }
            Err(failure) => {
                self.failures.insert(entry.uid, failure);
            }
        }
    }

    /// Returns true if the Machine of an entry has its mark, or needs none.
    pub(super) fn has(&self, entry: &Entry<T>) -> bool {
        self.tickets.get(&entry.uid) == Some(&entry.ticket)
    }
}
