//! Sees the deletions that are on their way to their end, whoever began them: a task that is woken by what the watches
//! show, in every copy of the program, and that needs no memory. It must never wait for a caller, and never hold up a
//! command for longer than one look at its group takes.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::{
    sync::{oneshot, watch},
    task::JoinSet,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{
    Command, Inner,
    api::{CallError, GroupChange},
    batch::Marked,
    carry::{NotLowered, named},
    events::Happening,
    metrics::Write,
    rule::{self, Finish, Followed, Life},
};
use crate::{
    capi::Uid,
    index::{DeletionView, Index},
    nodegroup::{Bounds, DeletionLog, GroupId, Ticket, deletion_log::Entry},
};

/// How many groups are looked at side by side.
const GROUPS_AT_ONCE: usize = 8;
/// How long what is wanted is left to the copy that may just be lowering it. Nothing depends on it but the number of
/// conflicts.
const LEFT_ALONE: Duration = Duration::from_secs(2);
/// The pause after a look that failed; it doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// What a look at a group has come to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Pass {
    /// The next change wakes.
    Done,
    /// Something is left to others for now.
    Waits,
    /// A call failed.
    Failed,
}

/// Which tickets are wanted, since when as this process saw it.
pub(super) type WantedSince = HashMap<Ticket, Instant>;

/// The looks at groups, in their order.
struct Finisher {
    inner: Weak<Inner>,
    /// Groups to look at again without a change, with when.
    later: BTreeMap<GroupId, Instant>,
    /// Groups that wait for their turn.
    due: HashSet<GroupId>,
    under_way: HashSet<GroupId>,
    passes: JoinSet<(GroupId, Pass)>,
    pauses: HashMap<GroupId, Duration>,
}

/// Finishes deletions until `ended`, or until nobody holds `inner` any more.
pub(super) async fn run(
    inner: Weak<Inner>,
    index: Arc<Index>,
    mut changes: watch::Receiver<()>,
    ended: CancellationToken,
) {
    let mut finisher = Finisher {
        inner,
        later: BTreeMap::new(),
        // What was there before this began.
        due: index.take_unfinished().into_iter().collect(),
        under_way: HashSet::new(),
        passes: JoinSet::new(),
        pauses: HashMap::new(),
    };
    loop {
        finisher.start_due();
        let next = finisher.later.values().min().copied();
        tokio::select! {
            () = ended.cancelled() => return,
            woken = changes.changed() => {
                if woken.is_err() {
                    return;
                }
                finisher.take_changed(index.take_unfinished());
            }
            Some(done) = finisher.passes.join_next() => {
                if let Ok((id, pass)) = done {
                    finisher.end(&id, pass);
                }
            }
            () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => finisher.take_later(),
        }
    }
}

impl Finisher {
    fn start_due(&mut self) {
        let Some(inner) = self.inner.upgrade() else { return };
        let free = GROUPS_AT_ONCE.saturating_sub(self.under_way.len());
        let due: Vec<_> = self.due.iter().filter(|id| !self.under_way.contains(*id)).take(free).cloned().collect();
        for id in due {
            self.due.remove(&id);
            self.under_way.insert(id.clone());
            let (done, ended) = oneshot::channel();
            inner.order_finish(&id, done);
            // A lane that broke off has failed.
            self.passes.spawn(async move { (id, ended.await.unwrap_or(Pass::Failed)) });
        }
    }

    fn end(&mut self, id: &GroupId, pass: Pass) {
        self.under_way.remove(id);
        let pause = match pass {
            Pass::Done => {
                self.pauses.remove(id);
                return;
            }
            Pass::Waits => LEFT_ALONE,
            Pass::Failed => {
                let pause = self.pauses.entry(id.clone()).or_insert(FIRST_PAUSE);
                let now = *pause;
                *pause = (*pause * 2).min(LONGEST_PAUSE);
                // What has changed meanwhile, by its own marks for example, waits for the pause as well.
                self.due.remove(id);
                now
            }
        };
        self.later.insert(id.clone(), Instant::now() + pause);
    }

    /// Groups of which something has changed. After a look that failed a change doesn't shorten the pause: a group of
    /// many Machines changes all the time, and what the API server refuses would be asked of it each time.
    fn take_changed(&mut self, changed: impl IntoIterator<Item = GroupId>) {
        let pauses = |id: &GroupId| self.pauses.contains_key(id) && self.later.contains_key(id);
        let due: Vec<_> = changed.into_iter().filter(|id| !pauses(id)).collect();
        self.due.extend(due);
    }

    fn take_later(&mut self) {
        let now = Instant::now();
        let due: Vec<_> = self.later.iter().filter(|(_, at)| **at <= now).map(|(id, _)| id.clone()).collect();
        for id in due {
            self.later.remove(&id);
            self.due.insert(id);
        }
    }
}

impl Command {
    /// Looks at the group's deletions once, and does what can be done.
    pub(super) async fn finish(&self) -> Pass {
        let Some(view) = self.index().deletions(&self.id) else {
            self.inner.wanted.lock().remove(&self.id);
            return Pass::Done;
        };
        let log = match view.version.log() {
            Ok(log) => log,
            Err(error) => {
                tracing::warn!(group = %self.id, "deletions can't be finished: {error}");
                return Pass::Done;
            }
        };
        let followed = Followed::by(self.id.kind, &view.sets);
        let steps = rule::finish(&log, &view.machines, &followed);
        self.inner.forget_wanted(&log, &self.id);
        let mut pass = Pass::Done;
        if steps.contains(&Finish::CarryOn) {
            pass = self.carry_on(&view, &log).await;
        }
        match self.settle(&view, &followed, steps).await {
            Ok(()) => pass,
            Err(error) => {
                tracing::warn!(group = %self.id, "can't finish deletions; this is tried again: {}", self.failed(&error));
                Pass::Failed
            }
        }
    }

    /// Lowers what is wanted, unless another copy may just be at it.
    async fn carry_on(&self, view: &DeletionView, log: &DeletionLog) -> Pass {
        let (ripe, waits) = self.inner.ripe(&self.id, log);
        if ripe.is_empty() {
            return Pass::Waits;
        }
        let bounds = Bounds { min: view.min, max: i32::MAX };
        match self.carry_out(view.version.clone(), &ripe, bounds, Marked::default()).await {
            Ok(_) if waits => Pass::Waits,
            Ok(_) => Pass::Done,
            Err(NotLowered::Refused(error)) => {
                tracing::warn!(group = %self.id, code = error.code(), "deletions that were decided are given up: {error}");
                // What is left of them is found by the next look.
                Pass::Failed
            }
            Err(NotLowered::Pending(error)) => {
                tracing::warn!(group = %self.id, code = error.code(), "deletions that were decided wait: {error}");
                Pass::Failed
            }
        }
    }

    /// Deletes by name what a smaller size has left, and forgets what is over.
    async fn settle(&self, view: &DeletionView, followed: &Followed, steps: Vec<Finish>) -> Result<(), CallError> {
        let mut over = Vec::new();
        let mut settled = Vec::new();
        let mut to_unmark = Vec::new();
        for step in steps {
            match step {
                Finish::CarryOn => {}
                Finish::ForgetGone(entry) => {
                    // The cache may not have heard of it yet.
                    if self.is_stranger(&entry) || self.read_life(&named(&entry)).await? == Life::Gone {
                        over.push(entry);
                    }
                }
                Finish::ForgetSoft(entry) | Finish::Delete(entry) => settled.push(entry),
                Finish::Unmark(name, mark) => to_unmark.push((name, mark)),
            }
        }
        if !settled.is_empty() || !to_unmark.is_empty() {
            let now = self.api().read_group(&self.id).await?.version;
            self.index().set_written(&self.id, now.clone());
            let Ok(log) = now.log() else { return Ok(()) };
            let are_all_followed = followed.has_all(&log);
            for entry in settled.into_iter().filter(|entry| are_all_followed && log.get(&entry.uid) == Some(entry)) {
                if entry.soft {
                    over.push(entry);
                } else {
                    self.delete_by_name(&entry).await?;
                }
            }
            for (name, mark) in to_unmark {
                if Ticket::of_mark(&mark).is_some_and(|ticket| !log.has(&ticket)) && !self.unmark(&name, &mark).await {
                    return Err(CallError::Unknown(format!("the mark of Machine {name} stays"), None));
                }
            }
        }
        self.forget(view, over).await
    }

    /// Deletes a Machine whose deletion was spent on another one. The watch of Machines may lag behind that of MachineSets,
    /// so that one which went as it should still looks alive: whether it is, is asked of the API server.
    async fn delete_by_name(&self, entry: &Entry) -> Result<(), CallError> {
        match self.read_life(&named(entry)).await? {
            Life::Alive => {}
            Life::Deleting | Life::Gone => return Ok(()),
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

fn names(entries: &[Entry]) -> String {
    entries.iter().map(|entry| entry.name.as_str()).collect::<Vec<_>>().join(",")
}

impl Inner {
    /// The entries that are wanted for so long that nobody else may be lowering them, and whether there are others.
    fn ripe(&self, id: &GroupId, log: &DeletionLog) -> (HashSet<Uid>, bool) {
        let now = Instant::now();
        let mut wanted = self.wanted.lock();
        let wanted = wanted.entry(id.clone()).or_default();
        let (mut ripe, mut waits) = (HashSet::new(), false);
        for entry in log.entries().iter().filter(|entry| entry.phase == crate::nodegroup::Phase::Wanted) {
            let since = *wanted.entry(entry.ticket.clone()).or_insert(now);
            if now.duration_since(since) >= LEFT_ALONE {
                ripe.insert(entry.uid.clone());
            } else {
                waits = true;
            }
        }
        (ripe, waits)
    }

    /// Forgets the tickets that are wanted no more.
    fn forget_wanted(&self, log: &DeletionLog, id: &GroupId) {
        let mut all = self.wanted.lock();
        let Some(wanted) = all.get_mut(id) else { return };
        let is_wanted = |ticket: &Ticket| {
            log.entries().iter().any(|entry| entry.ticket == *ticket && entry.phase == crate::nodegroup::Phase::Wanted)
        };
        wanted.retain(|ticket, _| is_wanted(ticket));
        if wanted.is_empty() {
            all.remove(id);
        }
    }
}
