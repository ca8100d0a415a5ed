//! The replacement of a Machine that never became a Node, at the min size: it is deleted by name and the size stays, so
//! that its MachineSet creates another one. It must never take a Machine that has a Node.
//!
//! The group's object holds the last replacement, which is written before the deletion by a patch that tests the
//! previous value. So only one of two copies of the program goes on, and a restart forgets nothing. If a copy dies
//! between write and deletion, the Machine is deleted the next time it is named. Creation times of Machines would show
//! the time of the last replacement, but not their number.

use std::mem;

use super::{Call, Calls, Effect, FailedCall as _, Failure, NotDone, Now, Outcome, RetryBudget, Steps};
use crate::{
    Log, Named, Request, SizeError,
    replacement::{self, Replaced, Replacement, WallTime},
};

/// The Machines of a request that may be replaced, and the known replacements.
#[derive(Clone, Debug)]
pub struct Replaceable<T: Calls> {
    /// True if Machines may be replaced at all.
    pub is_allowed: bool,
    /// The number of Machines of the request that exist, aren't being deleted and are in no log.
    pub named: usize,
    /// True if one of them has a Node.
    pub has_joined: bool,
    /// The first of them to be replaced.
    pub first: Option<Candidate<T>>,
    /// The last replacement of the group, if there was one.
    pub last: Result<Option<Replaced<T::Uid>>, T::Unread>,
    /// The creation time of the youngest Machine of the group that has a Node.
    pub joined: Option<WallTime>,
    /// The current time.
    pub now: WallTime,
}

/// A Machine that may be replaced.
#[derive(Clone, Debug)]
pub struct Candidate<T: Calls> {
    /// The Machine.
    pub machine: Named<T>,
    /// The version of the Machine, which would be different if the Machine had joined since.
    pub version: T::Version,
    /// The note with which the replacement is written and reported.
    pub note: T::Note,
}

/// The reason why no Machine was replaced, or not all that were named.
#[derive(Clone, Debug)]
pub enum NotReplaced<T: Calls> {
    /// Replacing is disabled, or a named Machine has a Node: only a MachineHealthCheck may decide that such a Machine
    /// is dead.
    Refused,
    /// The last replacement can't be read, so that no write can test it.
    Unread(T::Unread),
    /// A Machine was replaced recently; the next may be at this time.
    Wait(WallTime),
    /// One Machine is replaced, and the others wait.
    Others {
        /// The Machine that is replaced.
        machine: T::Name,
        /// The number of Machines that wait.
        others: usize,
        /// The time from which the next Machine may be replaced.
        next: WallTime,
    },
}

/// The replacement of one Machine of a request for which the size can't be lowered, if that is permitted by now.
#[derive(Clone, Debug)]
pub(super) struct Replace<T: Calls> {
    request: Request<T>,
    log: Log<T>,
    below: SizeError,
    stage: Stage<T>,
    effects: Vec<Effect<T>>,
}

/// The Machine that is replaced, and the rest of its request.
#[derive(Clone, Debug)]
struct Chosen<T: Calls> {
    candidate: Candidate<T>,
    others: usize,
    next: WallTime,
}

/// The next step, or the call whose outcome is awaited.
#[derive(Clone, Debug)]
enum Stage<T: Calls> {
    Begin,
    /// The replacement is to be written to the group.
    Write(Chosen<T>, Replaced<T::Uid>),
    PauseWrite(Chosen<T>, Replaced<T::Uid>, T::Failed),
    Delete(Chosen<T>),
    PauseDelete(Chosen<T>, T::Failed),
    Waiting(Awaited<T>),
    End(Result<(), NotDone<T>>),
}

#[derive(Clone, Debug)]
enum Awaited<T: Calls> {
    Write(Chosen<T>, Replaced<T::Uid>),
    PauseWrite(Chosen<T>, Replaced<T::Uid>, T::Failed),
    Delete(Chosen<T>),
    PauseDelete(Chosen<T>, T::Failed),
}

impl<T: Calls> Replace<T> {
    /// Begins with a request that was refused on this log.
    pub(super) fn new(request: Request<T>, log: Log<T>, below: SizeError) -> Self {
        Self { request, log, below, stage: Stage::Begin, effects: Vec::new() }
    }

    /// Returns the outcome of the request, once it has ended.
    pub(super) fn end(&self) -> Option<&Result<(), NotDone<T>>> {
        if let Stage::End(end) = &self.stage { Some(end) } else { None }
    }

    fn begin(&mut self, now: &impl Now<T>) -> Stage<T> {
        if !self.request.is_of_machines() {
            return self.leave(NotReplaced::Refused);
        }
        let known = match now.replaceable(&self.request, &self.log) {
            Ok(known) => known,
            Err(error) => return Stage::End(Err(NotDone::NotScalable(error))),
        };
        if known.named == 0 {
            // The named Machines are being deleted and will be replaced, so the size stays.
            return Stage::End(Ok(()));
        }
        if !known.is_allowed || known.has_joined {
            return self.leave(NotReplaced::Refused);
        }
        let last = match known.last {
            Ok(last) => last,
            Err(unread) => return self.leave(NotReplaced::Unread(unread)),
        };
        let Some(candidate) = known.first else { return self.leave(NotReplaced::Refused) };
        let others = known.named - 1;
        self.effects.push(Effect::Begin(RetryBudget::Replace));
        match replacement::decide(last.as_ref(), &candidate.machine.uid, known.joined, known.now) {
            Replacement::Begin(replaced) => Stage::Write(Chosen { candidate, others, next: replaced.next() }, replaced),
            Replacement::Continue(last) => Stage::Delete(Chosen { candidate, others, next: last.next() }),
            Replacement::Wait(until) => self.leave(NotReplaced::Wait(until)),
        }
    }

    fn leave(&self, why: NotReplaced<T>) -> Stage<T> {
        Stage::End(Err(NotDone::NotReplaced(self.below, why)))
    }

    /// Handles a Machine that was deleted, by this program or by somebody else.
    fn deleted(&mut self, chosen: Chosen<T>, is_own: bool) -> Stage<T> {
        let Chosen { candidate, others, next } = chosen;
        let machine = candidate.machine.name.clone();
        if is_own {
            self.effects.push(Effect::Replaced(candidate.machine, candidate.note));
        }
        match others {
            0 => Stage::End(Ok(())),
            others => self.leave(NotReplaced::Others { machine, others, next }),
        }
    }

    /// Handles a Machine that the API server has refused to replace, or for which it has sent no response.
    fn couldnt(&mut self, chosen: Chosen<T>, failure: T::Failed) -> Stage<T> {
        if failure.was_sent() {
            let machine = Named { never_joined: true, ..chosen.candidate.machine };
            self.effects.push(Effect::Undeletable(vec![machine]));
        }
        failed(failure)
    }
}

fn failed<T: Calls>(failure: T::Failed) -> Stage<T> {
    Stage::End(Err(NotDone::Failed(failure)))
}

impl<T: Calls> Steps<T> for Replace<T> {
    fn next(&mut self, now: &impl Now<T>) -> Vec<Call<T>> {
        if matches!(self.stage, Stage::Begin) {
            self.stage = self.begin(now);
        }
        let (awaited, call) = match mem::replace(&mut self.stage, Stage::Begin) {
            Stage::Write(chosen, replaced) => {
                let call = Call::WriteReplaced { note: chosen.candidate.note.clone(), replaced: replaced.clone() };
                (Awaited::Write(chosen, replaced), call)
            }
            Stage::PauseWrite(chosen, replaced, failure) => {
                let call = Call::Pause(RetryBudget::Replace, failure.clone());
                (Awaited::PauseWrite(chosen, replaced, failure), call)
            }
            Stage::Delete(chosen) => {
                let Candidate { machine, version, .. } = chosen.candidate.clone();
                (Awaited::Delete(chosen), Call::Delete { machine, version: Some(version) })
            }
            Stage::PauseDelete(chosen, failure) => {
                let call = Call::Pause(RetryBudget::Replace, failure.clone());
                (Awaited::PauseDelete(chosen, failure), call)
            }
            stage @ (Stage::Begin | Stage::Waiting(_) | Stage::End(_)) => {
                self.stage = stage;
                return Vec::new();
            }
        };
        self.stage = Stage::Waiting(awaited);
        vec![call]
    }

    fn took(&mut self, outcome: Outcome<T>) {
        let awaited = match mem::replace(&mut self.stage, Stage::Begin) {
            Stage::Waiting(awaited) => awaited,
            stage => {
                self.stage = stage;
                return;
            }
        };
        self.stage = match (awaited, outcome) {
            (Awaited::Write(chosen, _), Outcome::WrittenReplaced(Ok(()))) => {
                self.effects.push(Effect::Begin(RetryBudget::Replace));
                Stage::Delete(chosen)
            }
            // Another copy was faster, or the watch is behind: the caller will retry.
            (Awaited::Write(..), Outcome::WrittenReplaced(Err(failure))) if failure.failure().is_of_the_object() => {
                failed(failure)
            }
            (Awaited::Write(chosen, replaced), Outcome::WrittenReplaced(Err(failure))) => {
                Stage::PauseWrite(chosen, replaced, failure)
            }
            (Awaited::PauseWrite(chosen, replaced, _), Outcome::Paused(_, true)) => Stage::Write(chosen, replaced),
            (Awaited::Delete(chosen), Outcome::Deleted(_, Ok(is_own))) => self.deleted(chosen, is_own),
            (Awaited::Delete(chosen), Outcome::Deleted(_, Err(failure))) => match failure.failure() {
                // The Machine has changed, as it would have by joining.
                Failure::Conflict => failed(failure),
                Failure::Rejected => self.couldnt(chosen, failure),
                Failure::Unknown | Failure::NotNow | Failure::Final => Stage::PauseDelete(chosen, failure),
            },
            (Awaited::PauseDelete(chosen, _), Outcome::Paused(_, true)) => Stage::Delete(chosen),
            (
                Awaited::PauseWrite(chosen, _, failure) | Awaited::PauseDelete(chosen, failure),
                Outcome::Paused(_, false),
            ) => self.couldnt(chosen, failure),
            (awaited, _) => Stage::Waiting(awaited),
        };
    }

    fn effects(&mut self) -> Vec<Effect<T>> {
        mem::take(&mut self.effects)
    }
}
