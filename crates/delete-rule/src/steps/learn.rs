//! The states of the Machines that a request names, not from before the group's present size: by the watch where it has come
//! far enough, else by reading them (docs/design/delete-rule.md, step 2).

use super::{Call, Calls, Now, Outcome, Tries, Whole};
use crate::{Life, Listed, Log, Map, Named, Set};

/// The known states of Machines.
#[derive(Clone, Debug)]
pub(super) struct Known<T: Calls> {
    pub(super) lives: Map<T, Life>,
    /// Those that have a Node although they are given up as ones that never joined.
    pub(super) joined: Set<T>,
    /// The versions in which the others of those have none.
    pub(super) versions: Map<T, T::Version>,
    /// Those that couldn't be read.
    pub(super) unread: Map<T, T::Failed>,
    /// All Machines of the group; empty where nobody named one that is being deleted, nor a placeholder.
    pub(super) listed: Listed<T>,
}

/// A look at Machines, but for those in the log.
#[derive(Clone, Debug)]
pub(super) struct Learn<T: Calls> {
    known: Known<T>,
    /// True if all Machines of the group are counted in any case.
    counts: bool,
    /// The reads under way.
    open: usize,
    stage: Stage<T>,
}

#[derive(Clone, Debug)]
enum Stage<T: Calls> {
    Read,
    List,
    End(Option<T::Failed>),
}

impl<T: Calls> Learn<T> {
    /// Begins a look as of a version of the group, with the reads for it.
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
            listed: Listed::default(),
        };
        let mut learn = Self { known, counts, open: 0, stage: Stage::Read };
        let mut calls = Vec::new();
        for (life, named) in now.lives(version, &named).into_iter().zip(named) {
            match life {
                // No watch tells for certain that it hasn't joined.
                Some(Life::Alive) | None if named.never_joined => calls.push(Call::ReadWhole(named)),
                Some(life) => {
                    learn.known.lives.insert(named.uid, life);
                }
                None => calls.push(Call::Read(named)),
            }
        }
        learn.open = calls.len();
        (learn, calls)
    }

    /// The next call; none while others are under way, and at the end.
    pub(super) fn next(&mut self) -> Option<Call<T>> {
        if self.open > 0 || !matches!(self.stage, Stage::Read) {
            return None;
        }
        if self.counts || self.known.lives.values().any(|life| *life == Life::Deleting) {
            (self.stage, self.open) = (Stage::List, 1);
            return Some(Call::List(Tries::Once));
        }
        self.stage = Stage::End(None);
        None
    }

    /// Takes the outcome of a call.
    pub(super) fn took(&mut self, outcome: Outcome<T>) {
        self.open = self.open.saturating_sub(1);
        match outcome {
            Outcome::Life(uid, Ok(life)) => {
                self.known.lives.insert(uid, life);
            }
            Outcome::Whole(uid, Ok(Whole { life, has_joined, version, .. })) => {
                if has_joined {
                    self.known.joined.insert(uid.clone());
                } else if let Some(version) = version {
                    self.known.versions.insert(uid.clone(), version);
                }
                self.known.lives.insert(uid, life);
            }
            Outcome::Life(uid, Err(error)) | Outcome::Whole(uid, Err(error)) => {
                self.known.unread.insert(uid, error);
            }
            Outcome::Listed(listed) => self.took_list(listed),
            _ => {}
        }
    }

    /// Takes a list of the group's Machines: those that are known are looked at as of that same moment.
    fn took_list(&mut self, listed: Result<Listed<T>, T::Failed>) {
        self.stage = Stage::End(None);
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
            Err(error) if self.counts => self.stage = Stage::End(Some(error)),
            // Only those that are being deleted needed it.
            Err(error) => {
                let lives = &mut self.known.lives;
                let deleting = |(uid, life): (&T::Uid, &Life)| (*life == Life::Deleting).then(|| uid.clone());
                let uncounted: Vec<_> = lives.iter().filter_map(deleting).collect();
                for uid in uncounted {
                    lives.remove(&uid);
                    self.known.unread.insert(uid, error.clone());
                }
            }
        }
    }

    /// Returns true if all is known that can be.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.stage, Stage::End(_))
    }

    /// The states.
    ///
    /// # Errors
    /// When the group's Machines couldn't be counted.
    pub(super) fn end(self) -> Result<Known<T>, T::Failed> {
        match self.stage {
            Stage::End(Some(error)) => Err(error),
            Stage::End(None) | Stage::Read | Stage::List => Ok(self.known),
        }
    }
}
