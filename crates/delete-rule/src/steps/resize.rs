//! Writes of the size alone: increases, replicas that have no Machine, and a smaller target size. A write is decided on
//! the known state of the group, tests the size that it was decided on, and is decided again on what the API server
//! returns.

use std::mem;

use super::{
    Call, CallerId, Calls, Effect, FailedCall as _, Failure, Group as _, NotDone, Now, Outcome, RetryBudget,
    RetryPolicy, Steps,
};
use crate::{Bounds, Complete, Fate, GroupMachines, Placeholders, Policy, Rule, SizedBy, size};

/// The size to be reached.
#[derive(Clone, Debug)]
enum Aim<T: Calls> {
    Increase(i32, Bounds),
    GiveUp {
        placeholders: Placeholders,
        bounds: Bounds,
        /// The group's Machines, if they were counted a moment ago and nothing was written since.
        listed: Option<GroupMachines<T>>,
    },
    /// Gives up at most this many replicas without a Machine.
    GiveWay {
        most: usize,
        min: i32,
    },
}

impl<T: Calls> Aim<T> {
    /// Returns true if the size depends on counted Machines, so that the write tests the spec and log they were counted
    /// for.
    fn counts(&self) -> bool {
        match self {
            Self::Increase(..) => false,
            Self::GiveUp { placeholders, .. } => placeholders.replicas > 0,
            Self::GiveWay { .. } => true,
        }
    }
}

/// A size that is being written.
#[derive(Clone, Debug)]
pub struct Resize<T: Calls, P = Complete> {
    rule: Rule<P>,
    version: T::Group,
    aim: Aim<T>,
    /// The caller whose leaving ends it, until its first write.
    caller: Option<CallerId>,
    writer: Option<T::Writer>,
    /// The last write without a response, as sizes from and to. It may still be applied, so nothing is refused for
    /// good.
    unanswered: Option<(i32, i32)>,
    /// True if no further decision counts the Machines, which the rule itself always does.
    spares_count: bool,
    /// True once a write was rejected although the group was as expected.
    was_rejected: bool,
    stage: Stage<T>,
    open: usize,
    effects: Vec<Effect<T>>,
}

/// The next decision to make, or the call whose outcome is awaited.
#[derive(Clone, Debug)]
enum Stage<T: Calls> {
    Round,
    Counted(GroupMachines<T>),
    Write(i32),
    Failed(i32, T::Failed),
    /// The pause is over; true if another attempt may be made.
    Paused(i32, T::Failed, bool),
    End(Result<bool, NotDone<T>>),
}

impl<T: Calls, P: Policy> Resize<T, P> {
    /// Raises the size by `delta`.
    pub fn increase(rule: Rule<P>, version: T::Group, delta: i32, bounds: Bounds, caller: Option<CallerId>) -> Self {
        Self::new(rule, version, Aim::Increase(delta, bounds), caller)
    }

    /// Lowers the size for the part of a request that has no Machine. `listed` holds the group's Machines, if they were
    /// counted a moment ago.
    pub(super) fn give_up(
        rule: Rule<P>,
        version: T::Group,
        (placeholders, bounds, listed): (Placeholders, Bounds, Option<GroupMachines<T>>),
        caller: Option<CallerId>,
    ) -> Self {
        Self::new(rule, version, Aim::GiveUp { placeholders, bounds, listed }, caller)
    }

    /// Lowers the size by at most `most`, as far as there are placeholders. It stays at or above the minimum, and the
    /// number of Machines that have a Node plus the deletions already promised, as they are at each write.
    pub(super) fn give_way(rule: Rule<P>, version: T::Group, most: usize, min: i32, caller: Option<CallerId>) -> Self {
        Self::new(rule, version, Aim::GiveWay { most, min }, caller)
    }

    fn new(rule: Rule<P>, version: T::Group, aim: Aim<T>, caller: Option<CallerId>) -> Self {
        Self {
            rule,
            version,
            aim,
            caller,
            writer: None,
            unanswered: None,
            spares_count: false,
            was_rejected: false,
            stage: Stage::Round,
            open: 0,
            effects: vec![Effect::Begin(RetryBudget::Size)],
        }
    }

    /// Returns the result, once it has ended: true if the size was changed.
    pub fn end(&self) -> Option<&Result<bool, NotDone<T>>> {
        if let Stage::End(end) = &self.stage { Some(end) } else { None }
    }

    fn replicas(&self) -> i32 {
        self.version.spec().replicas
    }

    fn advance(&mut self, now: &impl Now<T>) -> Vec<Call<T>> {
        match mem::replace(&mut self.stage, Stage::Round) {
            Stage::Round => self.round(now),
            Stage::Counted(listed) => {
                self.spares_count = !self.rule.0.counts_again();
                let to = self.aim_counted(&listed, now);
                self.aimed(to, now)
            }
            Stage::Failed(to, error) => {
                if error.failure() == Failure::Unknown {
                    self.unanswered = Some((self.replicas(), to));
                }
                self.stage = Stage::Failed(to, error.clone());
                vec![Call::Pause(RetryBudget::Size, error)]
            }
            Stage::Paused(to, error, is_tried_again) => self.paused(to, error, is_tried_again, now),
            stage @ (Stage::Write(_) | Stage::End(_)) => {
                self.stage = stage;
                Vec::new()
            }
        }
    }

    fn round(&mut self, now: &impl Now<T>) -> Vec<Call<T>> {
        let to = match &mut self.aim {
            Aim::Increase(delta, bounds) => {
                size::increase(self.version.spec().replicas, *delta, *bounds).map_err(NotDone::Size)
            }
            Aim::GiveWay { .. } if self.version.log().is_err() => Ok(self.replicas()),
            Aim::GiveUp { placeholders, listed, .. } => match listed.take() {
                None if placeholders.replicas > 0 && !self.spares_count => return vec![Call::List(RetryPolicy::Anew)],
                // The Machines were counted a moment ago, or don't matter.
                listed => {
                    self.stage = Stage::Counted(listed.unwrap_or_default());
                    return Vec::new();
                }
            },
            Aim::GiveWay { .. } if self.spares_count => {
                self.stage = Stage::Counted(GroupMachines::default());
                return Vec::new();
            }
            Aim::GiveWay { .. } => return vec![Call::List(RetryPolicy::Anew)],
        };
        self.aimed(to, now)
    }

    /// Returns the size to write, given the group's Machines.
    fn aim_counted(&self, listed: &GroupMachines<T>, now: &impl Now<T>) -> Result<i32, NotDone<T>> {
        // A log that can't be read was refused before this.
        let (log, replicas) = (self.version.log().unwrap_or_default(), self.replicas());
        match &self.aim {
            Aim::Increase(..) => Ok(replicas),
            Aim::GiveUp { placeholders, bounds, .. } => {
                let left = match placeholders.replicas {
                    0 => 0,
                    _ => self.rule.placeholders(&log, replicas, listed, placeholders.instances),
                };
                self.rule.give_up(&log, replicas, *bounds, left, *placeholders).map_err(NotDone::Refused)
            }
            Aim::GiveWay { most, min } => {
                let left = self.rule.placeholders(&log, replicas, listed, 0);
                let with_node = || now.unlogged_machines(&log).with_node;
                self.rule.give_way(&log, replicas, *min, left.min(*most), with_node).map_err(NotDone::Size)
            }
        }
    }

    /// Writes the size, unless it is already as desired.
    fn aimed(&mut self, to: Result<i32, NotDone<T>>, now: &impl Now<T>) -> Vec<Call<T>> {
        let from = self.replicas();
        let to = match (to, self.unanswered) {
            (Ok(to), _) => to,
            (Err(why), Some((from, to))) => return self.fail(NotDone::SizeUnread { from, to, why: Box::new(why) }),
            (Err(why), None) => return self.fail(why),
        };
        if to == from {
            self.effects.push(Effect::SizeLeft(from));
            self.stage = Stage::End(Ok(false));
            return Vec::new();
        }
        if self.unanswered.is_none() && self.caller.is_some_and(|caller| now.has_left(caller)) {
            return self.fail(NotDone::Abandoned);
        }
        let writer = self.writer(now);
        self.stage = Stage::Write(to);
        let counted = self.aim.counts() && self.rule.0.tests_count();
        vec![Call::Resize { seen: self.version.clone(), to, writer, counted }]
    }

    fn writer(&mut self, now: &impl Now<T>) -> T::Writer {
        self.writer.get_or_insert_with(|| now.writer()).clone()
    }

    /// Handles the end of a pause after a failed write. If a write may have been applied, the group is read in any
    /// case.
    fn paused(&mut self, to: i32, error: T::Failed, is_tried_again: bool, now: &impl Now<T>) -> Vec<Call<T>> {
        if !is_tried_again && self.unanswered.is_none() {
            return self.fail(NotDone::Failed(error));
        }
        if is_tried_again && error.failure() == Failure::NotNow {
            // Nothing was written, and the group isn't known to have changed.
            self.stage = Stage::Round;
            return Vec::new();
        }
        self.stage = Stage::Paused(to, error, is_tried_again);
        vec![Call::ReadSize(self.writer(now))]
    }

    /// Handles the group as it was read after a failed write.
    fn read(
        &mut self,
        now: T::Group,
        sized_by: SizedBy,
        (to, error, is_tried_again): (i32, T::Failed, bool),
    ) -> Stage<T> {
        let (from, size, counts) = (self.replicas(), now.spec().replicas, self.aim.counts());
        let fate = match self.unanswered {
            Some(_) => self.rule.fate(&self.version.spec(), &now.spec(), to, sized_by),
            None => Fate::NotDone,
        };
        // With several writes since, a write that counted Machines may be the first of them, and must not be repeated.
        let is_among_several = now.spec().generation > self.version.spec().generation + 1;
        let is_unclear = self.unanswered.is_some() && counts && is_among_several;
        match fate {
            Fate::Done => {
                self.effects.push(Effect::SizeWritten { from, version: now });
                return Stage::End(Ok(true));
            }
            Fate::NotDone if is_tried_again && !is_unclear => {}
            // The write may still be applied: nothing was refused for good.
            Fate::NotDone | Fate::Unknown => {
                return Stage::End(Err(NotDone::SizeUnknown { from, to, now: size, error }));
            }
        }
        let is_as_expected = size == from && (!counts || now.is_unchanged_since(&self.version));
        // The write was rejected although the group was as expected: by validation or a webhook.
        if error.failure() == Failure::Rejected && is_as_expected && mem::replace(&mut self.was_rejected, true) {
            let why = NotDone::Rejected { size: to, error };
            return Stage::End(Err(match self.unanswered {
                Some((from, to)) => NotDone::SizeUnread { from, to, why: Box::new(why) },
                None => why,
            }));
        }
        self.version = now;
        Stage::Round
    }

    fn fail(&mut self, why: NotDone<T>) -> Vec<Call<T>> {
        self.stage = Stage::End(Err(why));
        Vec::new()
    }
}

impl<T: Calls, P: Policy> Steps<T> for Resize<T, P> {
    fn next(&mut self, now: &impl Now<T>) -> Vec<Call<T>> {
        let mut calls = Vec::new();
        while self.open == 0 && self.end().is_none() {
            calls = self.advance(now);
            self.open = calls.len();
        }
        calls
    }

    fn took(&mut self, outcome: Outcome<T>) {
        self.open = self.open.saturating_sub(1);
        self.stage = match (mem::replace(&mut self.stage, Stage::Round), outcome) {
            (Stage::Round, Outcome::Listed(Ok(listed))) => Stage::Counted(listed),
            (Stage::Round, Outcome::Listed(Err(error))) => {
                let why = NotDone::Failed(error);
                Stage::End(Err(match self.unanswered {
                    Some((from, to)) => NotDone::SizeUnread { from, to, why: Box::new(why) },
                    None => why,
                }))
            }
            (Stage::Write(_), Outcome::Written(Ok(_))) => Stage::End(Ok(true)),
            (Stage::Write(to), Outcome::Written(Err(error))) => Stage::Failed(to, error),
            (Stage::Failed(to, error), Outcome::Paused(_, again)) => Stage::Paused(to, error, again),
            (Stage::Paused(to, error, again), Outcome::Size(Ok((now, sized_by)))) => {
                self.read(now, sized_by, (to, error, again))
            }
            (Stage::Paused(to, _, _), Outcome::Size(Err(error))) => {
                let (from, why) = (self.replicas(), NotDone::Failed(error));
                Stage::End(Err(match self.unanswered {
                    Some(_) => NotDone::SizeUnread { from, to, why: Box::new(why) },
                    None => why,
                }))
            }
            (stage, _) => stage,
        };
    }

    fn effects(&mut self) -> Vec<Effect<T>> {
        mem::take(&mut self.effects)
    }
}
