//! The last writes and refusals of each group, for people who ask what happened. They are kept in memory alone and
//! within bounds, whatever the fleet and its callers do. No command may be decided on them.

use std::{
    borrow::Cow,
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use arcstr::ArcStr;
use jiff::Timestamp;
use parking_lot::Mutex;
use rules::GroupId;
use serde::{Deserialize, Serialize};

use super::{
    error::ScaleError,
    events::{EventContent, asked_for_by},
};
use rules::text::shortened;

/// The maximum number of entries of a group.
const MOST_OF_A_GROUP: usize = 20;
/// The maximum number of entries in all.
const MOST: usize = 2000;
/// The maximum length of a kept or logged text, in characters: a request may hold megabytes.
pub(super) const LONGEST_TEXT: usize = 2000;
/// The maximum number of entries of one of many Clusters.
const MOST_OF_ONE: usize = 200;

/// The last writes and refusals of each group. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct History {
    entries: Arc<Mutex<Entries>>,
}

#[derive(Debug)]
struct Entries {
    /// The entries of each group, the newest last.
    groups: HashMap<GroupId, VecDeque<Entry>>,
    /// The number of entries in all.
    count: usize,
    /// The maximum of `count`.
    most: usize,
}

impl Default for Entries {
    fn default() -> Self {
        Self { groups: HashMap::new(), count: 0, most: MOST }
    }
}

/// A change of a group or a refused request; repetitions in a row are one entry.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Its outcome.
    pub outcome: Outcome,
    /// The reason of the Event that reports the same, or the command where there is no such Event.
    pub what: Cow<'static, str>,
    /// The class of the error, if it is one, as in the label `result` of the metric of commands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Cow<'static, str>>,
    /// The text for people: the note of the Event, or the error that the caller received.
    pub text: String,
    /// When it first occurred.
    pub first: Timestamp,
    /// When it last occurred.
    pub last: Timestamp,
    /// The number of times it occurred.
    pub times: u64,
}

/// The outcome of an entry.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// It was written.
    Done,
    /// A rule, or the request itself, forbade it; nothing was changed.
    Refused,
    /// The API server didn't do it, or didn't report whether it did; or it was done without effect.
    Failed,
}

impl Outcome {
    /// Returns the outcome in one word, for programs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }

    fn of_error(error: &ScaleError) -> Self {
        match error {
            ScaleError::InvalidArgument(_)
            | ScaleError::NotFound(_)
            | ScaleError::FailedPrecondition(_)
            | ScaleError::Aborted(_)
            | ScaleError::ReadOnly(_) => Self::Refused,
            ScaleError::PermissionDenied(_) | ScaleError::Unavailable(_) => Self::Failed,
        }
    }
}

impl History {
    /// Returns the history of one of many Clusters.
    pub(super) fn of_one_of_many() -> Self {
        Self { entries: Arc::new(Mutex::new(Entries { most: MOST_OF_ONE, ..Entries::default() })) }
    }

    /// Returns the entries of a group, the newest first.
    pub fn of(&self, group: &GroupId) -> Vec<Entry> {
        self.entries.lock().groups.get(group).into_iter().flatten().rev().cloned().collect()
    }

    /// Records an outcome that an Event reports too.
    pub(super) fn reported(&self, group: &GroupId, content: &EventContent, code: Option<&'static str>) {
        let (_, _, outcome) = content.reason().kind();
        self.add(group, outcome, content.reason().as_str(), code, &content.text());
    }

    /// Records a command whose error only its caller received.
    pub(super) fn answered(&self, group: &GroupId, command: &'static str, error: &ScaleError, client: Option<&ArcStr>) {
        let client = client.map(|client| asked_for_by(client)).unwrap_or_default();
        let text = format!("{error}{client}");
        self.add(group, Outcome::of_error(error), command, Some(error.code()), &text);
    }

    fn add(&self, group: &GroupId, outcome: Outcome, what: &'static str, code: Option<&'static str>, text: &str) {
        let now = Timestamp::now();
        let text = &*shortened(text, LONGEST_TEXT);
        let mut all = self.entries.lock();
        let entries = all.groups.entry(group.clone()).or_default();
        if let Some(last) = entries.back_mut()
            && (&*last.what, last.code.as_deref(), last.text.as_str()) == (what, code, text)
        {
            last.last = now;
            last.times += 1;
            return;
        }
        let (what, code) = (what.into(), code.map(Into::into));
        entries.push_back(Entry { outcome, what, code, text: text.to_owned(), first: now, last: now, times: 1 });
        if entries.len() > MOST_OF_A_GROUP {
            entries.pop_front();
        } else {
            all.count += 1;
        }
        if all.count > all.most {
            all.forget_the_oldest();
        }
    }
}

impl Entries {
    /// Removes the entry that has been quiet for longest, and its group if that was the last one.
    fn forget_the_oldest(&mut self) {
        let oldest = self.groups.iter().filter_map(|(id, entries)| Some((entries.front()?.last, id)));
        let Some(id) = oldest.min().map(|(_, id)| id.clone()) else { return };
        if let Some(entries) = self.groups.get_mut(&id) {
            entries.pop_front();
            self.count -= 1;
            if entries.is_empty() {
                self.groups.remove(&id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &str) -> GroupId {
        GroupId::parse(&format!("MachineDeployment/team-a/{name}")).unwrap()
    }

    fn refused(text: &str) -> ScaleError {
        ScaleError::NotFound(text.to_owned())
    }

    #[test]
    fn the_newest_is_reported_first_and_repetitions_in_a_row_are_one() {
        let history = History::default();
        let id = group("workers");
        history.reported(&id, &EventContent::scaled(2, 3, &[]), None);
        for _ in 0..3 {
            history.answered(&id, "increase", &refused("no"), None);
        }
        history.reported(&id, &EventContent::scaled(3, 4, &[]), None);
        let reported: Vec<_> = history.of(&id).into_iter().map(|it| (it.outcome, it.what, it.text, it.times)).collect();
        let expected = [
            (Outcome::Done, "ScaledUp", "3→4", 1),
            (Outcome::Refused, "increase", "no", 3),
            (Outcome::Done, "ScaledUp", "2→3", 1),
        ];
        assert_eq!(
            reported,
            expected.map(|(outcome, what, text, times)| (outcome, what.into(), text.to_owned(), times))
        );
        assert_eq!(history.of(&group("others")), []);
    }

    #[test]
    fn of_a_group_only_the_last_are_kept() {
        let history = History::default();
        for size in 0..50 {
            history.reported(&group("workers"), &EventContent::scaled(size, size + 1, &[]), None);
        }
        let all = history.of(&group("workers"));
        assert_eq!(all.len(), MOST_OF_A_GROUP);
        assert_eq!((all[0].text.as_str(), all[19].text.as_str()), ("49→50", "30→31"));
    }

    #[test]
    fn of_a_text_the_beginning_is_kept() {
        let history = History::default();
        let id = group("workers");
        for _ in 0..2 {
            history.answered(&id, "delete", &refused(&"a".repeat(1 << 20)), None);
        }
        let entries = history.of(&id);
        assert_eq!((entries.len(), entries[0].times, entries[0].text.chars().count()), (1, 2, LONGEST_TEXT + 1));
    }

    #[test]
    fn in_all_the_oldest_go_whatever_the_number_of_groups() {
        for (history, most) in [(History::default(), MOST), (History::of_one_of_many(), MOST_OF_ONE)] {
            for number in 0..most + 10 {
                history.answered(&group(&format!("g{number}")), "delete", &refused("no"), None);
            }
            let all = history.entries.lock();
            assert_eq!((all.count, all.groups.len()), (most, most));
            assert!(!all.groups.contains_key(&group("g9")) && all.groups.contains_key(&group("g10")));
        }
    }
}
