//! The marks that a command has set.

use super::Calls;
use crate::{Entry, Life, Map, Set};

/// The Machines that a command has marked, and those that it couldn't mark.
#[derive(Clone, Debug)]
pub struct Marked<T: Calls> {
    /// The ticket of each Machine's mark.
    pub(super) tickets: Map<T, T::Ticket>,
    /// The marked Machines that are being deleted or gone.
    pub(super) deleted_elsewhere: Set<T>,
    /// The Machines that couldn't be marked, with the reason.
    pub(super) failures: Map<T, NotMarked<T>>,
}

/// The reason why a Machine wasn't marked.
#[derive(Clone, Debug)]
pub enum NotMarked<T: Calls> {
    /// A call failed.
    Failed(T::Failed),
    /// The entry requires that the Machine never joined, but it has a Node now.
    Joined,
    /// The entry is soft, and something else deletes its Machine: the smaller size would remove another Machine.
    DeletedElsewhere,
}

impl<T: Calls> Default for Marked<T> {
    fn default() -> Self {
        Self {
            tickets: Map::<T, _>::default(),
            deleted_elsewhere: Set::<T>::default(),
            failures: Map::<T, _>::default(),
        }
    }
}

impl<T: Calls> Marked<T> {
    /// Records the outcome of a mark.
    pub(super) fn took(&mut self, entry: Entry<T>, outcome: Result<Life, NotMarked<T>>) {
        match outcome {
            Ok(life) => {
                if life != Life::Alive {
                    self.deleted_elsewhere.insert(entry.uid.clone());
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
