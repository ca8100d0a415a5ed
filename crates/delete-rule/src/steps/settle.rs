//! A pass of a finisher, carried out call by call: it deletes by name the Machines that a smaller size has left,
//! corrects marks, and removes finished entries from the log. A failure must never hold up the rest; the first
//! one is reported at the end. It must never delete a Machine by name without checking the known state of the group
//! just before the call.

use std::{collections::VecDeque, mem};

use super::{
    Call, Calls, Effect, FailedCall as _, Failure, Group as _, Mark, NotMarked, Now, Outcome, RetryBudget, RetryPolicy,
    SIDE_BY_SIDE, Steps, machine_of,
    mark::{Marks, mark_that_stays},
};
use crate::{Complete, Entry, Finish, Followed, Life, Log, Map, Member, Policy, Reconcile, ReconcileCall, Rule};

/// A Machine of the group whose mark can be removed.
pub trait MarkedMember<T: Calls>: Member<T> {
    /// Returns the name.
    fn name(&self) -> T::Name;
    /// Returns the version in the view.
    fn version(&self) -> T::Version;
}

/// A pass in progress.
#[derive(Clone, Debug)]
pub struct Settle<T: Calls, M, P = Complete> {
    rule: Rule<P>,
    reconcile: Reconcile<T, M, P>,
    /// The version that was viewed, and the size of the MachineSets then.
    viewed: (T::Group, i64),
    /// The calls of the current stage that aren't made yet.
    waiting: VecDeque<ReconcileCall<T, M>>,
    /// The entries whose Machines are being read or deleted.
    awaited: Map<T, Entry<T>>,
    marks: Marks<T, P>,
    /// The log and its followed entries, once the group was read.
    read: Read<T, P>,
    failure: Option<T::Failed>,
    stage: Stage<T>,
    /// The number of calls in progress.
    open: usize,
    effects: Vec<Effect<T>>,
}

/// The group as the pass has read it.
#[derive(Clone, Debug)]
enum Read<T: Calls, P> {
    /// The group wasn't read, or isn't a node group any more.
    Not,
    /// The group was read just now.
    JustNow,
    Log(Log<T>, Followed<T, P>),
}

/// The next step, or the call whose outcome is awaited.
#[derive(Clone, Debug)]
enum Stage<T: Calls> {
    Pass,
    /// The finished entries are removed from the log of this version.
    Forget(T::Group),
    Write(Log<T>),
    Failed(T::Failed),
    Pause(T::Failed),
    Read,
    Reading,
    End,
}

impl<T: Calls, M: MarkedMember<T>, P: Policy> Settle<T, M, P> {
    /// Begins with the steps that a view of the group suggests, the version that was viewed, and the size of the
    /// MachineSets that have its Machines.
    pub fn new(
        rule: Rule<P>,
        version: T::Group,
        steps: impl IntoIterator<Item = Finish<T, M>>,
        size_of_sets: i64,
    ) -> Self {
        Self {
            rule,
            reconcile: rule.reconcile(steps),
            viewed: (version, size_of_sets),
            waiting: VecDeque::new(),
            awaited: Map::<T, _>::default(),
            marks: Marks::new(),
            read: Read::Not,
            failure: None,
            stage: Stage::Pass,
            open: 0,
            effects: Vec::new(),
        }
    }

    /// Returns the first failure, if there was one.
    pub fn failure(&self) -> Option<&T::Failed> {
        self.failure.as_ref()
    }

    /// Returns true at the end.
    pub fn has_ended(&self) -> bool {
        matches!(self.stage, Stage::End)
    }

    /// Returns the calls of the pass that can be made now.
    fn pass(&mut self, now: &impl Now<T>) -> Vec<Call<T>> {
        if matches!(self.read, Read::JustNow) {
            self.read = match self.group(now) {
                Some((log, followed)) => Read::Log(log, followed),
                None => Read::Not,
            };
        }
        let mut calls = self.marks.next(now);
        loop {
            while self.open + calls.len() < SIDE_BY_SIDE
                && let Some(call) = self.waiting.pop_front()
            {
                calls.extend(self.begin(call, now));
            }
            if self.open + calls.len() > 0 {
                return calls;
            }
            let read = match &self.read {
                Read::Log(log, followed) => Some((log, followed)),
                Read::Not | Read::JustNow => None,
            };
            self.waiting.extend(self.reconcile.next(read));
            if self.waiting.is_empty() {
                self.end_pass(now);
                return calls;
            }
        }
    }

    /// Begins a call of the pass. Returns `None` if its outcome is known, or if the call isn't needed any more.
    fn begin(&mut self, call: ReconcileCall<T, M>, now: &impl Now<T>) -> Option<Call<T>> {
        match call {
            // The group doesn't wait for a Machine of another group.
            ReconcileCall::Read(entry) if now.is_stranger(&entry) => {
                self.reconcile.took_life(entry, Life::Gone);
                None
            }
            ReconcileCall::Read(entry) => {
                let named = machine_of(&entry);
                self.awaited.insert(entry.uid.clone(), entry);
                Some(Call::Read(named))
            }
            ReconcileCall::ReadGroup => Some(Call::ReadGroup(RetryPolicy::Once)),
            ReconcileCall::Delete(entry) => {
                // The call is made right after this check.
                let (log, followed) = self.group(now)?;
                if !self.reconcile.permits(&entry, (&log, &followed)) {
                    return None;
                }
                let machine = machine_of(&entry);
                self.awaited.insert(entry.uid.clone(), entry);
                Some(Call::Delete { machine, version: None })
            }
            ReconcileCall::Mark(entry) => {
                self.marks.begin(Mark::new(self.rule, entry, None));
                self.marks.next(now).pop()
            }
            ReconcileCall::Unmark(machine) => {
                Some(Call::Unmark { name: machine.name(), ticket: machine.ticket()?, version: machine.version() })
            }
            ReconcileCall::List => Some(Call::List(RetryPolicy::Once)),
        }
    }

    /// Returns the group's log as it is known now, and the followed entries of it.
    fn group(&self, now: &impl Now<T>) -> Option<(Log<T>, Followed<T, P>)> {
        let (version, followed) = now.followed(self.rule)?;
        Some((version.log().ok()?, followed))
    }

    fn end_pass(&mut self, now: &impl Now<T>) {
        self.stage = if self.reconcile.is_idle() {
            Stage::End
        } else {
            self.effects.push(Effect::Begin(RetryBudget::Log));
            Stage::Forget(now.followed(self.rule).map_or_else(|| self.viewed.0.clone(), |(version, _)| version))
        };
    }

    /// Removes the finished entries from the log of a version, which the write tests.
    fn forget(&mut self, version: T::Group, now: &impl Now<T>) -> Vec<Call<T>> {
        let are_followed = |log: &Log<T>| self.group(now).is_some_and(|(_, followed)| followed.has_all(log));
        let left = version.log().ok().and_then(|log| self.reconcile.left_of(&log, are_followed));
        let Some(left) = left else { return Vec::new() };
        self.stage = Stage::Write(left.clone());
        vec![Call::WriteLog { seen: version, log: left }]
    }

    /// Takes the next step and returns its calls; none if another step follows.
    fn advance(&mut self, now: &impl Now<T>) -> Vec<Call<T>> {
        match mem::replace(&mut self.stage, Stage::End) {
            Stage::Pass => {
                self.stage = Stage::Pass;
                self.pass(now)
            }
            Stage::Forget(version) => self.forget(version, now),
            Stage::Failed(failure) => {
                self.stage = Stage::Pause(failure.clone());
                vec![Call::Pause(RetryBudget::Log, failure)]
            }
            Stage::Read => {
                self.stage = Stage::Reading;
                vec![Call::ReadGroup(RetryPolicy::Of(RetryBudget::Log))]
            }
            stage @ (Stage::Write(_) | Stage::Pause(_) | Stage::Reading | Stage::End) => {
                self.stage = stage;
                Vec::new()
            }
        }
    }

    fn fail(&mut self, failure: T::Failed) {
        self.failure.get_or_insert(failure);
    }

    /// Takes the outcome of a call of the pass.
    fn took_of_look(&mut self, outcome: Outcome<T>) {
        self.effects.extend(mark_that_stays(&outcome));
        match outcome {
            Outcome::Life(uid, life) => match (self.awaited.remove(&uid), life) {
                (Some(entry), Ok(life)) => self.reconcile.took_life(entry, life),
                (_, Err(failure)) => self.fail(failure),
                (None, Ok(_)) => {}
            },
            Outcome::Group(Ok(_)) => {
                self.reconcile.took_group();
                self.read = Read::JustNow;
            }
            Outcome::Deleted(uid, deleted) => match (self.awaited.remove(&uid), deleted) {
                (Some(entry), Ok(true)) => self.effects.push(Effect::DeletedByName(entry)),
                // The Machine is gone, or another one has its name.
                (_, Err(failure)) if failure.failure() != Failure::Conflict => self.fail(failure),
                (_, Ok(_) | Err(_)) => {}
            },
            Outcome::Mark(entry, outcome) => {
                if let Some(Err(NotMarked::Failed(failure))) = self.marks.took(&entry, outcome) {
                    self.fail(failure);
                }
            }
            // The Machine has changed, so it is looked at again.
            Outcome::Unmarked(_, Err(failure)) if failure.failure() == Failure::Rejected => {}
            Outcome::Listed(Ok(listed)) => self.reconcile.took_list(&listed.alive, self.viewed.1),
            Outcome::Group(Err(failure)) | Outcome::Unmarked(_, Err(failure)) | Outcome::Listed(Err(failure)) => {
                self.fail(failure);
            }
            _ => {}
        }
    }

    /// Reports the entries that have left the log.
    fn forgot(&mut self, left: &Log<T>) {
        let over = self.reconcile.over().filter(|entry| left.get(&entry.uid) != Some(*entry));
        self.effects.push(Effect::Over(over.cloned().collect()));
    }
}

impl<T: Calls, M: MarkedMember<T>, P: Policy> Steps<T> for Settle<T, M, P> {
    fn next(&mut self, now: &impl Now<T>) -> Vec<Call<T>> {
        let mut calls = Vec::new();
        if self.open > 0 && matches!(self.stage, Stage::Pass) {
            calls = self.pass(now);
        }
        while calls.is_empty() && self.open == 0 && !self.has_ended() {
            calls = self.advance(now);
        }
        self.open += calls.len();
        calls
    }

    fn took(&mut self, outcome: Outcome<T>) {
        self.open = self.open.saturating_sub(1);
        self.stage = match (mem::replace(&mut self.stage, Stage::End), outcome) {
            (Stage::Pass, outcome) => {
                self.took_of_look(outcome);
                Stage::Pass
            }
            (Stage::Write(left), Outcome::Written(Ok(_))) => {
                self.forgot(&left);
                Stage::End
            }
            (Stage::Write(_), Outcome::Written(Err(failure))) => Stage::Failed(failure),
            (Stage::Pause(_), Outcome::Paused(_, true)) => Stage::Read,
            (Stage::Pause(failure), Outcome::Paused(_, false)) | (Stage::Reading, Outcome::Group(Err(failure))) => {
                self.fail(failure);
                Stage::End
            }
            (Stage::Reading, Outcome::Group(Ok(version))) => Stage::Forget(version),
            (stage, _) => stage,
        };
    }

    fn effects(&mut self) -> Vec<Effect<T>> {
        mem::take(&mut self.effects)
    }
}
