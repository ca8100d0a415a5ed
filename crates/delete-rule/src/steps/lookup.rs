//! The states of the Machines that a request names. They must not be older than the group's present size: they come
//! from the watch if it is recent enough, else from a read (docs/design/delete-rule.md, step 2).

use super::{Call, Calls, Details, Now, Outcome, RetryPolicy};
use crate::{GroupMachines, Life, Log, Map, Named, Set};

/// The known states of Machines.
#[derive(Clone, Debug)]
pub(super) struct Known<T: Calls> {
    pub(super) lives: Map<T, Life>,
    /// The Machines that have a Node although they are given up as ones that never joined.
    pub(super) joined: Set<T>,
    /// The versions in which the other Machines that are given up have no Node.
    pub(super) versions: Map<T, T::Version>,
    /// The Machines that couldn't be read, with the failure.
    pub(super) unread: Map<T, T::Failed>,
    /// The failure to count the group's Machines, if they had to be counted.
    pub(super) uncounted: Option<T::Failed>,
    /// All Machines of the group; empty if no request names a placeholder or a Machine that is being deleted.
    pub(super) listed: GroupMachines<T>,
}

/// The lookup of Machines that aren't in the log.
#[derive(Clone, Debug)]
pub(super) struct Lookup<T: Calls> {
    known: Known<T>,
    /// True if all Machines of the group are counted in any case.
    counts: bool,
    /// The number of calls in progress.
    open: usize,
    stage: Stage,
}

#[derive(Clone, Debug)]
enum Stage {
    Read,
    List,
    End,
}

impl<T: Calls> Lookup<T> {
    /// Begins the lookup for a version of the group. Returns it with the reads that it needs.
    pub(super) fn begin<'a>(
        (version, log): (&T::Group, &Log<T>),
        named: impl IntoIterator<Item = &'a Named<T>>,
        counts: bool,
        now: &impl Now<T>,
    ) -> (Self, Vec<Call<T>>) {
        let mut seen = Set::<T>::default();
        let is_open = |named: &&Named<T>| log.get(&named.uid).is_none() && seen.insert(named.uid.clone());
        let named: Vec<_> = named.into_iter().filter(is_open).cloned().collect();
        let known = Known {
            lives: Map::<T, _>::default(),
            joined: Set::<T>::default(),
            versions: Map::<T, _>::default(),
            unread: Map::<T, _>::default(),
            uncounted: None,
            listed: GroupMachines::default(),
        };
        let mut lookup = Self { known, counts, open: 0, stage: Stage::Read };
        let mut calls = Vec::new();
        for (life, named) in now.lives(version, &named).into_iter().zip(named) {
            match life {
                // No watch proves that a Machine hasn't joined.
                Some(Life::Alive) | None if named.never_joined => calls.push(Call::ReadDetails(named)),
                Some(life) => {
                    lookup.known.lives.insert(named.uid, life);
                }
                None => calls.push(Call::Read(named)),
            }
        }
        lookup.open = calls.len();
        (lookup, calls)
    }

    /// Returns the next call; none while calls are in progress, and at the end.
    pub(super) fn next(&mut self) -> Option<Call<T>> {
        if self.open > 0 || !matches!(self.stage, Stage::Read) {
            return None;
        }
        if self.counts || self.known.lives.values().any(|life| *life == Life::Deleting) {
            (self.stage, self.open) = (Stage::List, 1);
            return Some(Call::List(RetryPolicy::Once));
        }
        self.stage = Stage::End;
        None
    }

    /// Takes the outcome of a call.
    pub(super) fn took(&mut self, outcome: Outcome<T>) {
        self.open = self.open.saturating_sub(1);
        match outcome {
            Outcome::Life(uid, Ok(life)) => {
                self.known.lives.insert(uid, life);
            }
            Outcome::Details(uid, Ok(Details { life, has_joined, version, .. })) => {
                if has_joined {
                    self.known.joined.insert(uid.clone());
                } else if let Some(version) = version {
                    self.known.versions.insert(uid.clone(), version);
                }
                self.known.lives.insert(uid, life);
            }
            Outcome::Life(uid, Err(error)) | Outcome::Details(uid, Err(error)) => {
                self.known.unread.insert(uid, error);
            }
            Outcome::Listed(listed) => self.took_list(listed),
            _ => {}
        }
    }

    /// Takes a list of the group's Machines, and updates the known ones to that same moment.
    fn took_list(&mut self, listed: Result<GroupMachines<T>, T::Failed>) {
        self.stage = Stage::End;
        match listed {
            Ok(listed) => {
                for (uid, life) in &mut self.known.lives {
                    *life = match (listed.alive.contains(uid), listed.has(uid)) {
                        (true, _) => Life::Alive,
                        (false, true) => Life::Deleting,
                        (false, false) => Life::Gone,
                    };
                }
                self.known.listed = listed;
            }
            // Placeholders, instances and Machines that are being deleted needed the list, others didn't.
            Err(error) => {
                let lives = &mut self.known.lives;
                let deleting = |(uid, life): (&T::Uid, &Life)| (*life == Life::Deleting).then(|| uid.clone());
                let uncounted: Vec<_> = lives.iter().filter_map(deleting).collect();
                for uid in uncounted {
                    lives.remove(&uid);
                    self.known.unread.insert(uid, error.clone());
                }
                self.known.uncounted = Some(error);
            }
        }
    }

    /// Returns true once the lookup has ended.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.stage, Stage::End)
    }

    /// Returns the states.
    pub(super) fn end(self) -> Known<T> {
        self.known
    }
}
