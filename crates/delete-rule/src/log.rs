//! The log of a group's pending deletions, as a value. Its text form is up to its user.

use std::{collections::HashMap, fmt};

use crate::{Map, Named, Types};

/// The maximum number of Machines in a log, written or read.
pub const MOST_ENTRIES: usize = 1_000;

/// The progress of a deletion.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Phase {
    /// The deletion is decided, and the size isn't lowered yet.
    Wanted,
    /// The size is lowered for it.
    Lowered,
}

/// The log entry of a Machine.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry<T: Types> {
    /// The Machine's name, in the group's namespace.
    pub name: T::Name,
    /// The Machine's uid.
    pub uid: T::Uid,
    /// The acceptance that the entry belongs to.
    pub ticket: T::Ticket,
    /// The progress of the deletion.
    pub phase: Phase,
    /// True if the entry only chooses the Machine to delete for a smaller target size, so that the Machine may stay
    /// after all.
    pub soft: bool,
    /// True if the Machine was already being deleted when it was logged: counting the group's other Machines has shown
    /// that it would be replaced.
    pub counted: bool,
    /// True if the caller named the Machine by the id of an instance that never joined: it is deleted only while it has
    /// no Node.
    pub pending: bool,
}

impl<T: Types> Entry<T> {
    /// Creates the entry of a Machine whose deletion is decided.
    #[must_use]
    pub fn wanted(named: &Named<T>, ticket: &T::Ticket, soft: bool) -> Self {
        let Named { name, uid, never_joined } = named.clone();
        let pending = never_joined && !soft;
        Self { name, uid, ticket: ticket.clone(), phase: Phase::Wanted, soft, counted: false, pending }
    }

    /// Returns true if the Machine is given up as one that never joined, so that it stays if it has a Node when it is
    /// marked.
    #[must_use]
    pub fn gives_up(&self) -> bool {
        self.soft || self.pending
    }
}

/// The log of a group, with at most one entry per Machine.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct Log<T: Types> {
    entries: Vec<Entry<T>>,
    /// The index of each Machine's entry.
    places: Map<T, usize>,
}

impl<T: Types> fmt::Debug for Log<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.entries).finish()
    }
}

impl<T: Types> Log<T> {
    /// Returns all entries.
    #[must_use]
    pub fn entries(&self) -> &[Entry<T>] {
        &self.entries
    }

    /// Returns true if no deletion is pending.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the entry of the Machine with this uid.
    #[must_use]
    pub fn get(&self, uid: &T::Uid) -> Option<&Entry<T>> {
        self.entries.get(*self.places.get(uid)?)
    }

    /// Returns the number of deletions for which the size isn't lowered yet.
    #[must_use]
    pub fn wanted(&self) -> usize {
        self.entries.iter().filter(|entry| entry.phase == Phase::Wanted).count()
    }

    /// Returns the number of Machines that still fit, if their names have the usual length.
    #[must_use]
    pub fn free_entries(&self) -> usize {
        MOST_ENTRIES.saturating_sub(self.entries.len())
    }

    /// Returns true if a ticket has entries.
    #[must_use]
    pub fn has(&self, ticket: &T::Ticket) -> bool {
        self.entries.iter().any(|entry| entry.ticket == *ticket)
    }

    /// Returns the log with these entries added, none of which it may have yet.
    #[must_use]
    pub fn with(mut self, entries: impl IntoIterator<Item = Entry<T>>) -> Self {
        for entry in entries {
            self.push(entry);
        }
        self
    }

    /// Adds an entry, in a time that doesn't grow with the log.
    ///
    /// # Errors
    /// The entry, if its Machine has one already.
    pub fn try_push(&mut self, entry: Entry<T>) -> Result<(), Entry<T>> {
        if self.get(&entry.uid).is_some() {
            return Err(entry);
        }
        self.push(entry);
        Ok(())
    }

    /// Adds the entry of a Machine that has none.
    pub fn push(&mut self, entry: Entry<T>) {
        debug_assert!(self.get(&entry.uid).is_none(), "{:?} is in the log already", entry.name);
        self.places.insert(entry.uid.clone(), self.entries.len());
        self.entries.push(entry);
    }

    /// Removes all entries but the first `count`.
    pub(crate) fn truncate(&mut self, count: usize) {
        for entry in self.entries.drain(count.min(self.entries.len())..) {
            self.places.remove(&entry.uid);
        }
    }

    /// Returns the log with these entries lowered.
    #[must_use]
    pub fn lowered(mut self, is_such: impl Fn(&Entry<T>) -> bool) -> Self {
        for entry in self.entries.iter_mut().filter(|entry| is_such(entry)) {
            entry.phase = Phase::Lowered;
        }
        self
    }

    /// Returns the log without these entries.
    #[must_use]
    pub fn without(mut self, is_such: impl Fn(&Entry<T>) -> bool) -> Self {
        self.entries.retain(|entry| !is_such(entry));
        let places = self.entries.iter().enumerate().map(|(place, entry)| (entry.uid.clone(), place));
        self.places = places.collect::<HashMap<_, _, _>>();
        self
    }
}
