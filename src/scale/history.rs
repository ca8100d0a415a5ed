//! What was written for each group and what was refused, the last of it, for people who ask what happened. It is kept in
//! memory alone and within bounds, whatever the fleet and its callers do; no command may be decided on it.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use arcstr::ArcStr;
use jiff::Timestamp;
use nodegroup::GroupId;
use parking_lot::Mutex;

use super::{
    error::ScaleError,
    events::{EventContent, EventReason, asked_by},
};

/// How many entries are kept of a group.
const MOST_OF_A_GROUP: usize = 20;
/// How many entries are kept in all.
const MOST: usize = 2000;

/// The last writes and refusals of each group. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct History {
    kept: Arc<Mutex<Kept>>,
}

#[derive(Debug, Default)]
struct Kept {
    /// The entries of each group, the newest last.
    groups: HashMap<GroupId, VecDeque<Entry>>,
    /// How many there are in all.
    count: usize,
}

/// Something that was done to a group or asked of it; repetitions in a row are one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry {
    /// What was done, or how it ended.
    pub outcome: Outcome,
    /// In one word: the reason of the Event that tells the same, or the command where no Event does.
    pub what: &'static str,
    /// The class of the error, where it is one.
    pub code: Option<&'static str>,
    /// For people: what the Event says, or what the caller was told.
    pub text: String,
    /// When it was first so.
    pub first: Timestamp,
    /// When it was last so.
    pub last: Timestamp,
    /// How many times it was so.
    pub times: u64,
}

/// How something ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// It was written.
    Done,
    /// A rule, or the request itself, forbade it; nothing was changed.
    Refused,
    /// The API server didn't do it, or didn't say whether it did; or it was done and has no effect.
    Failed,
}

impl Outcome {
    /// In one word, for programs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }

    fn of_reason(reason: EventReason) -> Self {
        match reason {
            EventReason::ScaledUp
            | EventReason::ScaledDown
            | EventReason::ReplacedFailedMachine
            | EventReason::DeletedByName
            | EventReason::InstanceChosenByProvider => Self::Done,
            EventReason::ScaleUpRefused | EventReason::ScaleDownRefused => Self::Refused,
            EventReason::ScaleUpFailed
            | EventReason::ScaleDownFailed
            | EventReason::SizePutBack
            | EventReason::ScaleUpHeldBack => Self::Failed,
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
    /// The entries of a group, the newest first.
    #[must_use]
    pub fn of(&self, group: &GroupId) -> Vec<Entry> {
        self.kept.lock().groups.get(group).into_iter().flatten().rev().cloned().collect()
    }

    /// Something happened that an Event tells too.
    pub(super) fn told(&self, group: &GroupId, content: &EventContent, code: Option<&'static str>) {
        let outcome = Outcome::of_reason(content.reason());
        self.add(group, outcome, content.reason().as_str(), code, content.note());
    }

    /// A command ended with an error that only its caller was told.
    pub(super) fn answered(&self, group: &GroupId, command: &'static str, error: &ScaleError, client: Option<&ArcStr>) {
        let text = asked_by(error.to_string(), client.map(ArcStr::as_str));
        self.add(group, Outcome::of_error(error), command, Some(error.code()), &text);
    }

    fn add(&self, group: &GroupId, outcome: Outcome, what: &'static str, code: Option<&'static str>, text: &str) {
        let now = Timestamp::now();
        let mut kept = self.kept.lock();
        let entries = kept.groups.entry(group.clone()).or_default();
        if let Some(last) = entries.back_mut()
            && (last.what, last.code, last.text.as_str()) == (what, code, text)
        {
            last.last = now;
            last.times += 1;
            return;
        }
        entries.push_back(Entry { outcome, what, code, text: text.to_owned(), first: now, last: now, times: 1 });
        if entries.len() > MOST_OF_A_GROUP {
            entries.pop_front();
        } else {
            kept.count += 1;
        }
        if kept.count > MOST {
            kept.forget_the_oldest();
        }
    }
}

impl Kept {
    /// The entry goes that has been quiet for longest, and its group with its last one.
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
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn group(name: &str) -> GroupId {
        GroupId::parse(&format!("MachineDeployment/team-a/{name}")).unwrap()
    }

    fn refused(text: &str) -> ScaleError {
        ScaleError::NotFound(text.to_owned())
    }

    #[test]
    fn the_newest_is_told_first_and_repetitions_in_a_row_are_one() {
        let history = History::default();
        let id = group("workers");
        history.told(&id, &EventContent::scaled(2, 3, &[]), None);
        for _ in 0..3 {
            history.answered(&id, "increase", &refused("no"), None);
        }
        history.told(&id, &EventContent::scaled(3, 4, &[]), None);
        let told: Vec<_> = history.of(&id).into_iter().map(|it| (it.outcome, it.what, it.text, it.times)).collect();
        let expected = [
            (Outcome::Done, "ScaledUp", "3→4", 1),
            (Outcome::Refused, "increase", "no", 3),
            (Outcome::Done, "ScaledUp", "2→3", 1),
        ];
        assert_eq!(told, expected.map(|(outcome, what, text, times)| (outcome, what, text.to_owned(), times)));
        assert_eq!(history.of(&group("others")), []);
    }

    #[test]
    fn of_a_group_only_the_last_are_kept() {
        let history = History::default();
        for size in 0..50 {
            history.told(&group("workers"), &EventContent::scaled(size, size + 1, &[]), None);
        }
        let kept = history.of(&group("workers"));
        assert_eq!(kept.len(), MOST_OF_A_GROUP);
        assert_eq!((kept[0].text.as_str(), kept[19].text.as_str()), ("49→50", "30→31"));
    }

    #[test]
    fn in_all_the_oldest_go_whatever_the_number_of_groups() {
        let history = History::default();
        for number in 0..MOST + 10 {
            history.answered(&group(&format!("g{number}")), "delete", &refused("no"), None);
        }
        let kept = history.kept.lock();
        assert_eq!((kept.count, kept.groups.len()), (MOST, MOST));
        assert!(!kept.groups.contains_key(&group("g9")) && kept.groups.contains_key(&group("g10")));
    }
}
