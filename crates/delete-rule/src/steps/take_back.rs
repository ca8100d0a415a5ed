//! Removes entries from the log and then the marks of their Machines; in this order, so that a copy that marks or
//! lowers in the meantime finds the entry gone. An entry that another copy has lowered must stay, and so must its mark:
//! without it the smaller size would take any Machine. Marks that are left over are removed by the finisher.

use std::mem;

use super::{Call, Calls, Group as _, NotDone, Now, Outcome, RetryBudget, RetryPolicy};
use crate::{Entry, Log, Phase, Set};

/// Entries that are being taken back.
#[derive(Clone, Debug)]
pub(super) struct TakeBack<T: Calls> {
    version: T::Group,
    entries: Vec<Entry<T>>,
    /// The entries that another copy has lowered in the meantime.
    lowered: Set<T>,
    stage: Stage<T>,
    /// The number of calls in progress.
    open: usize,
}

/// The result of taking entries back.
pub(super) struct TakenBack<T: Calls> {
    /// The latest version of the group.
    pub(super) version: T::Group,
    /// The entries that another copy has lowered.
    pub(super) lowered: Set<T>,
}

/// The next step, or the call whose outcome is awaited.
#[derive(Clone, Debug)]
enum Stage<T: Calls> {
    Write,
    Failed(T::Failed),
    /// The pause is over.
    Read,
    /// The Machines' versions are read before the log, as the finisher does.
    Versions(Vec<(Entry<T>, T::Version)>),
    Log(Vec<(Entry<T>, T::Version)>),
    Unmark(Vec<(Entry<T>, T::Version)>),
    End(Result<(), NotDone<T>>),
}

impl<T: Calls> TakeBack<T> {
    pub(super) fn new(version: T::Group, entries: Vec<Entry<T>>) -> Self {
        Self { version, entries, lowered: Set::<T>::default(), stage: Stage::Write, open: 0 }
    }

    pub(super) fn next(&mut self, now: &impl Now<T>) -> Vec<Call<T>> {
        let mut calls = Vec::new();
        while self.open == 0 && !self.has_ended() {
            calls = self.advance(now);
            self.open = calls.len();
        }
        calls
    }

    /// Takes the next step and returns its calls; none if another step follows.
    fn advance(&mut self, now: &impl Now<T>) -> Vec<Call<T>> {
        match mem::replace(&mut self.stage, Stage::End(Ok(()))) {
            Stage::Write => self.write(now),
            Stage::Failed(error) => {
                self.stage = Stage::Failed(error.clone());
                vec![Call::Pause(RetryBudget::TakeBack, error)]
            }
            Stage::Read => {
                self.stage = Stage::Read;
                vec![Call::ReadGroup(RetryPolicy::Of(RetryBudget::TakeBack))]
            }
            Stage::Versions(seen) if !seen.is_empty() => {
                self.stage = Stage::Log(seen);
                vec![Call::ReadGroup(RetryPolicy::Once)]
            }
            Stage::Unmark(marks) => marks
                .into_iter()
                .map(|(Entry { name, ticket, .. }, version)| Call::Unmark { name, ticket, version })
                .collect(),
            Stage::Versions(_) | Stage::Log(_) | Stage::End(_) => Vec::new(),
        }
    }

    fn write(&mut self, now: &impl Now<T>) -> Vec<Call<T>> {
        let log = match self.version.log() {
            Ok(log) => log,
            Err(error) => {
                self.stage = Stage::End(Err(NotDone::Unreadable(error)));
                return Vec::new();
            }
        };
        let entries = &self.entries;
        let is_one = |entry: &Entry<T>| entries.iter().any(|one| one.uid == entry.uid && one.ticket == entry.ticket);
        let is_such = |entry: &Entry<T>| entry.phase == Phase::Wanted && is_one(entry);
        if log.entries().iter().any(is_such) {
            let left = log.without(is_such);
            self.stage = Stage::Write;
            return vec![Call::WriteLog { seen: self.version.clone(), log: left }];
        }
        self.have_left(&log, now)
    }

    /// Handles entries that have left the log, except for those that were lowered.
    fn have_left(&mut self, log: &Log<T>, now: &impl Now<T>) -> Vec<Call<T>> {
        let is_lowered = |one: &&Entry<T>| log.get(&one.uid).is_some_and(|entry| entry.ticket == one.ticket);
        let (lowered, taken): (Vec<_>, Vec<_>) = self.entries.iter().partition(is_lowered);
        self.lowered = lowered.into_iter().map(|entry| entry.uid.clone()).collect();
        let ours: Vec<_> = taken.into_iter().filter(|entry| !now.is_stranger(entry)).cloned().collect();
        self.stage = Stage::Versions(Vec::new());
        ours.into_iter().map(Call::ReadVersion).collect()
    }

    pub(super) fn took(&mut self, outcome: Outcome<T>) {
        self.open = self.open.saturating_sub(1);
        self.stage = match (mem::replace(&mut self.stage, Stage::End(Ok(()))), outcome) {
            (Stage::Write, Outcome::Written(Ok(version))) | (Stage::Read, Outcome::Group(Ok(version))) => {
                self.version = version;
                Stage::Write
            }
            (Stage::Write, Outcome::Written(Err(error))) => Stage::Failed(error),
            (Stage::Failed(_), Outcome::Paused(_, true)) => Stage::Read,
            (Stage::Failed(error), Outcome::Paused(_, false)) | (Stage::Read, Outcome::Group(Err(error))) => {
                Stage::End(Err(NotDone::Failed(error)))
            }
            (Stage::Versions(mut seen), Outcome::Version(entry, version)) => {
                seen.extend(version.map(|version| (entry, version)));
                Stage::Versions(seen)
            }
            (Stage::Log(seen), Outcome::Group(group)) => {
                let log = group.ok().and_then(|group| group.log().ok());
                let is_out =
                    |(entry, _): &(Entry<T>, T::Version)| log.as_ref().is_some_and(|log| log.get(&entry.uid).is_none());
                Stage::Unmark(seen.into_iter().filter(is_out).collect())
            }
            (stage, _) => stage,
        };
    }

    /// Returns true once it is done or has failed.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.stage, Stage::End(_))
    }

    /// Returns the result.
    ///
    /// # Errors
    /// Fails if the entries couldn't be removed from the log.
    pub(super) fn end(self) -> Result<TakenBack<T>, NotDone<T>> {
        if let Stage::End(Err(why)) = self.stage {
            return Err(why);
        }
        Ok(TakenBack { version: self.version, lowered: self.lowered })
    }
}
