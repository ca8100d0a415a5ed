//! The text of the log of deletions in progress: an annotation of the group that every copy of this program
//! reads and writes (see docs/design/delete-rule.md). A text that isn't such a log is an error and never taken for an
//! empty one.

use std::{collections::BTreeMap, fmt, hash::RandomState, time::Duration};

use arcstr::ArcStr;
use capi::{DELETING, LONGEST_LOG, MOST_LOGS, MOST_LOGS_OF_NAMESPACE, Uid};
pub use delete_rule::{MOST_ENTRIES, Phase};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::problem::Clipped;

/// The longest uid or ticket, in bytes. UUIDs have 36, and the program's tickets 37; tickets are written to every
/// Machine.
const LONGEST_ID: usize = 128;
/// The remedy for a log that is larger than any that the program writes.
const REMEDY: &str = "the program writes none so large, leaves it as it is, and deletes nothing of the group: see who \
                      writes it, and remove the annotation";

/// The text of the delete-machine annotation before the ticket, which identifies this program's marks.
const MARKED_BY: &str = "capi-autoscaler-provider ";

/// The id of one accepted call: unique, and the same for all entries of one write.
#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(from = "String", into = "String")]
pub struct Ticket(ArcStr);

impl Ticket {
    /// Returns a ticket of this time, for people, and of 64 random bits, which make it unique.
    #[must_use]
    pub fn new(time: Timestamp, chance: u64) -> Self {
        Self(arcstr::format!("{time:.0}-{chance:016x}"))
    }

    /// Returns the time at which the ticket was made, or `None` if it has another form.
    #[must_use]
    pub fn time(&self) -> Option<Timestamp> {
        let (time, _) = self.0.rsplit_once('-')?;
        capi::time(time)
    }

    /// Returns the value of the delete-machine annotation that is set under this ticket.
    #[must_use]
    pub fn mark(&self) -> String {
        format!("{MARKED_BY}{self}")
    }

    /// Returns the ticket under which a delete-machine annotation was set, or `None` if this program didn't set it.
    #[must_use]
    pub fn of_mark(mark: &str) -> Option<Self> {
        mark.strip_prefix(MARKED_BY).map(|ticket| Self(ticket.into()))
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<String> for Ticket {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl From<Ticket> for String {
    fn from(ticket: Ticket) -> Self {
        ticket.0.to_string()
    }
}

impl From<&str> for Ticket {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

/// The types with which this program instantiates the delete rule.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Types;

impl delete_rule::Types for Types {
    type Uid = Uid;
    type Name = ArcStr;
    type Ticket = Ticket;
    type Time = std::time::Instant;
    type Hasher = RandomState;
    type LogError = LogError;

    fn between(from: Self::Time, to: Self::Time) -> Duration {
        to.saturating_duration_since(from)
    }

    fn check(log: &DeletionLog, checked: usize) -> Result<(), LogError> {
        log.check(checked)
    }
}

/// A Machine in the log.
pub type Entry = delete_rule::Entry<Types>;

/// The log of a group. No Machine is in it twice.
pub type DeletionLog = delete_rule::Log<Types>;

/// The text form of a log, as the annotation holds it.
pub trait LogAnnotation: Sized {
    /// Parses the annotation; a missing one is an empty log.
    ///
    /// # Errors
    /// If the text isn't a log.
    fn parse(text: Option<&str>) -> Result<Self, LogError>;

    /// Returns the annotation's value, or `None` if no deletion is in progress.
    ///
    /// # Errors
    /// If the log is too large for an annotation.
    fn print(&self) -> Result<Option<String>, LogError>;

    /// Checks that the log can be printed, given that its first `checked` entries can. A log that is certainly short
    /// enough isn't printed for the check.
    ///
    /// # Errors
    /// As [`Self::print`].
    fn check(&self, checked: usize) -> Result<(), LogError>;
}

/// The reason why a text is no log, or a log can't be written.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum LogError {
    /// The annotation holds something else.
    #[error(
        "the annotation {DELETING} isn't a log of this program's version: {why}; it is left as it is: use the version that wrote it, or remove the annotation when no deletion is on its way"
    )]
    Foreign {
        /// The reason.
        why: String,
    },
    /// The annotation is longer than any log.
    #[error("the annotation {DELETING} has {bytes} bytes, and a log of deletions at most {LONGEST_LOG}: {REMEDY}")]
    TooLong {
        /// The length of its value.
        bytes: usize,
    },
    /// The annotation isn't kept, because others take all the memory for them.
    #[error(
        "the annotation {DELETING}, of {bytes} bytes, isn't read: those of its namespace have {MOST_LOGS_OF_NAMESPACE} bytes already, or those of all namespaces {MOST_LOGS}, with what their Machines take in memory; nothing of the group is deleted: see which groups have long ones, who writes them, and remove those that this program didn't write. It is read when the group's object changes next"
    )]
    OverBudget {
        /// The length of its value.
        bytes: usize,
    },
    /// The annotation names more Machines than any log.
    #[error(
        "the annotation {DELETING}, of {bytes} bytes, names {count} Machines, and a log of deletions at most {MOST_ENTRIES}: {REMEDY}"
    )]
    TooMany {
        /// The length of its value.
        bytes: usize,
        /// The number of Machines.
        count: usize,
    },
    /// A Machine can't be written to any log: its name or uid is invalid or too long.
    #[error("the annotation {DELETING} can't name a Machine: {why}; delete it by hand")]
    Unwritable {
        /// The reason.
        why: String,
    },
    /// Too many deletions are in progress.
    #[error(
        "{count} deletions would be on their way at once, and the annotation {DELETING} holds {MOST_ENTRIES} of usual names; try again when some have gone"
    )]
    Full {
        /// The number of deletions that would be in progress.
        count: usize,
    },
}

/// Entries of one acceptance, as they are serialized.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Written {
    ticket: Ticket,
    #[serde(with = "WrittenPhase")]
    phase: Phase,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    soft: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    counted: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pending: bool,
    machines: BTreeMap<String, String>,
}

/// The phase of an acceptance's entries, as it is serialized.
#[derive(Deserialize, Serialize)]
#[serde(remote = "Phase", rename_all = "lowercase")]
enum WrittenPhase {
    Wanted,
    Lowered,
}

impl LogAnnotation for DeletionLog {
    fn parse(text: Option<&str>) -> Result<Self, LogError> {
        let Some(text) = text else { return Ok(Self::default()) };
        let bytes = text.len();
        if bytes > LONGEST_LOG {
            return Err(LogError::TooLong { bytes });
        }
        let foreign = |why: String| LogError::Foreign { why };
        // The error quotes the text, which may be long.
        let not_read = |error: serde_json::Error| foreign(format!("{:?}", Clipped(&error.to_string())));
        let written: Vec<Written> = serde_json::from_str(text).map_err(not_read)?;
        let count = written.iter().map(|acceptance| acceptance.machines.len()).sum();
        if count > MOST_ENTRIES {
            return Err(LogError::TooMany { bytes, count });
        }
        let mut log = Self::default();
        for acceptance in written {
            for (name, uid) in acceptance.machines {
                check(&name, &uid, &acceptance.ticket).map_err(foreign)?;
                let entry = Entry {
                    name: name.into(),
                    uid: Uid::from(uid),
                    ticket: acceptance.ticket.clone(),
                    phase: acceptance.phase,
                    soft: acceptance.soft,
                    counted: acceptance.counted,
                    pending: acceptance.pending,
                };
                let twice = |Entry { name, uid, .. }| format!("the Machine {name} with uid {uid:?} is named twice");
                log.try_push(entry).map_err(|entry| foreign(twice(entry)))?;
            }
        }
        Ok(log)
    }

    fn print(&self) -> Result<Option<String>, LogError> {
        if self.is_empty() {
            return Ok(None);
        }
        let full = || LogError::Full { count: self.entries().len() };
        check_entries(self.entries())?;
        let mut acceptances: BTreeMap<_, Vec<BTreeMap<_, _>>> = BTreeMap::new();
        for entry in self.entries() {
            let alike =
                acceptances.entry((&entry.ticket, entry.phase, entry.soft, entry.counted, entry.pending)).or_default();
            let name = entry.name.to_string();
            // A Machine that was created after another one of its name was deleted needs a JSON object of its own.
            match alike.iter_mut().find(|machines| !machines.contains_key(&name)) {
                Some(machines) => {
                    machines.insert(name, entry.uid.to_string());
                }
                None => alike.push(BTreeMap::from([(name, entry.uid.to_string())])),
            }
        }
        let written: Vec<_> = acceptances
            .into_iter()
            .flat_map(|((ticket, phase, soft, counted, pending), alike)| {
                let written =
                    move |machines| Written { ticket: ticket.clone(), phase, soft, counted, pending, machines };
                alike.into_iter().map(written)
            })
            .collect();
        let text = serde_json::to_string(&written).map_err(|_| full())?;
        if self.entries().len() > MOST_ENTRIES || text.len() > LONGEST_LOG {
            return Err(full());
        }
        Ok(Some(text))
    }

    fn check(&self, checked: usize) -> Result<(), LogError> {
        check_entries(self.entries().get(checked..).unwrap_or_default())?;
        // The longest form: each entry alone in an acceptance, with every character escaped.
        let longest = |entry: &Entry| 6 * (entry.name.len() + entry.uid.text_len() + entry.ticket.0.len()) + 100;
        if self.entries().len() <= MOST_ENTRIES && self.entries().iter().map(longest).sum::<usize>() <= LONGEST_LOG {
            return Ok(());
        }
        self.print().map(|_| ())
    }
}

/// Returns an error for entries that couldn't be parsed again.
fn check_entries(entries: &[Entry]) -> Result<(), LogError> {
    let check = |entry: &Entry| check(&entry.name, &entry.uid.to_string(), &entry.ticket);
    entries.iter().try_for_each(check).map_err(|why| LogError::Unwritable { why })
}

/// Returns an error for a name or uid that no Machine can have, or an entry that is too long to be parsed.
fn check(name: &str, uid: &str, ticket: &Ticket) -> Result<(), String> {
    if !is_object_name(name) || uid.is_empty() {
        return Err(format!("{:?} with uid {:?} is no Machine", Clipped(name), Clipped(uid)));
    }
    for (what, text) in [("uid", uid), ("ticket", ticket.0.as_str())] {
        if text.len() > LONGEST_ID {
            let bytes = text.len();
            return Err(format!("the {what} of Machine {name} has {bytes} bytes, and may have {LONGEST_ID}"));
        }
    }
    Ok(())
}

/// Returns true if an API server accepts the text as a name. Names become part of request paths: anything else could
/// direct a request to another object.
fn is_object_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    let is_end = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.len() <= 253 && name.chars().all(is_plain) && name.starts_with(is_end) && name.ends_with(is_end)
}

#[cfg(test)]
mod tests;
