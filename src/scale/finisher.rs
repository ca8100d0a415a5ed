//! Sees the deletions that are on their way to their end, whoever began them: a task that is woken by what the watches
//! show, in every copy of the program, and that needs no memory but of how long it has waited. It must never wait for a caller, and never hold up a
//! command for longer than one look at its group takes.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Weak},
    time::Duration,
};

use futures::{StreamExt as _, stream};
use parking_lot::Mutex;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{
    Command, Inner,
    api::{CallError, GroupChange},
    carry::NotLowered,
    events::Happening,
    known::SIDE_BY_SIDE,
    mark::{Marked, NotMarked, named},
    metrics::Write,
    outcome::tickets_of,
    rule::{self, Finish, Followed, LEFT_TO_PROVIDER, LeftSince, Life, Listed, Look, LookCall, RULE},
};
use crate::{
    capi::{Machine, Meta, Uid},
    index::{DeletionView, GroupVersion, Index},
    nodegroup::{Bounds, DeletionLog, GroupId, LogAnnotation as _, Phase, SharedLog, Ticket, deletion_log::Entry},
};

/// How long what is wanted is left to the copy that may just be lowering it. Nothing depends on it but the number of
/// conflicts.
const LEFT_ALONE: Duration = Duration::from_secs(2);

/// The most Machines that one look at a group reads, marks or deletes. Who may annotate a group can name as many as a log
/// holds, and each costs a call.
const MOST_CALLS: usize = 256;
/// The pause before the next look at a group of which a look has left something. Mostly the group changes before, by what
/// was done.
const NEXT_LOOK: Duration = Duration::from_secs(1);

/// What a look at a group has come to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Pass {
    /// The next change wakes.
    Done,
    /// Something is left to others until then.
    Waits(Instant),
    /// A call failed.
    Failed,
}

/// Since when, as this process saw it, something of each group is left to others. No result depends on it but by how
/// long that takes.
#[derive(Default)]
pub(super) struct Memory(Mutex<HashMap<GroupId, Remembered>>);

/// The same of one group.
#[derive(Default)]
struct Remembered {
    /// Tickets that are wanted.
    wanted: HashMap<Ticket, Instant>,
    left: LeftSince,
    /// The number of entries that looks have dealt with in part, so that each has its turn.
    turn: usize,
    /// The log that can't be read, which is logged once.
    unreadable: Option<SharedLog>,
}

impl Remembered {
    /// Takes as many of these as one look may deal with, others with each look; true if there are more.
    fn take_turn<T>(&mut self, mut all: Vec<T>) -> (Vec<T>, bool) {
        if all.len() <= MOST_CALLS {
            return (all, false);
        }
        let begin = self.turn % all.len();
        all.rotate_left(begin);
        all.truncate(MOST_CALLS);
        self.turn = self.turn.wrapping_add(MOST_CALLS);
        (all, true)
    }
}

/// Finishes deletions until `ended`, or until nobody holds `inner` any more.
pub(super) async fn run(
    inner: Weak<Inner>,
    index: Arc<Index>,
    mut changes: watch::Receiver<()>,
    ended: CancellationToken,
) {
    let Some(look_ended) = inner.upgrade().map(|inner| inner.lanes.look_ended()) else { return };
    while let Some(next) = inner.upgrade().map(|inner| inner.look_at(index.take_unfinished(), Instant::now())) {
        tokio::select! {
            biased;
            () = ended.cancelled() => break,
            woken = changes.changed() => if woken.is_err() {
                break;
            },
            () = look_ended.notified() => {}
            () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
        }
    }
    if let Some(inner) = inner.upgrade() {
        inner.lanes.stop_looks();
    }
}

impl Command {
    /// Looks at the group's deletions once, and does what can be done.
    pub(super) async fn finish(&self) -> Pass {
        let Some(view) = self.index().deletions(&self.id) else {
            self.inner.memory.forget(&self.id);
            return Pass::Done;
        };
        let log = match view.version.log() {
            Ok(log) => log,
            Err(error) => {
                if self.inner.memory.is_new_unreadable(&self.id, &view.version) {
                    tracing::warn!(group = %self.id, "deletions can't be finished: {error}");
                }
                return Pass::Done;
            }
        };
        let followed = rule::followed(self.id.kind, &view.sets);
        let (steps, left_until) = self.inner.memory.decide(&self.id, &log, &view.machines, &followed);
        let mut pass = left_until.map_or(Pass::Done, Pass::Waits);
        if steps.contains(&Finish::CarryOn) {
            pass = pass.and(self.carry_on(&view, &log).await);
        }
        match self.settle(&view, steps).await {
            Ok(()) => pass,
            Err(error) => {
                tracing::warn!(group = %self.id, "can't finish deletions; this is tried again: {}", self.failed(&error));
                Pass::Failed
            }
        }
    }

    /// Lowers what is wanted, unless another copy may just be at it.
    async fn carry_on(&self, view: &DeletionView, log: &DeletionLog) -> Pass {
        let (ripe, next) = self.inner.memory.ripe(&self.id, log);
        let waits = next.map_or(Pass::Done, Pass::Waits);
        if ripe.is_empty() {
            return waits;
        }
        let bounds = Bounds { min: view.min, max: i32::MAX };
        let carried = self.carry_out(view.version.clone(), &ripe, &[], bounds, Marked::default()).await;
        let mut pass = waits;
        for failure in carried.failures.values() {
            match failure {
                NotLowered::Spared(why) => {
                    tracing::info!(group = %self.id, "a deletion that was decided is given up: {why}");
                }
                NotLowered::Refused(error) => {
                    tracing::warn!(group = %self.id, code = error.code(), "a deletion that was decided is given up: {error}");
                    // The next look finds what is left of it.
                    pass = Pass::Failed;
                }
                NotLowered::Pending(error) => {
                    tracing::warn!(group = %self.id, code = error.code(), "a deletion that was decided waits: {error}");
                    pass = Pass::Failed;
                }
            }
        }
        pass
    }

    /// Deletes by name what a smaller size has left, corrects marks, and forgets what is over. A failure holds up nothing
    /// else; the first is reported in the end.
    async fn settle(&self, view: &DeletionView, steps: Vec<Finish>) -> Result<(), CallError> {
        let mut look = RULE.look(steps);
        let mut failures = Vec::new();
        let mut now = None;
        loop {
            let calls = look.next(now.as_ref().map(|(log, followed)| (log, followed)));
            if calls.is_empty() {
                break;
            }
            let outcomes = stream::iter(calls).map(|call| self.perform(&look, call));
            for outcome in outcomes.buffer_unordered(SIDE_BY_SIDE).collect::<Vec<_>>().await {
                match outcome {
                    Ok(Outcome::Life(entry, life)) => look.took_life(entry, life),
                    Ok(Outcome::Group) => {
                        look.took_group();
                        now = self.followed_now();
                    }
                    Ok(Outcome::Listed(listed)) => {
                        let sizes = view.sets.iter().map(|set| i64::from(set.object.replicas.unwrap_or_default()));
                        look.took_list(&listed.alive, sizes.sum());
                    }
                    Ok(Outcome::Done) => {}
                    Err(error) => failures.push(error),
                }
            }
        }
        failures.extend(self.forget(view, &look).await.err());
        failures.into_iter().next().map_or(Ok(()), Err)
    }

    /// Makes a call of a look.
    async fn perform(&self, look: &Look, call: LookCall) -> Result<Outcome, CallError> {
        match call {
            LookCall::Read(entry) => {
                // A stranger's Machine is nothing that this group waits for.
                let life = if self.is_stranger(&entry) { Life::Gone } else { self.read_life(&named(&entry)).await? };
                Ok(Outcome::Life(entry, life))
            }
            LookCall::ReadGroup => {
                let seen = self.api().read_group(&self.id).await?;
                self.index().set_written(&self.id, seen.version);
                Ok(Outcome::Group)
            }
            LookCall::Delete(entry) => self.delete_by_name(look, &entry).await,
            LookCall::Mark(entry) => match self.mark_one(&entry, None).await {
                Ok(_) | Err(NotMarked::Joined | NotMarked::Going) => Ok(Outcome::Done),
                Err(NotMarked::Failed(error)) => Err(error),
            },
            LookCall::Unmark(machine) => {
                let Meta { key, resource_version, .. } = &machine.meta;
                match &machine.delete_mark {
                    Some(mark) if !self.unmark(&key.name, mark, resource_version).await => {
                        Err(CallError::Unknown(format!("the mark of Machine {} stays", key.name), None))
                    }
                    Some(_) | None => Ok(Outcome::Done),
                }
            }
            LookCall::List => self.list().await.map(Outcome::Listed),
        }
    }

    /// The group's log as it is known now, own reads and writes included, and what of it is followed.
    fn followed_now(&self) -> Option<(DeletionLog, Followed)> {
        let (version, sets) = self.index().sets(&self.id)?;
        let log = version.log().ok()?;
        Some((log, rule::followed(self.id.kind, &sets)))
    }

    /// Deletes a Machine that is there though its deletion was spent on another one, if that still is so.
    async fn delete_by_name(&self, look: &Look, entry: &Entry) -> Result<Outcome, CallError> {
        // Nothing is awaited between this and the call.
        if !self.followed_now().is_some_and(|(log, followed)| look.permits(entry, (&log, &followed))) {
            return Ok(Outcome::Done);
        }
        let key = self.machine_key(&entry.name);
        let result = self.write(Write::Delete, self.api().delete_machine(&key, &entry.uid, None)).await;
        match result {
            Ok(()) => {
                tracing::info!(group = %self.id, machine = %entry.name, ticket = %entry.ticket, "Machine deleted by name: the smaller size has taken another one");
                self.tell_of(tickets_of([entry].into_iter()).as_deref(), Happening::deleted_by_name(&entry.name));
                Ok(Outcome::Done)
            }
            // It is gone, or another one has its name.
            Err(CallError::Missing(_) | CallError::Conflict(_)) => Ok(Outcome::Done),
            Err(error) => Err(error),
        }
    }

    /// Takes entries out of the log that are over, each time by the log that the write tests.
    async fn forget(&self, view: &DeletionView, look: &Look) -> Result<(), CallError> {
        if look.is_idle() {
            return Ok(());
        }
        let mut attempts = self.attempts();
        let mut version = self.index().deletions(&self.id).map_or_else(|| view.version.clone(), |view| view.version);
        loop {
            let Ok(log) = version.log() else { return Ok(()) };
            let are_followed =
                |log: &DeletionLog| self.followed_now().is_some_and(|(_, followed)| followed.has_all(log));
            let Some(left) = look.left_of(&log, are_followed) else { return Ok(()) };
            let text = left.print().map_err(|error| CallError::Refused(error.to_string()))?;
            let change = GroupChange { replicas: None, log: text };
            let written = self.write(Write::Log, self.api().write_group(&self.id, &version, &change)).await;
            let Err(error) = self.wrote_log(written) else {
                let over = || look.over().filter(|entry| left.get(&entry.uid) != Some(*entry));
                tracing::info!(group = %self.id, machines = names(over()), ticket = tickets_of(over()), "deletions have come to their end");
                return Ok(());
            };
            if !attempts.again(&error).await {
                return Err(error);
            }
            version = self.view_again(&mut attempts).await?;
        }
    }
}

/// The outcome of a call of a look.
enum Outcome {
    Life(Entry, Life),
    Group,
    Listed(Listed),
    Done,
}

fn costs_no_call(step: &Finish) -> bool {
    match step {
        // All soft entries are settled by one list, and what is wanted has a turn of its own.
        Finish::CarryOn | Finish::Leave(..) | Finish::ForgetSoft(_) => true,
        Finish::ForgetGone(_) | Finish::Delete(_) | Finish::MarkAgain(_) | Finish::Unmark(_) => false,
    }
}

fn earliest(one: Option<Instant>, other: Instant) -> Instant {
    one.map_or(other, |one| one.min(other))
}

fn names<'a>(entries: impl Iterator<Item = &'a Entry>) -> String {
    entries.map(|entry| entry.name.as_str()).collect::<Vec<_>>().join(",")
}

impl Pass {
    /// The result of two looks at one group.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Failed, _) | (_, Self::Failed) => Self::Failed,
            (Self::Waits(one), Self::Waits(other)) => Self::Waits(one.min(other)),
            (Self::Waits(until), Self::Done) | (Self::Done, Self::Waits(until)) => Self::Waits(until),
            (Self::Done, Self::Done) => Self::Done,
        }
    }
}

impl Memory {
    fn forget(&self, id: &GroupId) {
        self.0.lock().remove(id);
    }

    /// Decides what is to be done, and remembers since when Machines are left to their provider; until when that is so,
    /// of the first.
    fn decide(
        &self,
        id: &GroupId,
        log: &DeletionLog,
        machines: &[Arc<Machine>],
        followed: &Followed,
    ) -> (Vec<Finish>, Option<Instant>) {
        let mut groups = self.0.lock();
        let mut remembered = groups.remove(id).unwrap_or_default();
        remembered.unreadable = None;
        let steps = RULE.finish(log, machines, followed, &remembered.left, Instant::now().into_std());
        let key = |entry: &Entry| (entry.uid.clone(), entry.ticket.clone());
        let mut left = LeftSince::new();
        let mut until = None;
        for step in &steps {
            match step {
                Finish::Leave(entry, since) => {
                    left.insert(key(entry), *since);
                    until = Some(earliest(until, Instant::from_std(*since) + LEFT_TO_PROVIDER));
                }
                // Should the call fail, it is repeated without another wait.
                Finish::Delete(entry) => left.extend(remembered.left.remove_entry(&key(entry))),
                Finish::CarryOn
                | Finish::ForgetGone(_)
                | Finish::ForgetSoft(_)
                | Finish::MarkAgain(_)
                | Finish::Unmark(_) => {}
            }
        }
        let wanted = log.entries().iter().filter(|entry| entry.phase == Phase::Wanted);
        let wanted: HashSet<_> = wanted.map(|entry| &entry.ticket).collect();
        remembered.wanted.retain(|ticket, _| wanted.contains(ticket));
        remembered.left = left;
        let (free, calls): (Vec<_>, _) = steps.into_iter().partition(costs_no_call);
        let (calls, is_part) = remembered.take_turn(calls);
        if is_part {
            until = Some(earliest(until, Instant::now() + NEXT_LOOK));
        }
        if is_part || !remembered.wanted.is_empty() || !remembered.left.is_empty() {
            groups.insert(id.clone(), remembered);
        }
        (free.into_iter().chain(calls).collect(), until)
    }

    /// The number of groups of which something is remembered.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// Returns true if the group's log, which can't be read, is another one than before.
    fn is_new_unreadable(&self, id: &GroupId, version: &GroupVersion) -> bool {
        let mut groups = self.0.lock();
        let unreadable = &mut groups.entry(id.clone()).or_default().unreadable;
        let is_new = *unreadable != version.log;
        unreadable.clone_from(&version.log);
        is_new
    }

    /// The entries that are wanted for so long that nobody else may be lowering them, as many as one look deals with, and
    /// when it is the turn of others.
    fn ripe(&self, id: &GroupId, log: &DeletionLog) -> (HashSet<Uid>, Option<Instant>) {
        let now = Instant::now();
        let mut groups = self.0.lock();
        let remembered = groups.entry(id.clone()).or_default();
        let (mut ripe, mut next) = (Vec::new(), None);
        for entry in log.entries().iter().filter(|entry| entry.phase == Phase::Wanted) {
            let at = *remembered.wanted.entry(entry.ticket.clone()).or_insert(now) + LEFT_ALONE;
            if at <= now {
                ripe.push(entry.uid.clone());
            } else {
                next = Some(earliest(next, at));
            }
        }
        let (ripe, is_part) = remembered.take_turn(ripe);
        if is_part {
            next = Some(earliest(next, now + NEXT_LOOK));
        }
        (ripe.into_iter().collect(), next)
    }
}
