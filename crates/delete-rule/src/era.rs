//! The age of what may be believed of Machines: since when a group's spec is what it is, and nobody has been counted for its
//! log. A watch of Machines that has come so far is as good as a read.

use crate::{Log, MOST_ENTRIES, Map, Policy, Rule, Types};

/// The most Machines that are remembered to have been in a group's log.
const MOST_LOGGED: usize = 2 * MOST_ENTRIES;

/// A version of a group's object, as one copy of the program saw it.
#[derive(Clone, Copy, Debug)]
pub struct Version<'a, T: Types> {
    /// The object: one that was made anew under the same name is another.
    pub uid: &'a T::Uid,
    /// The version of its spec.
    pub generation: i64,
    /// The number of the write that made it; `None` where versions are no numbers.
    pub number: Option<u64>,
    /// Its log.
    pub log: LogSeen<'a, T>,
}

/// The log of a version.
#[derive(Clone, Copy, Debug)]
pub enum LogSeen<'a, T: Types> {
    /// It has none.
    None,
    /// It has this one.
    Read(&'a Log<T>),
    /// It has one that nobody has read: it is beyond what is read, or was out of scope.
    Unread,
}

/// Since when a group's spec is what it is and nobody has been counted for its log, as far as one copy saw.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Era<T: Types> {
    uid: T::Uid,
    generation: i64,
    /// The number of the first version that was seen of the generation, or of the last one that had in its log one more that
    /// was counted, or a soft one less, or a log again that is read, or since which the Machines are remembered that were
    /// in it; `None` where versions are no numbers.
    since: Option<u64>,
    /// The Machines that were in the log in any version of it that was seen, with the last ticket. One that isn't any
    /// more has left it.
    logged: Map<T, T::Ticket>,
    /// The soft entries that are in the log, with the number by which they are. When one leaves it, its smaller
    /// size may have been spent on another Machine, which an older look still shows alive.
    soft: Map<T, u64>,
    /// The latest version that was seen of it.
    latest: u64,
    /// The latest one whose log wasn't read: it is beyond what is read, or was out of scope. Nobody knows what was in it
    /// and has left it since.
    unread: Option<u64>,
}

impl<T: Types> Era<T> {
    /// The era of a group that is seen for the first time; it is to be [seen](Rule::see) after that.
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

    /// The version of the spec that it is about.
    #[must_use]
    pub fn generation(&self) -> i64 {
        self.generation
    }

    /// The number of the version since which it is; `None` where versions are no numbers.
    #[must_use]
    pub fn since(&self) -> Option<u64> {
        self.since
    }

    /// Returns true if a Machine was in the log in a version that was seen.
    #[must_use]
    pub fn has_logged(&self, uid: &T::Uid) -> bool {
        self.logged.contains_key(uid)
    }

    /// The number of Machines that are remembered to have been in the log.
    #[must_use]
    pub fn remembered(&self) -> usize {
        self.logged.len()
    }
}

impl<P: Policy> Rule<P> {
    /// The number of the version from which on a watch is believed about a Machine that isn't in the log; `None` if it is to
    /// be read.
    pub fn believed_since<T: Types>(self, era: &Era<T>, uid: &T::Uid) -> Option<u64> {
        if era.has_logged(uid) && self.0.reads_what_left() { None } else { era.since }
    }

    /// Takes a version in. One that comes late doesn't make anything older than it is.
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
            LogSeen::None => &none,
            LogSeen::Read(log) => log,
            LogSeen::Unread => {
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
        // Annotations could have any number remembered. Machines that left the log before a version needn't be, where none
        // is believed to be as it was before that version.
        if era.logged.len() > MOST_LOGGED && number == era.latest {
            era.logged.retain(|uid, _| log.get(uid).is_some());
            is_news = true;
        }
        if is_news {
            era.since = era.since.map(|since| since.max(number));
        }
    }
}
