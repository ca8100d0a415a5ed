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
    rule::{self, Finish, Followed, LEFT_TO_PROVIDER, LeftSince, Life, RULE},
};
use crate::{
    capi::{Machine, Uid},
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

    /// Deletes by name what a smaller size has left, and forgets what is over. A failure holds up nothing else; the first
    /// is told in the end.
    async fn settle(&self, view: &DeletionView, steps: Vec<Finish>) -> Result<(), CallError> {
        let (mut gone, mut soft, mut spent, mut marks) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for step in steps {
            match step {
                Finish::CarryOn | Finish::Leave(..) => {}
                Finish::ForgetGone(entry) => gone.push(entry),
                Finish::ForgetSoft(entry) => soft.push(entry),
                Finish::Delete(entry) => spent.push(entry),
                step @ (Finish::MarkAgain(_) | Finish::Unmark(_)) => marks.push(step),
            }
        }
        let reads = stream::iter(gone).map(|entry| self.if_gone(entry));
        let mut results: Vec<_> = reads.buffer_unordered(SIDE_BY_SIDE).collect().await;
        let reads = stream::iter(spent).map(|entry| self.if_alive(entry));
        let mut alive = Vec::new();
        for read in reads.buffer_unordered(SIDE_BY_SIDE).collect::<Vec<_>>().await {
            match read {
                Ok(entry) => alive.extend(entry),
                Err(error) => results.push(Err(error)),
            }
        }
        if !soft.is_empty() || !alive.is_empty() || !marks.is_empty() {
            match self.api().read_group(&self.id).await {
                Ok(seen) => {
                    self.index().set_written(&self.id, seen.version);
                    results.extend(self.settle_as_of_now(view, soft, alive, marks).await);
                }
                Err(error) => results.push(Err(error)),
            }
        }
        let (mut over, mut failures) = (Vec::new(), Vec::new());
        for result in results {
            match result {
                Ok(entry) => over.extend(entry),
                Err(error) => failures.push(error),
            }
        }
        failures.extend(self.forget(view, over).await.err());
        failures.into_iter().next().map_or(Ok(()), Err)
    }

    /// Does what depends on the group as it was just read: each entry that is over by it, or a failure.
    async fn settle_as_of_now(
        &self,
        view: &DeletionView,
        soft: Vec<Entry>,
        alive: Vec<Entry>,
        marks: Vec<Finish>,
    ) -> Vec<Result<Option<Entry>, CallError>> {
        let Some((log, followed)) = self.followed_now() else { return Vec::new() };
        let deletes = stream::iter(alive).map(async |entry| self.delete_by_name(&entry).await);
        let mut results: Vec<_> = deletes.buffer_unordered(SIDE_BY_SIDE).collect().await;
        let marks = stream::iter(marks).map(|mark| self.correct_mark(&log, mark));
        results.extend(marks.buffer_unordered(SIDE_BY_SIDE).collect::<Vec<_>>().await);
        let done = results.into_iter().map(|result| result.map(|()| None));
        let soft = soft.into_iter().filter(|entry| followed.has_all(&log) && log.get(&entry.uid) == Some(entry));
        let over = match self.soft_that_are_over(view, soft.collect()).await {
            Ok(over) => over.into_iter().map(|entry| Ok(Some(entry))).collect(),
            Err(error) => vec![Err(error)],
        };
        over.into_iter().chain(done).collect()
    }

    /// The group's log as it is known now, own reads and writes included, and what of it is followed.
    fn followed_now(&self) -> Option<(DeletionLog, Followed)> {
        let (version, sets) = self.index().sets(&self.id)?;
        let log = version.log().ok()?;
        Some((log, rule::followed(self.id.kind, &sets)))
    }

    /// The soft entries for which nothing is left to go: their Machine goes, or the MachineSets have no more than their size.
    /// Until then a reconcile that failed may still have to take one, and their marks say which.
    async fn soft_that_are_over(&self, view: &DeletionView, soft: Vec<Entry>) -> Result<Vec<Entry>, CallError> {
        if soft.is_empty() {
            return Ok(soft);
        }
        let listed = self.list().await?;
        let size: i64 = view.sets.iter().map(|set| i64::from(set.object.replicas.unwrap_or_default())).sum();
        let is_over = |entry: &Entry| RULE.is_soft_over(listed.alive.contains(&entry.uid), listed.alive.len(), size);
        Ok(soft.into_iter().filter(is_over).collect())
    }

    /// The entry, if its Machine is gone: the cache may not have heard of it yet.
    async fn if_gone(&self, entry: Entry) -> Result<Option<Entry>, CallError> {
        let is_gone = self.is_stranger(&entry) || self.read_life(&named(&entry)).await? == Life::Gone;
        Ok(is_gone.then_some(entry))
    }

    /// Does what is still to be done about a mark as the group's log is now.
    async fn correct_mark(&self, log: &DeletionLog, step: Finish) -> Result<(), CallError> {
        let step = match step {
            Finish::Unmark(machine) => RULE.of_mark(log, &machine),
            step => Some(step),
        };
        match step {
            Some(Finish::MarkAgain(entry)) if log.get(&entry.uid) == Some(&entry) => {
                match self.mark_one(&entry, None).await {
                    Ok(_) | Err(NotMarked::Joined | NotMarked::Going) => Ok(()),
                    Err(NotMarked::Failed(error)) => Err(error),
                }
            }
            Some(Finish::Unmark(machine)) if !self.unmark_stale(&machine).await => {
                Err(CallError::Unknown(format!("the mark of Machine {} stays", machine.meta.key.name), None))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Takes a mark off as the Machine was seen with it.
    async fn unmark_stale(&self, machine: &Machine) -> bool {
        let Some(mark) = &machine.delete_mark else { return true };
        self.unmark(&machine.meta.key.name, mark, &machine.meta.resource_version).await
    }

    /// The entry, if its Machine is there and stays. The watch of Machines may lag behind that of MachineSets, so that one
    /// which went as it should still looks alive: whether it is, is asked of the API server.
    async fn if_alive(&self, entry: Entry) -> Result<Option<Entry>, CallError> {
        let is_alive = self.read_life(&named(&entry)).await? == Life::Alive;
        Ok(is_alive.then_some(entry))
    }

    /// Deletes a Machine that is there though its deletion was spent on another one, if that still is so: others may have
    /// been decided upon while it was read, and the smaller size for them could be spent on this one.
    async fn delete_by_name(&self, entry: &Entry) -> Result<(), CallError> {
        // Nothing is awaited between this and the call.
        if !self.followed_now().is_some_and(|(log, followed)| followed.permits_by_name(&log, entry)) {
            return Ok(());
        }
        let key = self.machine_key(&entry.name);
        let result = self.write(Write::Delete, self.api().delete_machine(&key, &entry.uid, None)).await;
        match result {
            Ok(()) => {
                tracing::info!(group = %self.id, machine = %entry.name, "Machine deleted by name: the smaller size has taken another one");
                self.tell(Happening::deleted_by_name(&entry.name));
                Ok(())
            }
            // It is gone, or another one has its name.
            Err(CallError::Missing(_) | CallError::Conflict(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Takes entries out of the log that are over.
    async fn forget(&self, view: &DeletionView, over: Vec<Entry>) -> Result<(), CallError> {
        if over.is_empty() {
            return Ok(());
        }
        let mut attempts = self.attempts();
        let mut version = self.index().deletions(&self.id).map_or_else(|| view.version.clone(), |view| view.version);
        loop {
            let Ok(log) = version.log() else { return Ok(()) };
            let left = log.clone().without(|entry| over.contains(entry));
            if left == log {
                return Ok(());
            }
            let text = left.print().map_err(|error| CallError::Refused(error.to_string()))?;
            let change = GroupChange { replicas: None, log: text };
            let written = self.write(Write::Log, self.api().write_group(&self.id, &version, &change)).await;
            let Err(error) = self.wrote_log(written) else {
                tracing::info!(group = %self.id, machines = names(&over), "deletions have come to their end");
                return Ok(());
            };
            if !attempts.again(&error).await {
                return Err(error);
            }
            version = self.view_again(&mut attempts).await?;
        }
    }
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

fn names(entries: &[Entry]) -> String {
    entries.iter().map(|entry| entry.name.as_str()).collect::<Vec<_>>().join(",")
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
