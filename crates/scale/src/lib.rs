//! Makes every write: increases, decreases and deletes. Commands run in tasks of their own, one at a time per group and
//! concurrently across groups; each write has a precondition. Before its first write a command ends when its caller
//! leaves; after it, the command runs to a known result.
//!
//! This crate must never answer a read, and never decide what a rule of [`rules`] decides.

mod accepted;
mod api;
mod delete;
mod error;
mod events;
#[cfg(any(test, feature = "test-support"))]
#[doc(hidden)]
pub mod fake;
mod history;
mod limited_log;
mod metrics;
mod queue;
mod read;
mod read_only;
mod refusal;
mod remembered;
mod removal;
mod repeats;
mod replace;
mod report;
mod request;
mod resize;
mod retry;
mod size_observer;
mod size_write;
mod tenancy;
#[cfg(test)]
mod tests;
pub mod traces;
mod turn;

use std::{sync::Arc, time::Duration};

use arcstr::ArcStr;
use shared_informer::Spawner;
use tokio::{sync::oneshot, time::timeout};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use self::{
    accepted::AcceptedDeletions,
    limited_log::Refusals,
    queue::{Caller, Command, Delete, Lanes},
    read_only::ReadOnlyCommand,
    repeats::Repeats,
    turn::Shared,
};
pub use self::{
    api::Api,
    error::{ScaleError, code_name},
    events::{EventReason, EventRecorder},
    history::{Entry as HistoryEntry, History, Outcome as HistoryOutcome},
    metrics::ScaleMetrics,
    remembered::MemoryKeeper,
    request::NamedNode,
    tenancy::{MayWrite, WriteBudget},
};
use index::Index;
use rules::{ErrorRules, Grace, GroupId};

/// The operator's choices about writes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ScaleOptions {
    /// The handling of requests to delete instances of a MachinePool that aren't Machines.
    pub machine_pool_deletes: MachinePoolDeletes,
    /// The handling of requests at the min size that name Machines without a Node.
    pub at_min_size: AtMinSize,
    /// True if nothing is written: commands only report what they would do.
    pub read_only: bool,
}

impl ScaleOptions {
    /// Returns the rules for failed Machines that agree with these choices.
    pub fn error_rules(self, grace: Grace) -> ErrorRules {
        ErrorRules { deletes: !self.read_only, replaces_at_min: self.at_min_size == AtMinSize::Replace, grace }
    }
}

/// The handling of requests to delete instances of a MachinePool that aren't Machines.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum MachinePoolDeletes {
    /// The size is lowered, and the infrastructure provider chooses which instance goes.
    #[default]
    Lower,
    /// They are refused.
    Refuse,
}

/// The handling of requests at the min size that name Machines without a Node.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum AtMinSize {
    /// One of the Machines is replaced from time to time.
    #[default]
    Replace,
    /// They are refused.
    Refuse,
}

/// The writes of one workload cluster's groups. Dropping the last clone ends the observer; commands under way run to
/// their end.
#[derive(Clone)]
pub struct Scale {
    shared: Arc<Shared>,
    /// The name of the client whose commands these are.
    client: Option<ArcStr>,
    _observer: Arc<DropGuard>,
}

impl Scale {
    /// Creates a handle that decides by `index`, writes through `api`, and reports to `events`. Commands run on
    /// `runtime`.
    pub fn new(
        index: Arc<Index>,
        api: Api,
        options: ScaleOptions,
        metrics: ScaleMetrics,
        events: EventRecorder,
        runtime: impl Into<Spawner>,
    ) -> Self {
        let (ended, is_one_of_many) = (CancellationToken::new(), api.tenancy().is_one_of_many());
        let shared = Arc::new(Shared {
            index: Arc::clone(&index),
            api,
            options,
            metrics,
            events,
            history: if is_one_of_many { History::of_one_of_many() } else { History::default() },
            spawner: runtime.into(),
            tasks: TaskTracker::new(),
            ended: ended.clone(),
            lanes: Lanes::default(),
            accepted_deletions: AcceptedDeletions::default(),
            refusals: Refusals::default(),
            repeats: Repeats::default(),
        });
        if !options.read_only {
            let written = index.written_sizes();
            shared.spawner.spawn(size_observer::run(Arc::downgrade(&shared), index, written, ended.clone()));
        }
        Self { shared, client: None, _observer: Arc::new(ended.drop_guard()) }
    }

    /// Returns a handle for the commands of a client, whose name the log, Events and the history show.
    pub fn requested_by(&self, client: Option<ArcStr>) -> Self {
        Self { client, ..self.clone() }
    }

    /// Returns true if nothing is written.
    pub fn is_read_only(&self) -> bool {
        self.shared.options.read_only
    }

    fn read_only_command(&self, id: GroupId) -> ReadOnlyCommand {
        ReadOnlyCommand { shared: Arc::clone(&self.shared), id, client: self.client.clone() }
    }

    /// Raises the size of a group by `delta`.
    ///
    /// # Errors
    /// A delta that isn't positive, a group that isn't known or can't be scaled, a size beyond max, or the API
    /// server's refusal.
    pub async fn increase(&self, id: GroupId, delta: i32) -> Result<(), ScaleError> {
        if self.is_read_only() {
            return self.read_only_command(id).increase(delta);
        }
        self.run(id, "increase", |caller| Command::Increase(delta, caller)).await
    }

    /// Lowers the size of a group by `-delta`, but at most to the number of its Machines that have a Node. Succeeds
    /// without a change for a group that can't be scaled now.
    ///
    /// # Errors
    /// A delta that isn't negative, a group that isn't known, or the API server's refusal.
    pub async fn decrease(&self, id: GroupId, delta: i32) -> Result<(), ScaleError> {
        if self.is_read_only() {
            return self.read_only_command(id).decrease(delta);
        }
        self.run(id, "decrease", |caller| Command::Decrease(delta, caller)).await
    }

    /// Deletes the Machines of these Nodes of a group, and then lowers its size by as many. A Node whose deletion is under
    /// way succeeds and lowers nothing.
    ///
    /// # Errors
    /// A Node that isn't of this group, a size below min, or the API server's refusal. The error says if Machines were
    /// deleted although the size couldn't be lowered.
    pub async fn delete(&self, id: GroupId, nodes: Vec<NamedNode>) -> Result<(), ScaleError> {
        if self.is_read_only() {
            return self.read_only_command(id).delete(&nodes);
        }
        self.run(id, "delete", |mut caller| {
            caller.nodes = Some(nodes.len());
            Command::Delete(Delete { nodes, caller })
        })
        .await
    }

    /// Returns the last writes and refusals of the groups.
    pub fn history(&self) -> &History {
        &self.shared.history
    }

    /// Logs the sums of refused and failed commands whose minute is over. It must be called periodically.
    pub fn sum_up_refusals(&self) {
        self.shared.refusals.sum_up();
    }

    /// Returns the number of groups with a command under way or waiting: zero at rest.
    pub fn busy_groups(&self) -> usize {
        self.shared.lanes.len()
    }

    /// Takes no further commands of a Cluster that has left.
    pub fn leave(&self) {
        self.shared.tasks.close();
    }

    /// Takes no further commands, and ends the observer. Commands under way run to their end.
    pub fn stop(&self) {
        self.shared.ended.cancel();
        self.shared.tasks.close();
    }

    /// Lets the running commands finish, for at most `limit`; then ends the Events, unless they
    /// are those of one of many Clusters: others, which share the recorder, may still have commands under way.
    ///
    /// # Errors
    /// The number of commands that were still running.
    pub async fn drain(&self, limit: Duration) -> Result<(), usize> {
        let tasks = &self.shared.tasks;
        self.stop();
        let ended = timeout(limit, tasks.wait()).await.map_err(|_| tasks.len());
        if !self.shared.api.tenancy().is_one_of_many() {
            self.shared.events.end().await;
        }
        ended
    }

    /// Queues a command for its group's turn, and waits for its result.
    async fn run(
        &self,
        id: GroupId,
        command: &'static str,
        queued: impl FnOnce(Caller) -> Command,
    ) -> Result<(), ScaleError> {
        // A shutdown, or the end of one of many Clusters, waits for running commands, and not for later ones.
        if self.shared.tasks.is_closed() {
            self.shared.api.tenancy().check().map_err(|error| refusal::failed(&id, &error))?;
            return Err(refusal::shutting_down(&id));
        }
        let ((sender, receiver), waiting) = (oneshot::channel(), Arc::new(()));
        let caller = Caller::new(command, self.client.clone(), sender, &waiting);
        queue::enqueue(&self.shared, &id, queued(caller));
        let result = receiver.await;
        // Until the result is there, the command sees by it that the caller waits.
        drop(waiting);
        result.unwrap_or_else(|_| Err(refusal::without_result()))
    }
}
