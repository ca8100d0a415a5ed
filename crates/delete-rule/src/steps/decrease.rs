//! A decrease of the target size: soft entries in the log remove Machines without a Node, and the size alone removes
//! replicas without a Machine. The decrease removes no Machine that has a Node, and stops at the min size; if only time
//! can help, it succeeds without effect.

use std::mem;

use super::{
    Call, CallerId, Calls, Carry, Effect, FailedCall as _, Failure, Group as _, Marked, NotDone, NotLowered, Now,
    Outcome, Resize, RetryBudget, RetryPolicy, Steps, lookup::Lookup, tickets::Tickets,
};
use crate::{Bounds, Complete, Entry, Life, Log, Named, Policy, Rule, Set, Shrinking};

/// A smaller target size that is being carried out.
#[derive(Clone, Debug)]
pub struct Decrease<T: Calls, P = Complete> {
    rule: Rule<P>,
    version: T::Group,
    bounds: Bounds,
    delta: i32,
    /// The caller, whose cancellation ends the decrease; `None` once something may have been written.
    caller: Option<CallerId>,
    /// `None` before the first round.
    tickets: Option<Tickets<T>>,
    /// The choice of the last round, which may have been logged.
    chosen: Option<Giving<T>>,
    has_given_way: bool,
    /// True once the size was lowered for a part of the delta.
    has_lowered: bool,
    /// True if a write of the log got no response.
    maybe_logged: bool,
    stage: Stage<T, P>,
    open: usize,
    effects: Vec<Effect<T>>,
}

/// The Machines and replicas that a smaller target size gives up.
#[derive(Clone, Debug)]
struct Giving<T: Calls> {
    /// The Machines without a Node to delete.
    machines: Vec<Named<T>>,
    /// The number of further replicas, which have no Machine.
    others: usize,
}

/// The next decision to make, or the part that is in progress.
#[derive(Clone, Debug)]
enum Stage<T: Calls, P> {
    Round,
    /// The size is being lowered for replicas without a Machine. If Machines were chosen, they are next; otherwise this
    /// is the last stage.
    GiveWay(Box<Resize<T, P>>, Option<Giving<T>>),
    Lookup(Box<Lookup<T>>, Giving<T>, Log<T>),
    Log(Giving<T>),
    Failed(T::Failed),
    Pause(T::Failed),
    Read,
    Lower(Box<Carry<T, P>>, Giving<T>, usize),
    End(Result<(), NotDone<T>>),
}

impl<T: Calls, P: Policy> Decrease<T, P> {
    /// Lowers the size by `-delta`, beginning at this version.
    pub fn new(rule: Rule<P>, version: T::Group, delta: i32, bounds: Bounds, caller: CallerId) -> Self {
        Self {
            rule,
            version,
            bounds,
            delta,
            caller: Some(caller),
            tickets: None,
            chosen: None,
            has_given_way: false,
            has_lowered: false,
            maybe_logged: false,
            stage: Stage::Round,
            open: 0,
            effects: vec![Effect::Begin(RetryBudget::Log)],
        }
    }

    /// Returns the result, once it has ended.
    pub fn end(&self) -> Option<&Result<(), NotDone<T>>> {
        if let Stage::End(end) = &self.stage { Some(end) } else { None }
    }

    fn fail(&mut self, why: NotDone<T>) -> Vec<Call<T>> {
        let why = why.unless_logged(self.maybe_logged).unless_lowered(self.has_lowered);
        self.stage = Stage::End(Err(why));
        Vec::new()
    }

    fn advance(&mut self, now: &impl Now<T>) -> Vec<Call<T>> {
        match mem::replace(&mut self.stage, Stage::Round) {
            Stage::Round => self.round(now),
            Stage::GiveWay(mut resize, chosen) => {
                let calls = resize.next(now);
                self.effects.extend(resize.effects());
                match (resize.end().cloned(), chosen) {
                    (None, chosen) => self.stage = Stage::GiveWay(resize, chosen),
                    (Some(Err(why)), _) => return self.fail(why),
                    (Some(Ok(_)), None) => self.stage = Stage::End(Ok(())),
                    (Some(Ok(has_lowered)), Some(giving)) => return self.gave_way(has_lowered, &giving, now),
                }
                calls
            }
            Stage::Lookup(mut lookup, giving, log) => match lookup.next() {
                Some(call) => {
                    self.stage = Stage::Lookup(lookup, giving, log);
                    vec![call]
                }
                None => self.log(*lookup, giving, log, now),
            },
            Stage::Failed(error) => {
                self.stage = Stage::Pause(error.clone());
                vec![Call::Pause(RetryBudget::Log, error)]
            }
            Stage::Read => {
                self.stage = Stage::Read;
                vec![Call::ReadGroup(RetryPolicy::Of(RetryBudget::Log))]
            }
            Stage::Lower(mut carry, giving, soft) => {
                let calls = carry.next(now);
                self.effects.extend(carry.effects());
                if carry.has_ended() {
                    return self.lowered(&carry, &giving, soft);
                }
                self.stage = Stage::Lower(carry, giving, soft);
                calls
            }
            stage @ (Stage::Log(_) | Stage::Pause(_) | Stage::End(_)) => {
                self.stage = stage;
                Vec::new()
            }
        }
    }

    fn round(&mut self, now: &impl Now<T>) -> Vec<Call<T>> {
        let log = match self.version.log() {
            Ok(log) => log,
            Err(error) => {
                self.effects.push(Effect::SizeSpared(NotDone::Unreadable(error)));
                self.stage = Stage::End(Ok(()));
                return Vec::new();
            }
        };
        let tickets = self.tickets.get_or_insert_with(|| Tickets::of(now.ticket()));
        // An earlier write without a response was applied, so its choice is final.
        if tickets.are_in(&log)
            && let Some(giving) = self.chosen.take()
        {
            self.caller = None;
            return self.lower(giving);
        }
        if self.maybe_logged {
            tickets.renew(now.ticket());
        }
        let giving = match self.choose(&log, now) {
            Ok(giving) => giving,
            Err(why) => return self.fail(why),
        };
        if giving.machines.is_empty() {
            self.give_way(giving.others, None);
            return Vec::new();
        }
        if giving.others > 0 && !self.has_given_way {
            // Replicas without a Machine go first: a Machine may stay even after the size was lowered for it, so it
            // counts as staying.
            self.give_way(giving.others, Some(giving));
            return Vec::new();
        }
        let giving = Giving { others: 0, ..giving };
        let (lookup, calls) = Lookup::begin((&self.version, &log), &giving.machines, false, now);
        self.stage = Stage::Lookup(Box::new(lookup), giving, log);
        calls
    }

    /// Chooses the Machines and replicas to give up, never a Machine that has a Node.
    fn choose(&self, log: &Log<T>, now: &impl Now<T>) -> Result<Giving<T>, NotDone<T>> {
        let there = now.unlogged_machines(log);
        let (replicas, mut machines) = (self.version.spec().replicas, there.waiting);
        let shrinking = self.rule.shrink(log, replicas, self.bounds.min, self.delta, (there.with_node, machines.len()));
        let Shrinking { machines: most, others } = shrinking.map_err(NotDone::Size)?;
        machines.truncate(most);
        Ok(Giving { machines, others })
    }

    /// Lowers the size for replicas without a Machine.
    fn give_way(&mut self, most: usize, then: Option<Giving<T>>) {
        if most == 0 {
            self.stage = Stage::End(Ok(()));
            return;
        }
        let resize = Resize::give_way(self.rule, self.version.clone(), most, self.bounds.min, self.caller);
        self.stage = Stage::GiveWay(Box::new(resize), then);
    }

    /// Continues with the Machines, after replicas without a Machine were given up.
    fn gave_way(&mut self, has_lowered: bool, giving: &Giving<T>, now: &impl Now<T>) -> Vec<Call<T>> {
        if has_lowered {
            (self.caller, self.has_lowered) = (None, true);
        }
        let machines = i32::try_from(giving.machines.len()).unwrap_or(i32::MAX);
        (self.delta, self.has_given_way) = (-machines, true);
        match now.view() {
            Ok(view) => self.version = view.version,
            Err(error) => return self.fail(NotDone::NotScalable(error)),
        }
        self.stage = Stage::Round;
        Vec::new()
    }

    /// Logs the Machines that are alive and haven't joined.
    fn log(&mut self, lookup: Lookup<T>, giving: Giving<T>, log: Log<T>, now: &impl Now<T>) -> Vec<Call<T>> {
        let known = lookup.end();
        for named in &giving.machines {
            match known.unread.get(&named.uid) {
                // Cluster Autoscaler would end its loop for all groups on an error.
                Some(error) if error.failure() == Failure::Final => {
                    self.effects.push(Effect::MachineSpared(named.name.clone(), error.clone()));
                }
                Some(error) => return self.failed(giving, error.clone()),
                None => {}
            }
        }
        // The reads may have taken longer than the caller waits.
        if self.caller.is_some_and(|caller| now.has_left(caller)) {
            return self.fail(NotDone::Abandoned);
        }
        let is_pending =
            |named: &&Named<T>| known.lives.get(&named.uid) == Some(&Life::Alive) && !known.joined.contains(&named.uid);
        let pending = giving.machines.iter().filter(is_pending);
        let Some(ticket) = self.tickets.as_ref().map(Tickets::current) else { return Vec::new() };
        let entries: Vec<_> = pending.map(|named| Entry::wanted(named, ticket, true)).collect();
        if entries.is_empty() {
            return self.lower(giving);
        }
        self.stage = Stage::Log(giving);
        vec![Call::WriteLog { seen: self.version.clone(), log: log.with(entries) }]
    }

    /// Handles the failure of a round.
    fn failed(&mut self, giving: Giving<T>, error: T::Failed) -> Vec<Call<T>> {
        self.chosen = Some(giving);
        self.stage = Stage::Failed(error);
        Vec::new()
    }

    /// Lowers the size for the chosen Machines that were logged. As long as no Machine is logged, a cancellation by the
    /// caller still ends the decrease.
    fn lower(&mut self, giving: Giving<T>) -> Vec<Call<T>> {
        let uids: Set<T> = giving.machines.iter().map(|named| named.uid.clone()).collect();
        let log = self.version.log().unwrap_or_default();
        let soft = uids.iter().filter(|uid| log.get(uid).is_some()).count();
        let together = vec![uids.clone()];
        let carry = Carry::new(self.rule, self.version.clone(), uids, together, self.bounds, Marked::default());
        self.stage = Stage::Lower(Box::new(carry), giving, soft);
        Vec::new()
    }

    /// Handles the end of lowering the size for the Machines.
    fn lowered(&mut self, carry: &Carry<T, P>, giving: &Giving<T>, soft: usize) -> Vec<Call<T>> {
        self.version = carry.version().clone();
        let failures = carry.failures();
        let log = self.version.log().unwrap_or_default();
        // An entry that wasn't taken back and is still in the log was lowered by another copy.
        let is_left = |named: &Named<T>| log.get(&named.uid).is_some() && !failures.contains_key(&named.uid);
        self.has_lowered |= carry.lowered() > 0 || giving.machines.iter().any(is_left);
        let failed = || giving.machines.iter().filter_map(|named| failures.get(&named.uid));
        let refusal = failed().find(|failure| !matches!(failure, NotLowered::Spared(_)));
        if let Some(refusal) = refusal {
            let why = refusal.why().clone();
            return self.fail(why);
        }
        let spared = failed().map(|failure| Effect::SizeSpared(failure.why().clone()));
        self.effects.extend(spared);
        // Cluster Autoscaler may still ask about these Machines, whose instances it knows.
        let lowered = giving.machines.iter().filter(|named| !failures.contains_key(&named.uid));
        self.effects.push(Effect::Leaving(lowered.cloned().collect()));
        // A Machine that something else deleted in the meantime is now a replica without a Machine.
        self.give_way(giving.others + giving.machines.len() - soft, None);
        Vec::new()
    }
}

impl<T: Calls, P: Policy> Steps<T> for Decrease<T, P> {
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
            (Stage::GiveWay(mut resize, chosen), outcome) => {
                resize.took(outcome);
                Stage::GiveWay(resize, chosen)
            }
            (Stage::Lookup(mut lookup, giving, log), outcome) => {
                lookup.took(outcome);
                Stage::Lookup(lookup, giving, log)
            }
            (Stage::Log(giving), Outcome::Written(Ok(version))) => {
                (self.version, self.caller) = (version, None);
                self.lower(giving);
                return;
            }
            (Stage::Log(giving), Outcome::Written(Err(error))) => {
                if error.failure() == Failure::Unknown {
                    (self.caller, self.maybe_logged) = (None, true);
                }
                self.chosen = Some(giving);
                Stage::Failed(error)
            }
            (Stage::Pause(_), Outcome::Paused(_, true)) => Stage::Read,
            (Stage::Pause(error), Outcome::Paused(_, false)) | (Stage::Read, Outcome::Group(Err(error))) => {
                self.fail(NotDone::Failed(error));
                return;
            }
            (Stage::Read, Outcome::Group(Ok(version))) => {
                self.version = version;
                Stage::Round
            }
            (Stage::Lower(mut carry, giving, soft), outcome) => {
                carry.took(outcome);
                Stage::Lower(carry, giving, soft)
            }
            (stage, _) => stage,
        };
    }

    fn effects(&mut self) -> Vec<Effect<T>> {
        mem::take(&mut self.effects)
    }
}
