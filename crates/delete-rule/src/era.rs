//! The maximum age of a view of Machines. An era begins when a group's spec changes, or its log changes in a way that
//! outdates older views. A watch of Machines that has reached the era's first version is as good as a read.

use crate::{Log, MOST_ENTRIES, Map, Policy, Rule, Types};

/// The maximum number of Machines that are remembered from a group's log.
const MOST_LOGGED: usize = 2 * MOST_ENTRIES;

/// A version of a group's object, as one copy of the program saw it.
#[derive(Clone, Copy, Debug)]
pub struct Version<'a, T: Types> {
    /// The uid of the object, which changes if the object is recreated under the same name.
    pub uid: &'a T::Uid,
    /// The generation of the spec.
    pub generation: i64,
    /// The resource version as a number; `None` if resource versions aren't numbers.
    pub number: Option<u64>,
    /// The log at this version.
    pub log: LogState<'a, T>,
}

/// The log of a version of the group's object.
#[derive(Clone, Copy, Debug)]
pub enum LogState<'a, T: Types> {
    /// There is no log.
    None,
    /// The log was read.
    Read(&'a Log<T>),
    /// There is a log that wasn't read: it is too large, or was out of scope.
    Unread,
}

/// The era of a group as far as one copy saw it: the time since which its spec is unchanged and no Machine was counted
/// for an entry of its log.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Era<T: Types> {
    uid: T::Uid,
    generation: i64,
    /// The first version seen of this generation, or a later one at which older views of Machines became out of date:
    /// the log gained a counted entry, lost a soft one, could be read again, or the remembered Machines were pruned.
    /// `None` if resource versions aren't numbers.
    since: Option<u64>,
    /// The Machines that were in the log in any version seen, with the last ticket; some of them have left the log.
    logged: Map<T, T::Ticket>,
    /// The soft entries that are in the log, with the last version that had them. When one leaves the log, its smaller
    /// size may have been spent on another Machine, which an older view still shows alive.
    soft: Map<T, u64>,
    /// The latest version seen.
    latest: u64,
    /// The latest version whose log wasn't read, because it was too large or out of scope. The entries it had, and
    /// which of them have left since, are unknown.
    unread: Option<u64>,
}

impl<T: Types> Era<T> {
    /// Creates the era of a group that is seen for the first time; call [`Rule::see`] with the version next.
    #[must_use]
    pub fn new(version: &Version<'_, T>) -> Self {
        Self {
            uid: version.uid.clone(),
            generation: version.generation,
            since: version.number,
            logged: Map::<T, _>::default(),
            soft: Map::<T, _>::default(),
            latest: 0,
            unread: None,
        }
    }

    /// Returns the generation that this era is about.
    #[must_use]
    pub fn generation(&self) -> i64 {
        self.generation
    }

    /// Returns the version at which the era begins; `None` if resource versions aren't numbers.
    #[must_use]
    pub fn since(&self) -> Option<u64> {
        self.since
    }

    /// Returns true if a Machine was in the log in any version seen.
    #[must_use]
    pub fn has_logged(&self, uid: &T::Uid) -> bool {
        self.logged.contains_key(uid)
    }

    /// Returns the number of Machines that are remembered from the log.
    #[must_use]
    pub fn remembered(&self) -> usize {
        self.logged.len()
    }
}

impl<P: Policy> Rule<P> {
    /// Returns the version that a watch must have reached to be trusted about a Machine that isn't in the log; `None`
    /// if the Machine must be read from the API server.
    pub fn believed_since<T: Types>(self, era: &Era<T>, uid: &T::Uid) -> Option<u64> {
        if era.has_logged(uid) && self.0.reads_what_left() { None } else { era.since }
    }

    /// Updates the era with an observed version. A version that arrives late doesn't move the era back.
    pub fn see<T: Types>(self, era: &mut Era<T>, version: &Version<'_, T>) {
        if era.uid != *version.uid || era.generation < version.generation {
            *era = Era::new(version);
        }
        if era.generation != version.generation {
            return;
        }
        let Some(number) = version.number else {
            era.since = None;
            return;
        };
        era.latest = era.latest.max(number);
        let none = Log::default();
        let log = match version.log {
            LogState::None => &none,
            LogState::Read(log) => log,
            LogState::Unread => {
                era.unread = era.unread.max(Some(number));
                return;
            }
        };
        let mut is_news = era.unread.take_if(|unread| *unread <= number).is_some();
        for entry in log.entries() {
            let ticket = era.logged.insert(entry.uid.clone(), entry.ticket.clone());
            is_news |= entry.counted && ticket.as_ref() != Some(&entry.ticket) && self.0.minds_counted_entries();
            if entry.soft {
                era.soft.insert(entry.uid.clone(), number);
            }
        }
        era.soft.retain(|uid, since| {
            let has_left = *since < number && log.get(uid).is_none_or(|entry| !entry.soft);
            is_news |= has_left && self.0.minds_soft_entries();
            !has_left
        });
        // Annotations could make this memory grow without bound. Machines that left the log before this version can be
        // forgotten, because no view from before it is trusted any more.
        if era.logged.len() > MOST_LOGGED && number == era.latest {
            era.logged.retain(|uid, _| log.get(uid).is_some());
            is_news = true;
        }
        if is_news {
            era.since = era.since.map(|since| since.max(number));
        }
    }
}
