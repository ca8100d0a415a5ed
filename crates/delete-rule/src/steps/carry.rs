//! The steps from `wanted` to `lowered`: marks the Machines and lowers the size, or takes the entries back if that is
//! refused for good. Both the command that logged the entries and any other copy of the program run them. They must
//! never lower the size for an entry whose Machine isn't marked under the entry's own ticket.

use std::mem;

use super::{
    Call, Calls, Effect, FailedCall as _, Failure, Group as _, Mark, Marked, NotDone, NotMarked, Now, Outcome,
    RetryBudget, RetryPolicy, Steps, machine_of,
    mark::{Marks, mark_that_stays},
    take_back::{TakeBack, TakenBack},
};
use crate::{Bounds, Complete, Entry, Log, Map, Named, Phase, Policy, Refusal, Rule, Set};

/// The reason why an entry wasn't lowered.
#[derive(Clone, Debug)]
pub enum NotLowered<T: Calls> {
    /// The entry was taken back because the write was refused.
    Refused(NotDone<T>),
    /// The entry was taken back because its Machine has joined, something else deletes the Machine, or the minimum
    /// doesn't permit a smaller size. Such an entry is soft, or its Machine was named as one that never joined.
    Spared(NotDone<T>),
    /// The entry stays in the log, and a finisher carries on with it.
    Pending(NotDone<T>),
}

impl<T: Calls> NotLowered<T> {
    /// Returns the reason alone.
    pub fn why(&self) -> &NotDone<T> {
        match self {
            Self::Refused(why) | Self::Spared(why) | Self::Pending(why) => why,
        }
    }
}

/// The entries that can't be lowered, each with the reason.
type Failing<T> = Vec<(Entry<T>, NotLowered<T>)>;

/// The entries that are being marked and lowered.
#[derive(Clone, Debug)]
pub struct Carry<T: Calls, P = Complete> {
    rule: Rule<P>,
    /// The latest known version of the group.
    version: T::Group,
    uids: Set<T>,
    /// The Machines of each request: an entry that can't be lowered is taken back together with the rest of its
    /// request.
    together: Vec<Set<T>>,
    bounds: Bounds,
    marked: Marked<T>,
    /// The version on which the last write was rejected.
    rejected_at: Option<T::Group>,
    lowered: usize,
    failures: Map<T, NotLowered<T>>,
    stage: Stage<T, P>,
    /// The number of calls in progress.
    open: usize,
    effects: Vec<Effect<T>>,
}

/// The next decision to make, or the call whose outcome is awaited.
#[derive(Clone, Debug)]
enum Stage<T: Calls, P> {
    Round,
    /// Marks are in progress, or all have an outcome.
    Mark(Round<T>, Marks<T, P>),
    /// A pause, after which marks are retried on the version that is current then.
    PauseMarks(Round<T>),
    ReadAfterMarks,
    List(Round<T>),
    Lower(Round<T>, Set<T>),
    Write {
        round: Round<T>,
        to: i32,
        lowers: usize,
        filled: Set<T>,
    },
    /// The size wasn't written.
    Failed(Round<T>, i32, T::Failed),
    Pause(Round<T>, T::Failed),
    /// No further attempt is made.
    GiveUp(Round<T>, T::Failed),
    Read(Round<T>),
    TakeBack(Box<TakeBack<T>>, Failing<T>),
    End,
}

/// The log of a version, and the entries of it that are to be lowered.
#[derive(Clone, Debug)]
struct Round<T: Calls> {
    log: Log<T>,
    wanted: Vec<Entry<T>>,
}

impl<T: Calls> Round<T> {
    fn machines(&self) -> Vec<Named<T>> {
        self.wanted.iter().map(machine_of).collect()
    }

    fn all(&self, why: &NotLowered<T>) -> Failing<T> {
        self.wanted.iter().map(|entry| (entry.clone(), why.clone())).collect()
    }
}

impl<T: Calls, P: Policy> Carry<T, P> {
    /// Begins at a version whose log has the wanted entries of `uids`. `marked` holds the Machines that are marked
    /// already, and each set of `together` is one request.
    pub fn new(
        rule: Rule<P>,
        version: T::Group,
        uids: Set<T>,
        together: Vec<Set<T>>,
        bounds: Bounds,
        marked: Marked<T>,
    ) -> Self {
        let (failures, effects) = (Map::<T, _>::default(), vec![Effect::Begin(RetryBudget::Lower)]);
        let (rejected_at, stage) = (None, Stage::Round);
        let (lowered, open) = (0, 0);
        Self { rule, version, uids, together, bounds, marked, rejected_at, lowered, failures, stage, open, effects }
    }

    /// Returns the latest known version of the group.
    pub fn version(&self) -> &T::Group {
        &self.version
    }

    /// Returns the number of entries for which this has lowered the size.
    pub fn lowered(&self) -> usize {
        self.lowered
    }

    /// Returns the Machines for which the size wasn't lowered.
    pub fn failures(&self) -> &Map<T, NotLowered<T>> {
        &self.failures
    }

    /// Returns true at the end.
    pub fn has_ended(&self) -> bool {
        matches!(self.stage, Stage::End)
    }

    fn round(&mut self, now: &impl Now<T>) -> Vec<Call<T>> {
        let log = match self.version.log() {
            Ok(log) => log,
            Err(error) => {
                let refused = |uid: &T::Uid| (uid.clone(), NotLowered::Refused(NotDone::Unreadable(error.clone())));
                self.failures.extend(self.uids.iter().map(refused));
                self.stage = Stage::End;
                return Vec::new();
            }
        };
        let is_left = |entry: &&Entry<T>| {
            entry.phase == Phase::Wanted && self.uids.contains(&entry.uid) && !self.failures.contains_key(&entry.uid)
        };
        let wanted: Vec<_> = log.entries().iter().filter(is_left).cloned().collect();
        if wanted.is_empty() {
            self.stage = Stage::End;
            return Vec::new();
        }
        // The other entries have been taken back or lowered, and must not be marked any more.
        self.marked.failures.retain(|uid, _| wanted.iter().any(|entry| entry.uid == *uid));
        let round = Round { log, wanted };
        let strangers = round.wanted.iter().filter(|entry| now.is_stranger(entry));
        let strangers: Failing<T> = strangers
            .map(|entry| (entry.clone(), NotLowered::Refused(NotDone::Stranger(entry.name.clone()))))
            .collect();
        if !strangers.is_empty() {
            return self.give_back(&round, strangers);
        }
        let has_failed = !self.marked.failures.is_empty();
        let unmarked = round.wanted.iter().filter(|entry| !has_failed && !self.marked.has(entry));
        let mut marks = Marks::new();
        unmarked.for_each(|entry| marks.begin(Mark::new(self.rule, entry.clone(), None)));
        let calls = marks.next(now);
        self.stage = Stage::Mark(round, marks);
        calls
    }

    /// Continues after the marks: with the smaller size, unless some Machines couldn't be marked.
    fn judge(&mut self, round: Round<T>) -> Vec<Call<T>> {
        let mut failing = Failing::new();
        for entry in &round.wanted {
            let why = match self.marked.failures.get(&entry.uid) {
                Some(NotMarked::Joined) => NotLowered::Spared(NotDone::Refused(Refusal::HasJoined(entry.name.clone()))),
                Some(NotMarked::DeletedElsewhere) => NotLowered::Spared(NotDone::DeletedElsewhere(entry.name.clone())),
                Some(NotMarked::Failed(error)) if error.failure() == Failure::Final => {
                    if error.was_sent() {
                        self.effects.push(Effect::Undeletable(vec![machine_of(entry)]));
                    }
                    NotLowered::Refused(NotDone::Failed(error.clone()))
                }
                Some(NotMarked::Failed(_)) | None => continue,
            };
            failing.push((entry.clone(), why));
        }
        if !failing.is_empty() {
            for (entry, _) in &failing {
                self.marked.failures.remove(&entry.uid);
            }
            return self.give_back(&round, failing);
        }
        if let Some(error) = self.open_mark(&round) {
            self.stage = Stage::PauseMarks(round);
            return vec![Call::Pause(RetryBudget::Lower, error)];
        }
        let deleted_elsewhere = self.deleted_elsewhere(&round);
        if deleted_elsewhere.is_empty() {
            return self.lower(round, Set::<T>::default());
        }
        self.stage = Stage::List(round);
        vec![Call::List(RetryPolicy::Once)]
    }

    /// Returns the failure of a mark that may succeed later.
    fn open_mark(&self, round: &Round<T>) -> Option<T::Failed> {
        round.wanted.iter().find_map(|entry| match self.marked.failures.get(&entry.uid)? {
            NotMarked::Failed(error) => Some(error.clone()),
            NotMarked::Joined | NotMarked::DeletedElsewhere => None,
        })
    }

    /// Leaves the Machines that couldn't be marked to a finisher, without another attempt.
    fn leave_marks(&mut self, round: &Round<T>) {
        let Some(error) = self.open_mark(round) else { return };
        let pending = NotLowered::Pending(NotDone::Pending(error));
        let unmarked = mem::take(&mut self.marked.failures);
        let is_open = |entry: &&Entry<T>| unmarked.contains_key(&entry.uid);
        self.failures.extend(round.wanted.iter().filter(is_open).map(|entry| (entry.uid.clone(), pending.clone())));
    }

    /// Returns the entries whose Machines something else deletes: the response to a mark shows that before the watch
    /// does. A smaller size for these entries could take other Machines, so the group's Machines are counted first.
    fn deleted_elsewhere<'a>(&self, round: &'a Round<T>) -> Vec<&'a Entry<T>> {
        let is_deleted_elsewhere =
            |entry: &&Entry<T>| self.marked.has(entry) && self.marked.deleted_elsewhere.contains(&entry.uid);
        let is_open = |entry: &&Entry<T>| entry.phase == Phase::Wanted && !entry.soft && !entry.counted;
        round.log.entries().iter().filter(is_open).filter(is_deleted_elsewhere).collect()
    }

    fn lower(&mut self, round: Round<T>, filled: Set<T>) -> Vec<Call<T>> {
        let replicas = self.version.spec().replicas;
        match self.rule.lower(&round.log, replicas, self.bounds, &self.marked.tickets, &filled) {
            Ok(Some(lowering)) => {
                let (to, lowers) = (lowering.to, lowering.names.len());
                self.stage = Stage::Write { round, to, lowers, filled };
                vec![Call::Lower { seen: self.version.clone(), lowering }]
            }
            Ok(None) => {
                self.stage = Stage::End;
                Vec::new()
            }
            Err(error) => {
                let refusal = |entry: &Entry<T>| match NotDone::Size(error) {
                    why if entry.soft => NotLowered::Spared(why),
                    why => NotLowered::Refused(why),
                };
                let failing = round.wanted.iter().map(|entry| (entry.clone(), refusal(entry))).collect();
                self.give_back(&round, failing)
            }
        }
    }

    /// Handles a size that wasn't written.
    fn failed(&mut self, round: Round<T>, to: i32, error: T::Failed) -> Vec<Call<T>> {
        let is_rejected = error.failure() == Failure::Rejected;
        if is_rejected && self.rejected_at.as_ref() == Some(&self.version) {
            return self.refuse(&round, NotDone::Rejected { size: to, error });
        }
        self.rejected_at = is_rejected.then(|| self.version.clone());
        self.stage = Stage::Pause(round, error.clone());
        vec![Call::Pause(RetryBudget::Lower, error)]
    }

    /// Handles a size that the API server refuses for good.
    fn refuse(&mut self, round: &Round<T>, why: NotDone<T>) -> Vec<Call<T>> {
        if !matches!(&why, NotDone::Failed(error) if !error.was_sent()) {
            self.effects.push(Effect::Undeletable(round.machines()));
        }
        self.give_back(round, round.all(&NotLowered::Refused(why)))
    }

    /// Leaves the entries that are to be lowered in the log.
    fn leave(&mut self, round: &Round<T>, error: T::Failed) {
        let pending = NotLowered::Pending(NotDone::Pending(error));
        self.failures.extend(round.wanted.iter().map(|entry| (entry.uid.clone(), pending.clone())));
    }

    /// Takes back the entries that can't be lowered, together with the rest of their requests.
    fn give_back(&mut self, round: &Round<T>, failing: Failing<T>) -> Vec<Call<T>> {
        let failing = with_their_requests(failing, &round.wanted, &self.together);
        let entries = failing.iter().map(|(entry, _)| entry.clone()).collect();
        self.effects.push(Effect::Begin(RetryBudget::TakeBack));
        self.stage = Stage::TakeBack(Box::new(TakeBack::new(self.version.clone(), entries)), failing);
        Vec::new()
    }

    /// Handles the end of taking entries back. If that can't be written either, nothing is refused: the entries stay in
    /// the log, and are carried out once the API server permits it. Entries that another copy has lowered aren't
    /// refused either.
    fn taken_back(&mut self, end: Result<TakenBack<T>, NotDone<T>>, failing: Failing<T>) {
        self.stage = Stage::Round;
        match end {
            Ok(TakenBack { version, lowered }) => {
                self.version = version;
                let ended = failing.into_iter().filter(|(entry, _)| !lowered.contains(&entry.uid));
                self.failures.extend(ended.map(|(entry, why)| (entry.uid, why)));
            }
            Err(error) => {
                let pending = |why: &NotLowered<T>| {
                    let (why, error) = (Box::new(why.why().clone()), Box::new(error.clone()));
                    NotLowered::Pending(NotDone::NotTakenBack { why, error })
                };
                self.failures.extend(failing.into_iter().map(|(entry, why)| (entry.uid, pending(&why))));
            }
        }
    }

    /// Decides the next step and returns its calls, or none if there is more to decide.
    fn advance(&mut self, now: &impl Now<T>) -> Vec<Call<T>> {
        match mem::replace(&mut self.stage, Stage::End) {
            Stage::Round => self.round(now),
            Stage::Mark(round, _) => self.judge(round),
            Stage::ReadAfterMarks => {
                self.stage = Stage::ReadAfterMarks;
                vec![Call::ReadGroup(RetryPolicy::Of(RetryBudget::Lower))]
            }
            Stage::Lower(round, filled) => self.lower(round, filled),
            Stage::Failed(round, to, error) => self.failed(round, to, error),
            Stage::GiveUp(round, error) if error.failure() == Failure::Final => {
                self.refuse(&round, NotDone::Failed(error))
            }
            Stage::GiveUp(round, error) => {
                self.leave(&round, error);
                Vec::new()
            }
            Stage::Read(round) => {
                self.stage = Stage::Read(round);
                vec![Call::ReadGroup(RetryPolicy::Of(RetryBudget::Lower))]
            }
            Stage::TakeBack(mut take_back, failing) => {
                let calls = take_back.next(now);
                if take_back.has_ended() {
                    self.taken_back(take_back.end(), failing);
                } else {
                    self.stage = Stage::TakeBack(take_back, failing);
                }
                calls
            }
            Stage::PauseMarks(_) | Stage::List(_) | Stage::Write { .. } | Stage::Pause(..) | Stage::End => Vec::new(),
        }
    }
}

impl<T: Calls, P: Policy> Steps<T> for Carry<T, P> {
    fn next(&mut self, now: &impl Now<T>) -> Vec<Call<T>> {
        let mut calls = match &mut self.stage {
            Stage::Mark(_, marks) => marks.next(now),
            _ => Vec::new(),
        };
        self.open += calls.len();
        while self.open == 0 && !self.has_ended() {
            calls = self.advance(now);
            self.open = calls.len();
        }
        calls
    }

    fn took(&mut self, outcome: Outcome<T>) {
        self.open = self.open.saturating_sub(1);
        self.effects.extend(mark_that_stays(&outcome));
        self.stage = match (mem::replace(&mut self.stage, Stage::End), outcome) {
            (Stage::Mark(round, mut marks), Outcome::Mark(entry, outcome)) => {
                if let Some(end) = marks.took(&entry, outcome) {
                    self.marked.took(entry, end);
                }
                Stage::Mark(round, marks)
            }
            (Stage::PauseMarks(_), Outcome::Paused(_, true)) => {
                self.marked.failures.clear();
                Stage::ReadAfterMarks
            }
            (Stage::PauseMarks(round), Outcome::Paused(_, false)) => {
                self.leave_marks(&round);
                Stage::Round
            }
            (Stage::ReadAfterMarks, Outcome::Group(group)) => {
                self.version = group.unwrap_or_else(|_| self.version.clone());
                Stage::Round
            }
            (Stage::List(round), Outcome::Listed(Ok(listed))) => {
                let deleted_elsewhere = self.deleted_elsewhere(&round);
                let filled = self.rule.filled(&round.log, self.version.spec().replicas, &listed, &deleted_elsewhere);
                Stage::Lower(round, filled)
            }
            (Stage::List(round), Outcome::Listed(Err(error))) => {
                Stage::Failed(round, self.version.spec().replicas, error)
            }
            (Stage::Write { round, lowers, filled, .. }, Outcome::Written(Ok(version))) => {
                let filled = round.wanted.iter().filter(|entry| filled.contains(&entry.uid));
                self.effects.extend(filled.map(|entry| Effect::Filled(entry.name.clone())));
                (self.version, self.lowered) = (version, self.lowered + lowers);
                Stage::Round
            }
            (Stage::Write { round, to, .. }, Outcome::Written(Err(error))) => Stage::Failed(round, to, error),
            (Stage::Pause(round, _), Outcome::Paused(_, true)) => Stage::Read(round),
            (Stage::Pause(round, error), Outcome::Paused(_, false)) => Stage::GiveUp(round, error),
            (Stage::Read(_), Outcome::Group(Ok(version))) => {
                self.version = version;
                Stage::Round
            }
            (Stage::Read(round), Outcome::Group(Err(error))) => {
                self.leave(&round, error);
                Stage::End
            }
            (Stage::TakeBack(mut take_back, failing), outcome) => {
                take_back.took(outcome);
                Stage::TakeBack(take_back, failing)
            }
            (stage, _) => stage,
        };
    }

    fn effects(&mut self) -> Vec<Effect<T>> {
        mem::take(&mut self.effects)
    }
}

/// Adds the remaining entries of the requests that fail, except those that other requests name too.
fn with_their_requests<T: Calls>(mut failing: Failing<T>, wanted: &[Entry<T>], together: &[Set<T>]) -> Failing<T> {
    // A spared Machine doesn't fail its request, whose other Machines are still deleted.
    let ends_its_request = |(_, why): &&(Entry<T>, NotLowered<T>)| !matches!(why, NotLowered::Spared(_));
    let ending: Vec<_> = failing.iter().filter(ends_its_request).map(|(entry, _)| entry.uid.clone()).collect();
    let fails = |request: &&Set<T>| ending.iter().any(|uid| request.contains(uid));
    let (failed, standing): (Vec<_>, Vec<_>) = together.iter().partition(fails);
    let is_named_by = |requests: &[&Set<T>], entry: &Entry<T>| requests.iter().any(|it| it.contains(&entry.uid));
    let mut siblings = Failing::new();
    for entry in wanted.iter().filter(|entry| is_named_by(&failed, entry) && !is_named_by(&standing, entry)) {
        let of_request = failed.iter().find(|request| request.contains(&entry.uid));
        let reason = of_request.and_then(|request| failing.iter().find(|(failing, _)| request.contains(&failing.uid)));
        if let Some((_, why)) = reason
            && failing.iter().all(|(failing, _)| failing.uid != entry.uid)
        {
            siblings.push((entry.clone(), why.clone()));
        }
    }
    failing.extend(siblings);
    failing
}
