//! A batch of delete requests, from acceptance to answers. Requests that arrive while the Machines are being marked
//! join the batch: they are accepted separately, and the size is lowered once for all.

use std::{collections::VecDeque, mem};

use super::{
    Call, CallerId, Calls, Carry, Effect, Group as _, Mark, Marked, NotDone, NotLowered, Now, Outcome, Resize,
    SIDE_BY_SIDE, Steps,
    decision::{Decided, Decision, PendingRequest},
    mark::Marks,
};
use crate::{
    Bounds, Complete, Entry, GroupMachines, Life, Log, Map, Named, Phase, Placeholders, Policy, Request, Rule, Set,
};

/// A batch of deletions in progress.
#[derive(Clone, Debug)]
pub struct Deletion<T: Calls, P = Complete> {
    rule: Rule<P>,
    /// The decision on the first requests, and later on those that join.
    decision: Option<Decision<T, P>>,
    /// True while the batch waits for requests that may join.
    awaits_joins: bool,
    /// True while the size must not be lowered, even if all Machines are marked.
    is_held: bool,
    batch: Option<Batch<T, P>>,
    stage: Stage<T, P>,
    effects: Vec<Effect<T>>,
}

/// The requests for which the size is lowered together.
#[derive(Clone, Debug)]
struct Batch<T: Calls, P> {
    /// The version whose log has the last accepted requests.
    version: T::Group,
    bounds: Bounds,
    /// The requests that aren't answered yet.
    deletes: Vec<PendingRequest<T>>,
    /// The group's Machines, if they were counted for the last acceptance.
    listed: GroupMachines<T>,
    /// The versions of Machines that never joined, for their marks to test.
    versions: Map<T, T::Version>,
    /// True if the log has wanted Machines of the batch, so that it goes on without its callers.
    is_logged: bool,
    /// The entries that are still to be marked.
    waiting: VecDeque<Entry<T>>,
    /// The entries whose marks were begun, by ticket.
    begun: Map<T, T::Ticket>,
    marking: Marks<T, P>,
    marked: Marked<T>,
}

/// The part that is in progress.
#[derive(Clone, Debug)]
enum Stage<T: Calls, P> {
    /// Requests are being decided, and Machines marked.
    Mark,
    Lower(Box<Carry<T, P>>),
    /// The size is being lowered for replicas and instances without a Machine.
    GiveUp(Box<Resize<T, P>>, Log<T>),
    /// The Machines that needed nothing are being read again.
    CheckMachines {
        log: Log<T>,
        given_up: Result<(), NotDone<T>>,
        lives: Map<T, Result<Life, T::Failed>>,
        open: usize,
    },
    End,
}

impl<T: Calls, P: Policy> Batch<T, P> {
    /// Returns true if the batch lowers the size for replicas or instances without a Machine. Their number was counted
    /// when the requests were decided, so no other request may join.
    fn has_others(&self) -> bool {
        self.deletes.iter().any(|one| one.others() > 0)
    }

    /// Returns the caller whose deadline ends the write: the only one, since none of several callers may end it.
    fn only_caller(&self) -> Option<CallerId> {
        match self.deletes.as_slice() {
            [one] if !self.is_logged => Some(one.caller),
            _ => None,
        }
    }

    /// Returns the calls of the marks that can be made now. After a failure no further mark is begun.
    fn marks(&mut self, rule: Rule<P>, now: &impl Now<T>) -> Vec<Call<T>> {
        while self.marking.len() < SIDE_BY_SIDE
            && self.marked.failures.is_empty()
            && let Some(entry) = self.waiting.pop_front()
        {
            // An entry that somebody else wrote into the log is left to the step that lowers the size.
            let is_begun = self.begun.get(&entry.uid) == Some(&entry.ticket);
            if !is_begun && !now.is_stranger(&entry) {
                self.begun.insert(entry.uid.clone(), entry.ticket.clone());
                let version = self.versions.get(&entry.uid).cloned();
                self.marking.begin(Mark::new(rule, entry, version));
            }
        }
        self.marking.next(now)
    }
}

impl<T: Calls, P: Policy> Deletion<T, P> {
    /// Begins with a batch of requests: each with its caller and the number of its placeholders that were given up
    /// recently.
    pub fn new(rule: Rule<P>, requests: impl IntoIterator<Item = (CallerId, Request<T>, usize)>) -> Self {
        let mut deletion = Self {
            rule,
            decision: None,
            awaits_joins: false,
            is_held: false,
            batch: None,
            stage: Stage::Mark,
            effects: Vec::new(),
        };
        deletion.decide(requests);
        deletion
    }

    fn decide(&mut self, requests: impl IntoIterator<Item = (CallerId, Request<T>, usize)>) {
        let pending =
            requests.into_iter().map(|(caller, request, given_up)| PendingRequest::new(caller, request, given_up));
        self.decision = Some(Decision::new(self.rule, pending.collect()));
    }

    /// Returns true if further requests may join. None may after a failure.
    pub fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Mark) && self.may_be_joined()
    }

    /// Returns true if further requests may join while Machines are being marked.
    fn may_be_joined(&self) -> bool {
        let is_open = |batch: &Batch<T, P>| batch.marked.failures.is_empty() && !batch.has_others();
        self.decision.is_none() && !self.awaits_joins && self.batch.as_ref().is_some_and(is_open)
    }

    /// Waits for requests that [join](Self::join).
    pub fn await_joins(&mut self) {
        self.awaits_joins = true;
    }

    /// Doesn't lower the size until [released](Self::release), while further requests may join.
    pub fn hold(&mut self) {
        self.is_held = true;
    }

    /// Returns true while the size must not be lowered.
    pub fn is_held(&self) -> bool {
        self.is_held && self.is_open()
    }

    /// Lets the size be lowered.
    pub fn release(&mut self) {
        self.is_held = false;
    }

    /// Adds requests that join.
    pub fn join(&mut self, requests: impl IntoIterator<Item = (CallerId, Request<T>, usize)>) {
        self.awaits_joins = false;
        self.decide(requests);
    }

    /// Returns true at the end: all callers are answered or deferred.
    pub fn has_ended(&self) -> bool {
        matches!(self.stage, Stage::End)
    }

    /// Adds a decision to the batch. A request that needs nothing is answered at once: it doesn't depend on the rest.
    fn take_in(&mut self, decided: Decided<T>) {
        let Decided { version, bounds, accepted, listed, versions } = decided;
        let log = version.log().unwrap_or_default();
        let batch = self.batch.get_or_insert_with(|| Batch {
            version: version.clone(),
            bounds,
            deletes: Vec::new(),
            listed: GroupMachines::default(),
            versions: Map::<T, _>::default(),
            is_logged: false,
            waiting: VecDeque::new(),
            begun: Map::<T, _>::default(),
            marking: Marks::new(),
            marked: Marked::default(),
        });
        for one in accepted {
            let entries = || one.machines().filter_map(|named| log.get(&named.uid));
            let wanted: Vec<_> = entries().filter(|entry| entry.phase == Phase::Wanted).cloned().collect();
            // If a response was lost, an entry that isn't in the log may have been taken back by another copy.
            let is_known = !one.maybe_logged || entries().count() == one.machines().count();
            if wanted.is_empty() && one.others() == 0 && is_known {
                self.effects.push(Effect::Answer(one.caller, Ok(())));
            } else {
                batch.is_logged |= !wanted.is_empty();
                batch.waiting.extend(wanted);
                batch.deletes.push(one);
            }
        }
        (batch.version, batch.bounds, batch.listed) = (version, bounds, listed);
        batch.versions.extend(versions);
    }

    /// Returns the calls of the decision and the marks; none once everything is decided and marked.
    fn mark(&mut self, now: &impl Now<T>) -> Vec<Call<T>> {
        let mut calls = Vec::new();
        if let Some(decision) = &mut self.decision {
            calls = decision.next(now);
            self.effects.extend(decision.effects());
            self.end_decision();
        }
        calls.extend(self.batch.iter_mut().flat_map(|batch| batch.marks(self.rule, now)));
        calls
    }

    fn end_decision(&mut self) {
        if self.decision.as_ref().is_some_and(Decision::has_ended)
            && let Some(decided) = self.decision.take().and_then(Decision::end)
        {
            self.take_in(decided);
        }
    }

    /// Lowers the size for the marked Machines.
    fn begin_lowering(&mut self) {
        let Some(batch) = &mut self.batch else {
            self.stage = Stage::End;
            return;
        };
        let uids = |one: &PendingRequest<T>| one.machines().map(|named| named.uid.clone()).collect::<Set<T>>();
        let requests: Vec<_> = batch.deletes.iter().map(uids).collect();
        let all = requests.iter().flatten().cloned().collect();
        let (marked, version) = (mem::take(&mut batch.marked), batch.version.clone());
        let carry = Carry::new(self.rule, version, all, requests, batch.bounds, marked);
        self.stage = Stage::Lower(Box::new(carry));
    }

    /// Answers the requests with a failed Machine. For the others, continues with the replicas and instances without a
    /// Machine.
    fn end_lowering(&mut self, carry: &Carry<T, P>) {
        let Some(batch) = &mut self.batch else { return };
        let (version, failures) = (carry.version().clone(), carry.failures());
        let after = version.log();
        let log = after.clone().unwrap_or_default();
        let has_machines = batch.deletes.iter().any(|one| one.machines().next().is_some());
        let mut standing = Vec::new();
        for one in mem::take(&mut batch.deletes) {
            let failed = || one.machines().filter_map(|named| failures.get(&named.uid));
            let is_pending = |failure: &&NotLowered<T>| matches!(failure, NotLowered::Pending(_));
            let Some(failure) = failed().find(is_pending).or_else(|| failed().next()) else {
                standing.push(one);
                continue;
            };
            // A refusal ends the whole request, except for entries that another copy has lowered by then.
            let is_left = |named: &Named<T>| !failures.contains_key(&named.uid) && log.get(&named.uid).is_some();
            let why = failure.why().clone().of_part(one.machines().any(is_left));
            self.effects.push(Effect::Answer(one.caller, Err(why.unless_logged(one.maybe_logged))));
        }
        batch.deletes = standing;
        let log = match after {
            Ok(log) => log,
            Err(error) => {
                let why = NotDone::Unreadable(error);
                let callers = mem::take(&mut batch.deletes).into_iter().map(|one| one.caller);
                self.effects.extend(callers.map(|caller| Effect::Answer(caller, Err(why.clone()))));
                self.stage = Stage::End;
                return;
            }
        };
        let replicas: usize = batch.deletes.iter().map(|one| one.accepted.replicas).sum();
        let instances: usize = batch.deletes.iter().map(|one| one.request.instances).sum();
        if replicas + instances == 0 {
            self.stage = Stage::check_machines(log, Ok(()));
            return;
        }
        let lowered = i32::try_from(carry.lowered()).unwrap_or(i32::MAX);
        let from = batch.version.spec().replicas.saturating_sub(lowered);
        let listed = (!has_machines).then(|| batch.listed.clone());
        let placeholders = (Placeholders { replicas, instances, from }, batch.bounds, listed);
        let resize = Resize::give_up(self.rule, version, placeholders, batch.only_caller());
        self.stage = Stage::GiveUp(Box::new(resize), log);
    }

    /// Reads the Machines that have no entry: they were deleted or gone already, or another copy has taken them back.
    fn check_machines(&mut self, now: &impl Now<T>) -> Vec<Call<T>> {
        let (Stage::CheckMachines { log, open, .. }, Some(batch)) = (&mut self.stage, &self.batch) else {
            return Vec::new();
        };
        let is_open = |named: &&Named<T>| log.get(&named.uid).is_none() && now.has_machine(named);
        let named = batch.deletes.iter().flat_map(PendingRequest::machines).filter(is_open);
        let reads: Vec<_> = named.cloned().map(Call::Read).collect();
        *open = reads.len();
        reads
    }

    /// Answers the remaining callers.
    fn answer(&mut self) {
        let Stage::CheckMachines { log, given_up, lives, .. } = mem::replace(&mut self.stage, Stage::End) else {
            return;
        };
        let Some(batch) = &mut self.batch else { return };
        for one in mem::take(&mut batch.deletes) {
            let mut end = Ok(());
            for named in one.machines().filter(|named| log.get(&named.uid).is_none()) {
                end = match lives.get(&named.uid) {
                    None | Some(Ok(Life::Gone | Life::Deleting)) => continue,
                    Some(Ok(Life::Alive)) => Err(NotDone::GivenUp(named.name.clone())),
                    Some(Err(error)) => {
                        self.effects.push(Effect::Undeletable(vec![named.clone()]));
                        Err(NotDone::Failed(error.clone()))
                    }
                };
                break;
            }
            // Only the part without a Machine may have failed.
            let end = if one.others() == 0 { end } else { end.and_then(|()| given_up.clone()) };
            let goes_on = one.machines().any(|named| log.get(&named.uid).is_some());
            let end = end.map_err(|why| why.of_part(goes_on).unless_logged(one.maybe_logged));
            self.effects.push(Effect::Answer(one.caller, end));
        }
    }

    /// Begins the next part if the current one has ended. Returns true if there is one.
    fn go_on(&mut self) -> bool {
        match mem::replace(&mut self.stage, Stage::End) {
            Stage::Mark if self.is_marking() => self.stage = Stage::Mark,
            Stage::Mark => {
                self.begin_lowering();
                return true;
            }
            Stage::Lower(carry) if carry.has_ended() => {
                self.end_lowering(&carry);
                return true;
            }
            Stage::GiveUp(resize, log) => match resize.end().cloned() {
                Some(end) => {
                    let instances = self.batch.iter().flat_map(|batch| &batch.deletes).map(|one| one.request.instances);
                    let instances: usize = instances.sum();
                    if end.is_ok() && instances > 0 {
                        self.effects.push(Effect::ChosenByProvider(instances));
                    }
                    self.stage = Stage::check_machines(log, end.map(drop));
                    return true;
                }
                None => self.stage = Stage::GiveUp(resize, log),
            },
            stage => self.stage = stage,
        }
        false
    }

    fn is_marking(&self) -> bool {
        let has_marks = |batch: &Batch<T, P>| batch.marking.len() > 0;
        let is_held = self.is_held && self.may_be_joined();
        self.decision.is_some() || self.awaits_joins || is_held || self.batch.as_ref().is_some_and(has_marks)
    }
}

impl<T: Calls, P> Stage<T, P> {
    fn check_machines(log: Log<T>, given_up: Result<(), NotDone<T>>) -> Self {
        Self::CheckMachines { log, given_up, lives: Map::<T, _>::default(), open: 0 }
    }
}

impl<T: Calls, P: Policy> Steps<T> for Deletion<T, P> {
    fn next(&mut self, now: &impl Now<T>) -> Vec<Call<T>> {
        loop {
            let calls = match &mut self.stage {
                Stage::Mark => self.mark(now),
                Stage::Lower(carry) => {
                    let calls = carry.next(now);
                    self.effects.extend(carry.effects());
                    calls
                }
                Stage::GiveUp(resize, _) => {
                    let calls = resize.next(now);
                    self.effects.extend(resize.effects());
                    calls
                }
                Stage::CheckMachines { open: 0, lives, .. } if lives.is_empty() => {
                    let reads = self.check_machines(now);
                    if reads.is_empty() {
                        self.answer();
                    }
                    reads
                }
                Stage::CheckMachines { open: 0, .. } => {
                    self.answer();
                    Vec::new()
                }
                Stage::CheckMachines { .. } | Stage::End => return Vec::new(),
            };
            if !calls.is_empty() || !self.go_on() {
                return calls;
            }
        }
    }

    fn took(&mut self, outcome: Outcome<T>) {
        match (&mut self.stage, outcome) {
            (Stage::Mark, Outcome::Mark(entry, outcome)) => {
                if let Some(batch) = &mut self.batch
                    && let Some(end) = batch.marking.took(&entry, outcome)
                {
                    batch.marked.took(entry, end);
                }
            }
            (Stage::Mark, outcome) => {
                if let Some(decision) = &mut self.decision {
                    decision.took(outcome);
                    self.effects.extend(decision.effects());
                }
                self.end_decision();
            }
            (Stage::Lower(carry), outcome) => carry.took(outcome),
            (Stage::GiveUp(resize, _), outcome) => resize.took(outcome),
            (Stage::CheckMachines { lives, open, .. }, Outcome::Life(uid, life)) => {
                lives.insert(uid, life);
                *open = open.saturating_sub(1);
            }
            (Stage::CheckMachines { .. } | Stage::End, _) => {}
        }
    }

    fn effects(&mut self) -> Vec<Effect<T>> {
        mem::take(&mut self.effects)
    }
}
