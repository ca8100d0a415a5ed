//! The decision on a batch of requests, and the write that logs the accepted ones. Each request is accepted as a whole,
//! or refused before anything is written. Until something is written, a request ends when its caller leaves.

use std::{collections::VecDeque, mem};

use super::{
    Call, CallerId, Calls, Effect, FailedCall as _, Failure, Group as _, NotDone, Now, Outcome, RetryBudget,
    RetryPolicy, Steps as _, View,
    lookup::{Known, Lookup},
    replace::Replace,
    tickets::Tickets,
};
use crate::{
    Accepted, Bounds, GroupMachines, GroupState, Log, Map, Named, Policy, Refusal, Request, Rule, Types, given_up,
};

/// A request that is neither answered nor carried out.
#[derive(Clone, Debug)]
pub(super) struct PendingRequest<T: Types> {
    pub(super) caller: CallerId,
    pub(super) request: Request<T>,
    /// The result of its last acceptance.
    pub(super) accepted: Accepted<T>,
    /// The number of its placeholders that were given up recently, as this process remembers.
    given_up: usize,
    /// True if a write of the log with this request got no response. The write may still be applied, once the log is
    /// again as it was before.
    pub(super) maybe_logged: bool,
}

impl<T: Types> PendingRequest<T> {
    pub(super) fn new(caller: CallerId, request: Request<T>, given_up: usize) -> Self {
        Self { caller, request, accepted: Accepted::default(), given_up, maybe_logged: false }
    }

    /// Returns the Machines whose deletion the request asks for.
    pub(super) fn machines(&self) -> impl Iterator<Item = &Named<T>> {
        self.request.machines.iter().chain(&self.accepted.without_node)
    }

    /// Returns the number of replicas and instances for which only the size is lowered.
    pub(super) fn others(&self) -> usize {
        self.accepted.replicas + self.request.instances
    }
}

/// The requests that were accepted and logged.
#[derive(Clone, Debug)]
pub(super) struct Decided<T: Calls> {
    /// The version whose log has the accepted requests.
    pub(super) version: T::Group,
    pub(super) bounds: Bounds,
    pub(super) accepted: Vec<PendingRequest<T>>,
    /// The group's Machines, if they were counted for the decision.
    pub(super) listed: GroupMachines<T>,
    /// The versions of Machines that never joined, for their marks to test.
    pub(super) versions: Map<T, T::Version>,
}

/// A decision in progress.
#[derive(Clone, Debug)]
pub(super) struct Decision<T: Calls, P> {
    rule: Rule<P>,
    pending: Vec<PendingRequest<T>>,
    /// `None` before the first round.
    tickets: Option<Tickets<T>>,
    /// The version that was read for the next round.
    read: Option<T::Group>,
    /// The version on which the last write was rejected.
    rejected_at: Option<T::Group>,
    first_size: Option<i32>,
    maybe_logged: bool,
    stage: Stage<T>,
    open: usize,
    effects: Vec<Effect<T>>,
}

/// The next decision to make, or the call whose outcome is awaited.
#[derive(Clone, Debug)]
enum Stage<T: Calls> {
    Round,
    Lookup(Box<Lookup<T>>, Box<Round<T>>),
    /// Machines are being replaced, one at a time, for requests that the minimum doesn't permit.
    Replace(VecDeque<(PendingRequest<T>, Replace<T>)>, Box<Decided<T>>, Option<Log<T>>),
    Write(Box<Decided<T>>, Option<Log<T>>),
    Failed(T::Group, T::Failed),
    Pause(T::Failed),
    Read,
    End(Option<Box<Decided<T>>>),
}

/// The view that a round decides on.
#[derive(Clone, Debug)]
struct Round<T: Calls> {
    view: View<T>,
    version: T::Group,
    log: Log<T>,
    came_down: i32,
}

impl<T: Calls, P: Policy> Decision<T, P> {
    pub(super) fn new(rule: Rule<P>, pending: Vec<PendingRequest<T>>) -> Self {
        Self {
            rule,
            pending,
            tickets: None,
            read: None,
            rejected_at: None,
            first_size: None,
            maybe_logged: false,
            stage: Stage::Round,
            open: 0,
            effects: vec![Effect::Begin(RetryBudget::Log)],
        }
    }

    /// Returns true once the decision is made.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.stage, Stage::End(_))
    }

    /// Returns the requests that were accepted, or `None` if there are none.
    pub(super) fn end(self) -> Option<Decided<T>> {
        match self.stage {
            Stage::End(decided) => decided.map(|decided| *decided),
            _ => None,
        }
    }

    pub(super) fn next(&mut self, now: &impl Now<T>) -> Vec<Call<T>> {
        let mut calls = Vec::new();
        while self.open == 0 && !self.has_ended() {
            calls = self.advance(now);
            self.open = calls.len();
        }
        calls
    }

    fn advance(&mut self, now: &impl Now<T>) -> Vec<Call<T>> {
        match mem::replace(&mut self.stage, Stage::End(None)) {
            Stage::Round => self.round(now),
            Stage::Lookup(mut lookup, round) => {
                let call = lookup.next();
                if lookup.has_ended() {
                    self.decide(*lookup, *round, now);
                } else {
                    self.stage = Stage::Lookup(lookup, round);
                }
                call.into_iter().collect()
            }
            Stage::Replace(mut replaced, decided, log) => {
                let Some((one, replace)) = replaced.front_mut() else {
                    self.stage = Stage::Write(decided, log);
                    return Vec::new();
                };
                let calls = replace.next(now);
                self.effects.extend(replace.effects());
                if let Some(end) = replace.end().cloned() {
                    let end = end.map_err(|why| why.unless_logged(one.maybe_logged));
                    self.effects.push(Effect::Answer(one.caller, end));
                    replaced.pop_front();
                }
                self.stage = Stage::Replace(replaced, decided, log);
                calls
            }
            Stage::Write(decided, None) => {
                self.stage = Stage::End(Some(decided));
                Vec::new()
            }
            Stage::Write(decided, Some(log)) => {
                let call = Call::WriteLog { seen: decided.version.clone(), log: log.clone() };
                self.stage = Stage::Write(decided, Some(log));
                vec![call]
            }
            Stage::Failed(version, error) => self.failed(version, error),
            Stage::Read => {
                self.stage = Stage::Read;
                vec![Call::ReadGroup(RetryPolicy::Of(RetryBudget::Log))]
            }
            Stage::Pause(_) | Stage::End(_) => Vec::new(),
        }
    }

    fn round(&mut self, now: &impl Now<T>) -> Vec<Call<T>> {
        if self.pending.is_empty() {
            return Vec::new();
        }
        let view = match now.view() {
            Ok(view) => view,
            Err(error) => return self.refuse_all(&NotDone::NotScalable(error)),
        };
        let version = self.read.take().unwrap_or_else(|| view.version.clone());
        let log = match version.log() {
            Ok(log) => log,
            Err(error) => return self.refuse_all(&NotDone::Unreadable(error)),
        };
        let tickets = self.tickets.get_or_insert_with(|| Tickets::of(now.ticket()));
        if tickets.are_in(&log) {
            // The log shows that a write whose response was lost was applied: none of its requests is refused any more,
            // nor ends with its caller.
            let pending = mem::take(&mut self.pending).into_iter();
            let accepted = pending.map(|one| PendingRequest { maybe_logged: true, ..one }).collect();
            let (listed, versions) = (GroupMachines::default(), Map::<T, _>::default());
            let decided = Decided { version, bounds: view.bounds, accepted, listed, versions };
            self.stage = Stage::End(Some(Box::new(decided)));
            return Vec::new();
        }
        if self.maybe_logged {
            tickets.renew(now.ticket());
        }
        self.abandon(now);
        let replicas = version.spec().replicas;
        let came_down = self.first_size.get_or_insert(replicas).saturating_sub(replicas);
        let named = self.pending.iter().flat_map(|one| &one.request.machines);
        let counts = self.pending.iter().any(|one| !one.request.is_of_machines());
        let (lookup, calls) = Lookup::begin((&version, &log), named, counts, now);
        let round = Round { view, version, log, came_down };
        self.stage = Stage::Lookup(Box::new(lookup), Box::new(round));
        calls
    }

    /// Ends the requests whose callers have left.
    fn abandon(&mut self, now: &impl Now<T>) {
        let (gone, waiting) = mem::take(&mut self.pending).into_iter().partition(|one| now.has_left(one.caller));
        self.pending = waiting;
        let gone: Vec<PendingRequest<T>> = gone;
        self.effects.extend(gone.into_iter().map(|one| Effect::Answer(one.caller, Err(NotDone::Abandoned))));
    }

    /// Accepts the requests that can be accepted. Callers are checked again, because the reads may have taken as long
    /// as a caller waits.
    fn decide(&mut self, lookup: Lookup<T>, round: Round<T>, now: &impl Now<T>) {
        let known = lookup.end();
        self.abandon(now);
        if let Err(error) = self.keep_read(&known) {
            self.stage = Stage::Failed(round.version, error);
            return;
        }
        if self.pending.is_empty() {
            return;
        }
        let Some(ticket) = self.tickets.as_ref().map(|tickets| tickets.current().clone()) else { return };
        let remembered = self.pending.iter().map(|one| one.given_up).sum();
        let state = GroupState {
            log: &round.log,
            replicas: round.version.spec().replicas,
            bounds: round.view.bounds,
            lives: &known.lives,
            joined: &known.joined,
            listed: &known.listed,
            counts_deleting: now.counts_deleting(),
            given_up: given_up(&round.log, &known.listed, round.came_down, remembered),
        };
        let mut acceptance = self.rule.acceptance(state, ticket);
        let (mut accepted, mut replaced) = (Vec::new(), VecDeque::new());
        let maybe_logged = self.maybe_logged;
        for mut one in mem::take(&mut self.pending) {
            if let Some(rollout) = &round.view.rollout
                && !self.rule.admits_in_rollout(&mut one.request, &round.log, &known.lives)
            {
                self.answer(one.caller, NotDone::RollingOut(rollout.clone()));
                continue;
            }
            match acceptance.accept(&one.request) {
                Ok(to) => accepted.push(PendingRequest { accepted: to, maybe_logged, ..one }),
                Err(Refusal::BelowMin(below)) if !maybe_logged => {
                    let replace = Replace::new(one.request.clone(), round.log.clone(), below);
                    replaced.push_back((one, replace));
                }
                Err(refusal) => self.answer(one.caller, NotDone::Refused(refusal)),
            }
        }
        let log = acceptance.log().cloned();
        let Known { listed, versions, .. } = known;
        let (version, bounds) = (round.version.clone(), round.view.bounds);
        let decided = Box::new(Decided { version, bounds, accepted, listed, versions });
        self.stage = Stage::Replace(replaced, decided, log);
    }

    /// Keeps the requests whose Machines could all be read, and counted where that matters, so that a failed read holds
    /// up no other request. The rest is refused, or deferred if a retry may help. If no other request is left, it is
    /// kept instead of deferred. A request that may have been logged is neither refused for good nor decided again,
    /// because the write of the log may still be applied.
    ///
    /// # Errors
    /// Returns the failure if no other request is left.
    fn keep_read(&mut self, known: &Known<T>) -> Result<(), T::Failed> {
        let (mut ready, mut open, mut failures) = (Vec::new(), Vec::new(), Vec::new());
        for one in mem::take(&mut self.pending) {
            let unread = one.request.machines.iter().filter(|named| known.unread.contains_key(&named.uid));
            let unread: Vec<_> = unread.cloned().collect();
            let failure = match unread.first() {
                Some(named) => known.unread.get(&named.uid).cloned(),
                None if one.request.is_of_machines() => None,
                None => known.uncounted.clone(),
            };
            if !unread.is_empty() {
                self.effects.push(Effect::Undeletable(unread));
            }
            match failure {
                None => ready.push(one),
                Some(error) if error.failure() == Failure::Final && !self.maybe_logged => {
                    self.answer(one.caller, NotDone::Failed(error));
                }
                Some(error) => {
                    open.push(one);
                    failures.push(error);
                }
            }
        }
        let may_help = |error: &&T::Failed| error.failure() != Failure::Final;
        if ready.is_empty()
            && let Some(failure) = failures.iter().find(may_help).or(failures.first())
        {
            self.pending = open;
            return Err(failure.clone());
        }
        for (one, failure) in open.into_iter().zip(failures) {
            if self.maybe_logged {
                self.answer(one.caller, NotDone::Failed(failure));
            } else {
                self.effects.push(Effect::Deferred(one.caller));
            }
        }
        self.pending = ready;
        Ok(())
    }

    /// Handles the failure of a round.
    fn failed(&mut self, version: T::Group, error: T::Failed) -> Vec<Call<T>> {
        // The Machines are reported now, because their callers may have left by the next attempt.
        if !error.failure().is_of_the_object() {
            self.note_undeletable(&error);
        }
        let is_rejected = error.failure() == Failure::Rejected;
        if is_rejected && self.rejected_at.as_ref() == Some(&version) && !self.maybe_logged {
            self.note_undeletable(&error);
            return self.refuse_all(&NotDone::Rejected { size: version.spec().replicas, error });
        }
        self.rejected_at = is_rejected.then_some(version);
        self.stage = Stage::Pause(error.clone());
        vec![Call::Pause(RetryBudget::Log, error)]
    }

    fn note_undeletable(&mut self, error: &T::Failed) {
        if !error.was_sent() {
            return;
        }
        let machines = self.pending.iter().flat_map(|one| &one.request.machines);
        self.effects.push(Effect::Undeletable(machines.cloned().collect()));
    }

    fn answer(&mut self, caller: CallerId, why: NotDone<T>) {
        self.effects.push(Effect::Answer(caller, Err(why.unless_logged(self.maybe_logged))));
    }

    fn refuse_all(&mut self, why: &NotDone<T>) -> Vec<Call<T>> {
        for one in mem::take(&mut self.pending) {
            self.answer(one.caller, why.clone());
        }
        self.stage = Stage::End(None);
        Vec::new()
    }

    pub(super) fn took(&mut self, outcome: Outcome<T>) {
        self.open = self.open.saturating_sub(1);
        self.stage = match (mem::replace(&mut self.stage, Stage::End(None)), outcome) {
            (Stage::Lookup(mut lookup, round), outcome) => {
                lookup.took(outcome);
                Stage::Lookup(lookup, round)
            }
            (Stage::Replace(mut replaced, decided, log), outcome) => {
                if let Some((_, replace)) = replaced.front_mut() {
                    replace.took(outcome);
                }
                Stage::Replace(replaced, decided, log)
            }
            (Stage::Write(decided, _), Outcome::Written(Ok(version))) => {
                Stage::End(Some(Box::new(Decided { version, ..*decided })))
            }
            (Stage::Write(decided, _), Outcome::Written(Err(error))) => {
                // The write may have been applied: then the next round finds these requests in the log.
                self.maybe_logged |= error.failure() == Failure::Unknown;
                let Decided { version, accepted, .. } = *decided;
                self.pending = accepted;
                Stage::Failed(version, error)
            }
            (Stage::Pause(_), Outcome::Paused(_, true)) => Stage::Read,
            (Stage::Pause(error), Outcome::Paused(_, false)) | (Stage::Read, Outcome::Group(Err(error))) => {
                self.note_undeletable(&error);
                self.refuse_all(&NotDone::Failed(error));
                Stage::End(None)
            }
            (Stage::Read, Outcome::Group(Ok(version))) => {
                self.read = Some(version);
                Stage::Round
            }
            (stage, _) => stage,
        };
    }

    pub(super) fn effects(&mut self) -> Vec<Effect<T>> {
        mem::take(&mut self.effects)
    }
}
