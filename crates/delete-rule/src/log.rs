//! The log of the deletions that are on their way, as a value. How it is written as text is its user's.

use std::{collections::HashMap, fmt};

use crate::{Map, Named, Types};

/// The most Machines that a log names, written or read.
pub const MOST_ENTRIES: usize = 1_000;

/// The progress of a deletion.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Phase {
    /// It is decided, and the size doesn't say so yet.
    Wanted,
    /// The size is lowered by it.
    Lowered,
}

/// A Machine in the log.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry<T: Types> {
    /// Its name, in the group's namespace.
    pub name: T::Name,
    /// Its uid.
    pub uid: T::Uid,
    /// The acceptance that this is of.
    pub ticket: T::Ticket,
    /// The progress of its deletion.
    pub phase: Phase,
    /// True if it only steers which Machine goes for a smaller target size, and the Machine need not go.
    pub soft: bool,
    /// True if it was being deleted already when it was logged: that a new Machine would come in its place was found by
    /// counting the group's others.
    pub counted: bool,
    /// True if its caller named it by the id of an instance that never joined: it goes only as long as it has no Node.
    pub pending: bool,
}

impl<T: Types> Entry<T> {
    /// A new entry of a Machine.
    #[must_use]
    pub fn wanted(named: &Named<T>, ticket: &T::Ticket, soft: bool) -> Self {
        let Named { name, uid, never_joined } = named.clone();
        let pending = never_joined && !soft;
        Self { name, uid, ticket: ticket.clone(), phase: Phase::Wanted, soft, counted: false, pending }
    }

    /// Returns true if the Machine is given up as one that never joined, so that it stays if it has a Node when it is marked.
    #[must_use]
    pub fn gives_up(&self) -> bool {
        self.soft || self.pending
    }
}

/// The log of a group. No Machine is in it twice.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct Log<T: Types> {
    entries: Vec<Entry<T>>,
    /// The place of each Machine's entry.
    places: Map<T, usize>,
}

impl<T: Types> fmt::Debug for Log<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.entries).finish()
    }
}

impl<T: Types> Log<T> {
    /// All entries.
    #[must_use]
    pub fn entries(&self) -> &[Entry<T>] {
        &self.entries
    }

    /// Returns true if nothing is on its way.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entry of the Machine with this uid.
    #[must_use]
    pub fn get(&self, uid: &T::Uid) -> Option<&Entry<T>> {
        self.entries.get(*self.places.get(uid)?)
    }

    /// The number of deletions that the size doesn't say yet.
    #[must_use]
    pub fn wanted(&self) -> usize {
        self.entries.iter().filter(|entry| entry.phase == Phase::Wanted).count()
    }

    /// The number of Machines that it has room for, where names are as long as usual.
    #[must_use]
    pub fn room(&self) -> usize {
        MOST_ENTRIES.saturating_sub(self.entries.len())
    }

    /// Returns true if a ticket has entries.
    #[must_use]
    pub fn has(&self, ticket: &T::Ticket) -> bool {
        self.entries.iter().any(|entry| entry.ticket == *ticket)
    }

    /// The log with these entries too, none of which it may have yet.
    #[must_use]
    pub fn with(mut self, entries: impl IntoIterator<Item = Entry<T>>) -> Self {
        for entry in entries {
            debug_assert!(self.get(&entry.uid).is_none(), "{:?} is in the log already", entry.name);
            self.push(entry);
        }
        self
    }

    /// Adds an entry, of a Machine that has none.
    pub fn push(&mut self, entry: Entry<T>) {
        self.places.insert(entry.uid.clone(), self.entries.len());
        self.entries.push(entry);
    }

    /// The log in which these are lowered.
    #[must_use]
    pub fn lowered(mut self, is_such: impl Fn(&Entry<T>) -> bool) -> Self {
        for entry in self.entries.iter_mut().filter(|entry| is_such(entry)) {
            entry.phase = Phase::Lowered;
        }
        self
    }

    /// The log without these.
    #[must_use]
    pub fn without(mut self, is_such: impl Fn(&Entry<T>) -> bool) -> Self {
        self.entries.retain(|entry| !is_such(entry));
        let places = self.entries.iter().enumerate().map(|(place, entry)| (entry.uid.clone(), place));
        self.places = places.collect::<HashMap<_, _, _>>();
        self
    }
}
