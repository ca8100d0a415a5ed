//! Every write: increase, decrease and delete. A command runs in a task of its own, one at a time per group and
//! side by side across groups; each size write has a precondition. Before its first size write a command ends with
//! its caller and takes its marks back; after it, it runs to a known result whoever still waits.
//!
//! This room must never answer a read, and never decide what a rule of [`crate::nodegroup`] decides.

mod api;
mod delete;
mod error;
mod events;
mod metrics;
mod replace;
mod rollout;
mod size;
#[cfg(test)]
pub(crate) mod tests;

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{runtime::Handle, sync::oneshot, time::timeout};
use tokio_util::task::TaskTracker;

pub use self::{
    api::Api,
    delete::NodeName,
    error::ScaleError,
    events::{EventReason, EventRecorder},
    metrics::ScaleMetrics,
    replace::AtMinSize,
};
use self::{delete::Accepted, events::Happening};
use crate::{
    index::{Index, NotScalable, ScaleView},
    nodegroup::GroupId,
};

/// How long Events may still be posted at the end.
const EVENTS_AT_THE_END: Duration = Duration::from_secs(1);

/// What an operator may choose about writes.
#[derive(Clone, Default)]
pub struct ScaleOptions {
    /// What a request does that names Machines without a Node at the least size.
    pub at_min_size: AtMinSize,
    /// Who posts Events.
    pub events: EventRecorder,
}

/// The writes of one workload cluster's groups.
#[derive(Clone)]
pub struct Scale {
    inner: Arc<Inner>,
}

struct Inner {
    index: Arc<Index>,
    api: Api,
    options: ScaleOptions,
    metrics: ScaleMetrics,
    runtime: Handle,
    tasks: TaskTracker,
    groups: Mutex<HashMap<GroupId, Arc<Lane>>>,
}

/// The one command at a time of a group, and what its deletes were promised.
type Lane = tokio::sync::Mutex<Accepted>;

/// What a caller asks for.
enum Request {
    Increase(i32),
    Decrease(i32),
    Delete(Vec<NodeName>),
}

impl Request {
    /// As a metric label.
    fn name(&self) -> &'static str {
        match self {
            Self::Increase(_) => "increase",
            Self::Decrease(_) => "decrease",
            Self::Delete(_) => "delete",
        }
    }
}

/// What a command works with. It lives in the command's own task.
struct Command {
    inner: Arc<Inner>,
    id: GroupId,
    caller: Caller,
}

/// Whether somebody still waits for a command's result.
struct Caller(oneshot::Sender<Result<(), ScaleError>>);

impl Caller {
    fn is_gone(&self) -> bool {
        self.0.is_closed()
    }
}

impl Scale {
    /// Writes through `api` what is decided on `index`; the commands run on `runtime`.
    #[must_use]
    pub fn new(index: Arc<Index>, api: Api, options: ScaleOptions, metrics: ScaleMetrics, runtime: Handle) -> Self {
        Self {
            inner: Arc::new(Inner {
                index,
                api,
                options,
                metrics,
                runtime,
                tasks: TaskTracker::new(),
                groups: Mutex::new(HashMap::new()),
            }),
        }
    }

    /// Raises the size of a group by `delta`.
    ///
    /// # Errors
    /// A delta that isn't positive, a group that isn't known or can't be scaled, a size beyond max, or the API
    /// server's refusal.
    pub async fn increase(&self, id: GroupId, delta: i32) -> Result<(), ScaleError> {
        self.run(id, Request::Increase(delta)).await
    }

    /// Lowers the size of a group by `-delta`, but not below its Machines that have a Node: it stops there, and
    /// that is a success.
    ///
    /// # Errors
    /// A delta that isn't negative, a group that isn't known or can't be scaled, or the API server's refusal.
    pub async fn decrease(&self, id: GroupId, delta: i32) -> Result<(), ScaleError> {
        self.run(id, Request::Decrease(delta)).await
    }

    /// Deletes these Nodes of a group and lowers its size by as many. All or nothing; Nodes that are going
    /// already are a success and lower nothing.
    ///
    /// # Errors
    /// A Node that isn't of this group, a size below min, or the API server's refusal; then the marks it set are taken
    /// back. Where it isn't known whether the size was written they stay, and the error says so.
    pub async fn delete(&self, id: GroupId, nodes: Vec<NodeName>) -> Result<(), ScaleError> {
        self.run(id, Request::Delete(nodes)).await
    }

    /// How many groups something is remembered of.
    #[cfg(test)]
    fn remembered(&self) -> usize {
        self.inner.groups.lock().len()
    }

    /// Lets the running commands finish, for at most `limit`, and then their Events be posted, for a second at most.
    ///
    /// # Errors
    /// How many still ran then.
    pub async fn drain(&self, limit: Duration) -> Result<(), usize> {
        let tasks = &self.inner.tasks;
        tasks.close();
        let ended = timeout(limit, tasks.wait()).await.map_err(|_| tasks.len());
        self.inner.options.events.finish(EVENTS_AT_THE_END).await;
        ended
    }

    /// Runs a command in a task of its own, in its group's turn.
    async fn run(&self, id: GroupId, request: Request) -> Result<(), ScaleError> {
        let inner = Arc::clone(&self.inner);
        // A shutdown waits for what runs; it doesn't wait for what comes after.
        if inner.tasks.is_closed() {
            return Err(ScaleError::Unavailable(format!("{id}: this server is shutting down; try again")));
        }
        let (sender, receiver) = oneshot::channel();
        let lane = Arc::clone(inner.groups.lock().entry(id.clone()).or_default());
        let runtime = inner.runtime.clone();
        let tasks = inner.tasks.clone();
        tasks.spawn_on(
            async move {
                let mut accepted = lane.lock().await;
                let command = Command { inner, id, caller: Caller(sender) };
                let name = request.name();
                let result = if command.caller.is_gone() {
                    Err(command.abandoned())
                } else {
                    match request {
                        Request::Increase(delta) => command.increase(delta).await,
                        Request::Decrease(delta) => command.decrease(delta).await,
                        Request::Delete(nodes) => command.delete(nodes, &mut accepted).await,
                    }
                };
                drop(accepted);
                command.inner.forget_if_empty(&command.id, &lane);
                command.finish(name, result);
            },
            &runtime,
        );
        receiver.await.unwrap_or_else(|_| {
            Err(ScaleError::Unavailable(
                "the command ended without a result; read the group's size and try again".to_owned(),
            ))
        })
    }
}

impl Inner {
    /// Forgets a lane that nobody else waits in and that promised nothing, so that ids leave nothing behind, those
    /// of no group above all.
    fn forget_if_empty(&self, id: &GroupId, lane: &Arc<Lane>) {
        let mut groups = self.groups.lock();
        // The map's own and the caller's; nobody gets another while the map is locked.
        let is_last = Arc::strong_count(lane) == 2;
        if is_last && lane.try_lock().is_ok_and(|accepted| accepted.is_empty()) {
            groups.remove(id);
        }
    }
}

impl Command {
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

    fn abandoned(&self) -> ScaleError {
        ScaleError::Aborted(format!(
            "{}: the caller's deadline passed before a size was written; nothing was changed",
            self.id
        ))
    }

    /// Tells by an Event on the group what happened to it.
    fn tell(&self, happening: Happening) {
        if let Some(uid) = self.index().uid(&self.id) {
            self.inner.options.events.record(&self.id, &uid, happening);
        }
    }

    fn finish(self, name: &'static str, result: Result<(), ScaleError>) {
        self.inner.metrics.count_command(name, result.as_ref().err());
        if let Err(error) = &result {
            tracing::warn!(group = %self.id, command = name, code = error.code(), "command refused or failed: {error}");
            if let Some(happening) = Happening::of_error(name == "increase", error) {
                self.tell(happening);
            }
        }
        // Nobody waits any more: the log line above is all there is to tell.
        let _ = self.caller.0.send(result);
    }
}
