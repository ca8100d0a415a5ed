//! Commands, their callers, and their order: one at a time per group, in the order of their arrival, and concurrently
//! across groups. Adjacent deletes are one batch. A group has a task only while it has commands. No lock is held across an
//! await.

use std::{
    collections::{HashMap, VecDeque},
    mem,
    sync::{Arc, Weak},
    time::Duration,
};

use arcstr::ArcStr;
use opentelemetry::{Context, context::FutureExt as _};
use parking_lot::Mutex;
use rules::GroupId;
use tokio::{
    sync::oneshot,
    time::{Instant, sleep},
};

use super::{
    delete,
    error::{ScaleError, code_name},
    refusal,
    request::NamedNode,
    resize,
    turn::{Shared, Turn},
};

/// The caller that waits for a command's result.
pub(super) struct Caller {
    /// The command as a metric label.
    pub(super) command: &'static str,
    /// The number of Nodes that it names.
    pub(super) nodes: Option<usize>,
    /// The time at which it was asked for.
    pub(super) begun: Instant,
    /// The trace that it is a part of.
    pub(super) trace: Context,
    /// The name of the client that asks.
    pub(super) client: Option<ArcStr>,
    /// Held by the call for as long as it waits.
    pub(super) waiting: Weak<()>,
    answer: oneshot::Sender<Result<(), ScaleError>>,
}

impl Caller {
    /// Returns the caller that holds `waiting`.
    pub(super) fn new(
        command: &'static str,
        client: Option<ArcStr>,
        answer: oneshot::Sender<Result<(), ScaleError>>,
        waiting: &Arc<()>,
    ) -> Self {
        let (begun, trace, waiting) = (Instant::now(), Context::current(), Arc::downgrade(waiting));
        Self { command, nodes: None, begun, trace, client, waiting, answer }
    }

    /// Returns true if nobody waits for the result any more.
    pub(super) fn is_gone(&self) -> bool {
        self.answer.is_closed()
    }

    pub(super) fn answer(self, result: Result<(), ScaleError>) {
        // The caller may have left: the log has the result.
        let _ = self.answer.send(result);
    }
}

/// A delete that waits for its turn.
pub(super) struct Delete {
    pub(super) nodes: Vec<NamedNode>,
    pub(super) caller: Caller,
}

/// A command that waits for its turn.
pub(super) enum Command {
    Increase(i32, Caller),
    Decrease(i32, Caller),
    Delete(Delete),
}

impl Command {
    /// Returns true if nobody waits for the result any more.
    fn is_abandoned(&self) -> bool {
        match self {
            Self::Increase(_, caller) | Self::Decrease(_, caller) | Self::Delete(Delete { caller, .. }) => {
                caller.is_gone()
            }
        }
    }

    fn into_caller(self) -> Caller {
        match self {
            Self::Increase(_, caller) | Self::Decrease(_, caller) | Self::Delete(Delete { caller, .. }) => caller,
        }
    }
}

/// The time for which deletes that come together are gathered: Cluster Autoscaler sends one Node per call, concurrently,
/// and one smaller size serves the whole batch.
const GATHERED_FOR: Duration = Duration::from_millis(5);

/// Removes the lane of a task that ended in the middle of a turn, which closes the channels of its callers.
struct Guard {
    shared: Arc<Shared>,
    id: GroupId,
    has_ended: bool,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.has_ended {
            self.shared.lanes.0.lock().remove(&self.id);
        }
    }
}

/// Queues a command for its group's turn. It is refused if too many wait, and those that nobody waits for any more end.
pub(super) fn enqueue(shared: &Arc<Shared>, id: &GroupId, command: Command) {
    let Enqueued { is_new, refused, gone } = shared.lanes.enqueue(id, command);
    if is_new {
        let guard = Guard { shared: Arc::clone(shared), id: id.clone(), has_ended: false };
        shared.spawner.spawn_tracked(&shared.tasks, run(guard));
    }
    if refused.is_none() && gone.is_empty() {
        return;
    }
    let turn = Turn::new(Arc::clone(shared), id.clone());
    for command in gone {
        turn.answer(command.into_caller(), Err(refusal::abandoned(id)));
    }
    if let Some(command) = refused {
        turn.answer(command.into_caller(), Err(refusal::too_many(id)));
    }
}

/// Takes turns until none is left.
async fn run(mut guard: Guard) {
    while let Some(command) = guard.shared.lanes.next(&guard.id) {
        let turn = Turn::new(Arc::clone(&guard.shared), guard.id.clone());
        match command {
            Command::Increase(delta, caller) => {
                let result = in_turn(&turn, &caller, Box::pin(resize::increase(&turn, delta, &caller))).await;
                turn.answer(caller, result);
            }
            Command::Decrease(delta, caller) => {
                let result = in_turn(&turn, &caller, Box::pin(resize::decrease(&turn, delta, &caller))).await;
                turn.answer(caller, result);
            }
            Command::Delete(first) => {
                let deletes = gather(&turn, first).await;
                let span = turn.api().traces().work("delete", deletes.iter().map(|delete| &delete.caller.trace));
                span.set("group", turn.id.to_string());
                Box::pin(delete::run_batch(&turn, deletes)).with_context(span.context()).await;
                span.close();
            }
        }
    }
    guard.has_ended = true;
}

/// Gathers the deletes that arrive at the same time as the first one.
async fn gather(turn: &Turn, first: Delete) -> Vec<Delete> {
    sleep(GATHERED_FOR).await;
    let mut deletes = vec![first];
    deletes.extend(turn.shared.lanes.more_deletes(&turn.id));
    turn.note_callers(deletes.iter().map(|delete| &delete.caller));
    deletes
}

/// Carries out a command that has one caller.
async fn in_turn(
    turn: &Turn,
    caller: &Caller,
    command: impl Future<Output = Result<(), ScaleError>>,
) -> Result<(), ScaleError> {
    if caller.is_gone() {
        return Err(refusal::abandoned(&turn.id));
    }
    turn.note_callers([caller]);
    let span = turn.api().traces().work(caller.command, std::iter::once(&caller.trace));
    span.set("group", turn.id.to_string());
    let result = command.with_context(span.context()).await;
    match &result {
        Ok(()) => span.end("OK", None),
        Err(error) => span.end(code_name(error.grpc_code()), Some(error.to_string())),
    }
    result
}

/// The maximum number of commands that wait for a group's turn.
pub(super) const MOST_WAITING: usize = 1_000;

/// The result of queueing a command.
struct Enqueued {
    /// True if the lane is new and has to be run.
    is_new: bool,
    /// The command, if too many wait already.
    refused: Option<Command>,
    /// The waiting commands whose callers are gone. They are out of the lane.
    gone: VecDeque<Command>,
}

/// The waiting commands of each group. A lane exists for as long as its task runs.
#[derive(Default)]
pub(super) struct Lanes(Mutex<HashMap<GroupId, VecDeque<Command>>>);

impl Lanes {
    /// Returns the number of commands that wait for a turn of this group.
    #[cfg(test)]
    pub(super) fn waiting(&self, id: &GroupId) -> usize {
        self.0.lock().get(id).map_or(0, VecDeque::len)
    }

    /// Returns the number of groups that have something to do.
    pub(super) fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// Puts a command into its group's lane, if not too many wait there. Takes out those whose callers are gone, which
    /// would stay in memory until their turn.
    fn enqueue(&self, id: &GroupId, command: Command) -> Enqueued {
        let mut lanes = self.0.lock();
        let is_new = !lanes.contains_key(id);
        let lane = lanes.entry(id.clone()).or_default();
        let (gone, left) = mem::take(lane).into_iter().partition(Command::is_abandoned);
        *lane = left;
        let refused = if lane.len() < MOST_WAITING {
            lane.push_back(command);
            None
        } else {
            Some(command)
        };
        Enqueued { is_new, refused, gone }
    }

    /// Returns the next command of a lane; the lane ends if there is none.
    fn next(&self, id: &GroupId) -> Option<Command> {
        let mut lanes = self.0.lock();
        let command = lanes.get_mut(id)?.pop_front();
        if command.is_none() {
            lanes.remove(id);
        }
        command
    }

    /// Takes the deletes at the head of the lane.
    pub(super) fn more_deletes(&self, id: &GroupId) -> Vec<Delete> {
        let (mut lanes, mut deletes) = (self.0.lock(), Vec::new());
        let Some(lane) = lanes.get_mut(id) else { return deletes };
        while let Some(Command::Delete(_)) = lane.front() {
            if let Some(Command::Delete(delete)) = lane.pop_front() {
                deletes.push(delete);
            }
        }
        deletes
    }
}
