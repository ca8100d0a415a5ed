//! Every write: increase, decrease, delete, and the end of what deletes have begun. A command runs in a task of its own,
//! one at a time per group and side by side across groups; each write has a precondition. Until its first write a command
//! ends with its caller; after it, it runs to a known result whoever still waits, and what a copy of the program leaves
//! behind any copy finishes.
//!
//! This room must never answer a read, and never decide what a rule of [`crate::nodegroup`] decides.

mod api;
mod batch;
mod call_error;
mod carry;
mod delete;
mod error;
mod events;
mod finisher;
mod going;
mod history;
mod known;
mod lane;
mod mark;
mod metrics;
mod observer;
mod outcome;
mod passes;
mod read_only;
mod repeats;
mod replace;
mod retry;
mod rollout;
mod rule;
mod size;
#[cfg(test)]
pub(crate) mod tests;
mod writer;

use std::{
    collections::BTreeSet,
    hash::{BuildHasher as _, RandomState},
    mem,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use arcstr::ArcStr;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::{sync::oneshot, time::timeout};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

pub use self::{
    api::Api,
    delete::NodeName,
    error::ScaleError,
    events::{EventReason, EventRecorder},
    going::MachinePoolDeletes,
    history::{Entry as HistoryEntry, History, Outcome as HistoryOutcome},
    known::WatchedMachines,
    metrics::ScaleMetrics,
    replace::AtMinSize,
};
use self::{
    api::{CallError, GroupSeen},
    going::Going,
    lane::{Caller, Delete, Lanes, Order},
    outcome::Resized,
    repeats::Repeats,
    retry::Attempts,
};
use crate::{
    index::{GroupVersion, Index, NotScalable, ScaleView},
    nodegroup::{DeletionLog, GroupId, Ticket},
    tasks::Spawner,
};

/// What an operator may choose about writes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ScaleOptions {
    /// What a request to delete instances of a MachinePool does that aren't Machines.
    pub machine_pool_deletes: MachinePoolDeletes,
    /// What a request does that names Machines without a Node at the least size.
    pub at_min_size: AtMinSize,
    /// Nothing is written, and nothing that was begun is finished: commands only say what they would do.
    pub read_only: bool,
}

/// How long Events may still be posted at the end.
const EVENTS_AT_THE_END: Duration = Duration::from_secs(1);

/// The writes of one workload cluster's groups. Dropping the last clone ends the finisher; commands under way run to
/// their end.
#[derive(Clone)]
pub struct Scale {
    inner: Arc<Inner>,
    /// The client whose commands these are, by name.
    client: Option<ArcStr>,
    _finisher: Arc<DropGuard>,
}

struct Inner {
    index: Arc<Index>,
    api: Api,
    machines: Arc<dyn WatchedMachines>,
    options: ScaleOptions,
    metrics: ScaleMetrics,
    events: EventRecorder,
    history: History,
    spawner: Spawner,
    tasks: TaskTracker,
    ended: CancellationToken,
    lanes: Lanes,
    going: Going,
    repeats: Repeats,
    memory: finisher::Memory,
}

/// What a command works with: its group, and what it knows of it and does to it.
struct Command {
    inner: Arc<Inner>,
    id: GroupId,
    /// The size that was written in this turn.
    resized: Mutex<Option<Resized>>,
    /// The clients whose commands this turn does.
    clients: Mutex<BTreeSet<ArcStr>>,
    /// True once something was written in this turn.
    has_written: AtomicBool,
}

impl Scale {
    /// Writes through `api` what is decided on `index` and `machines`, and tells of it by `events`; commands and the
    /// finisher run on `runtime`.
    #[must_use]
    pub fn new(
        index: Arc<Index>,
        api: Api,
        machines: Arc<dyn WatchedMachines>,
        options: ScaleOptions,
        metrics: ScaleMetrics,
        events: EventRecorder,
        runtime: impl Into<Spawner>,
    ) -> Self {
        let ended = CancellationToken::new();
        let inner = Arc::new(Inner {
            index: Arc::clone(&index),
            api,
            machines,
            options,
            metrics,
            events,
            history: History::default(),
            spawner: runtime.into(),
            tasks: TaskTracker::new(),
            ended: ended.clone(),
            lanes: Lanes::default(),
            going: Going::default(),
            repeats: Repeats::default(),
            memory: finisher::Memory::default(),
        });
        if !options.read_only {
            let (changes, observed) = (index.unfinished(), index.observed());
            inner.spawner.spawn(finisher::run(Arc::downgrade(&inner), Arc::clone(&index), changes, ended.clone()));
            inner.spawner.spawn(observer::run(Arc::downgrade(&inner), index, observed, ended.clone()));
        }
        Self { inner, client: None, _finisher: Arc::new(ended.drop_guard()) }
    }

    /// The same for the commands of a client, whose name the log, Events and the history show.
    #[must_use]
    pub fn asked_by(&self, client: Option<ArcStr>) -> Self {
        Self { client, ..self.clone() }
    }

    /// Raises the size of a group by `delta`.
    ///
    /// # Errors
    /// A delta that isn't positive, a group that isn't known or can't be scaled, a size beyond max, or the API
    /// server's refusal.
    pub async fn increase(&self, id: GroupId, delta: i32) -> Result<(), ScaleError> {
        if self.is_read_only() {
            return self.would_increase(id, delta);
        }
        self.run(id, "increase", |caller| Order::Increase(delta, caller)).await
    }

    /// Lowers the size of a group by `-delta`, but not below its Machines that have a Node: it stops there, and
    /// that is a success. So is a group that can't be scaled for now: its size stays.
    ///
    /// # Errors
    /// A delta that isn't negative, a group that isn't known, or the API server's refusal.
    pub async fn decrease(&self, id: GroupId, delta: i32) -> Result<(), ScaleError> {
        if self.is_read_only() {
            return self.would_decrease(id, delta);
        }
        self.run(id, "decrease", |caller| Order::Decrease(delta, caller)).await
    }

    /// Deletes these Nodes of a group and lowers its size by as many. All or nothing; Nodes that are going
    /// already are a success and lower nothing. Once it is decided it is finished, by whichever copy of the program.
    ///
    /// # Errors
    /// A Node that isn't of this group, a size below min, or the API server's refusal; then what was written for it is
    /// taken back. Where it is decided and not done yet, the error says so.
    pub async fn delete(&self, id: GroupId, nodes: Vec<NodeName>) -> Result<(), ScaleError> {
        if self.is_read_only() {
            return self.would_delete(id, &nodes);
        }
        let named = nodes.len();
        self.run(id, "delete", |caller| Order::Delete(Delete { nodes, caller: caller.naming(named), put_off: None }))
            .await
    }

    /// What was written for the groups and what was refused, the last of it.
    #[must_use]
    pub fn history(&self) -> &History {
        &self.inner.history
    }

    /// The number of groups with a command under way, or with something left of one: zero at rest.
    #[must_use]
    pub fn remembered(&self) -> usize {
        self.inner.lanes.len()
    }

    /// Lets the running commands finish, for at most `limit`, and ends the finisher; then lets Events be posted, for a
    /// second at most.
    ///
    /// # Errors
    /// How many still ran then.
    pub async fn drain(&self, limit: Duration) -> Result<(), usize> {
        let tasks = &self.inner.tasks;
        self.inner.ended.cancel();
        tasks.close();
        let ended = timeout(limit, tasks.wait()).await.map_err(|_| tasks.len());
        self.inner.events.finish(EVENTS_AT_THE_END).await;
        ended
    }

    /// Runs a command in its group's turn.
    async fn run(
        &self,
        id: GroupId,
        command: &'static str,
        order: impl FnOnce(Caller) -> Order,
    ) -> Result<(), ScaleError> {
        // A shutdown waits for what runs; it doesn't wait for what comes after.
        if self.inner.tasks.is_closed() {
            return Err(ScaleError::Unavailable(format!("{id}: this server is shutting down; try again")));
        }
        let (sender, receiver) = oneshot::channel();
        self.inner.order(&id, order(Caller::new(command, sender).asked_by(self.client.clone())));
        receiver.await.unwrap_or_else(|_| {
            Err(ScaleError::Unavailable(
                "the command ended without a result; read the group's size and try again".to_owned(),
            ))
        })
    }
}

impl Command {
    fn new(inner: Arc<Inner>, id: GroupId) -> Self {
        Self { inner, id, resized: Mutex::default(), clients: Mutex::default(), has_written: AtomicBool::default() }
    }

    fn index(&self) -> &Index {
        &self.inner.index
    }

    fn api(&self) -> &Api {
        &self.inner.api
    }

    /// The group as it is now.
    fn view(&self) -> Result<ScaleView, ScaleError> {
        self.index().scale_view(&self.id).map_err(|error| match error {
            NotScalable::Unknown => {
                ScaleError::NotFound(format!("node group {} is not known: it must be in scope and valid", self.id))
            }
            NotScalable::LeftOut(why) => {
                ScaleError::FailedPrecondition(format!("node group {} can't be scaled now: {why}", self.id))
            }
        })
    }

    /// Reads the group's object after a write of it has failed, for as long as it takes.
    async fn view_again(&self, attempts: &mut Attempts) -> Result<GroupVersion, CallError> {
        self.see_again(attempts).await.map(|seen| seen.version)
    }

    /// The same, with who manages its fields.
    async fn see_again(&self, attempts: &mut Attempts) -> Result<GroupSeen, CallError> {
        loop {
            match self.api().read_group(&self.id).await {
                Ok(seen) => {
                    self.index().set_written(&self.id, seen.version.clone());
                    return Ok(seen);
                }
                Err(error) if attempts.again(&error).await => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The log of deletions. One that nobody can read stops all deletions of the group.
    fn log_of(&self, version: &GroupVersion) -> Result<DeletionLog, ScaleError> {
        version.log().map_err(|error| ScaleError::FailedPrecondition(format!("{}: {error}", self.id)))
    }
}

/// The tickets under which one decision may stand in the log. Nobody else draws them.
#[derive(Debug)]
struct Tickets {
    current: Ticket,
    earlier: Vec<Ticket>,
}

impl Tickets {
    fn draw() -> Self {
        Self { current: Self::draw_one(), earlier: Vec::new() }
    }

    fn draw_one() -> Ticket {
        // Each state has keys of its own, of which the operating system drew the first.
        Ticket::new(Timestamp::now(), RandomState::new().hash_one(0_u8))
    }

    /// Returns true if a write under one of them was done and stands.
    fn are_in(&self, log: &DeletionLog) -> bool {
        log.has(&self.current) || self.earlier.iter().any(|ticket| log.has(ticket))
    }

    /// Draws another for the next write, once one had no answer. That one may have been done and taken back by another copy,
    /// which may be taking marks of its ticket off by now; or it arrives yet, when the next has been taken back and the log is
    /// again what it was.
    fn renew(&mut self) {
        self.earlier.push(mem::replace(&mut self.current, Self::draw_one()));
    }
}
