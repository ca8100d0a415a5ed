//! The order of commands: one at a time per group and side by side across groups, in the order of their arrival. Deletes
//! that stand together are one batch. It must never hold a lock across an await.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use opentelemetry::{Context, context::FutureExt as _};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};

use super::{Command, Inner, ScaleError, delete::NodeName, finisher::Pass};
use crate::{
    nodegroup::GroupId,
    traces::{self, Span},
};

/// How long no further delete must have come before those that have come begin: Cluster Autoscaler sends one Node each,
/// side by side, and each write of the log is one for all that stand together. Who comes later joins (`batch`).
const QUIET: Duration = Duration::from_millis(1);
/// The most that a row of deletes is waited for.
const MOST_GATHERED: Duration = Duration::from_millis(10);

/// Who waits for a command's result.
pub(super) struct Caller {
    command: &'static str,
    /// How many Nodes it names.
    nodes: Option<usize>,
    begun: Instant,
    trace: Context,
    answer: oneshot::Sender<Result<(), ScaleError>>,
}

impl Caller {
    pub(super) fn new(command: &'static str, answer: oneshot::Sender<Result<(), ScaleError>>) -> Self {
        Self { command, nodes: None, begun: Instant::now(), trace: traces::current(), answer }
    }

    /// The same, of a command that names that many Nodes.
    pub(super) fn naming(self, nodes: usize) -> Self {
        Self { nodes: Some(nodes), ..self }
    }

    pub(super) fn nodes(&self) -> Option<usize> {
        self.nodes
    }

    /// What it is a part of.
    pub(super) fn trace(&self) -> &Context {
        &self.trace
    }

    /// Since it was asked for.
    pub(super) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// The command, as a metric label.
    pub(super) fn command(&self) -> &'static str {
        self.command
    }

    /// Whether nobody waits any more.
    pub(super) fn is_gone(&self) -> bool {
        self.answer.is_closed()
    }

    pub(super) fn answer(self, result: Result<(), ScaleError>) {
        // Nobody waits any more: what was logged is all there is to tell.
        let _ = self.answer.send(result);
    }
}

/// A delete that waits for its turn.
pub(super) struct Delete {
    pub(super) nodes: Vec<NodeName>,
    pub(super) caller: Caller,
}

/// What waits for its turn.
pub(super) enum Order {
    Increase(i32, Caller),
    Decrease(i32, Caller),
    Delete(Delete),
}

/// What a group has to do next.
enum Turn {
    Order(Order),
    Finish(oneshot::Sender<Pass>),
}

/// What waits for one group's turn. It is there for as long as its task runs.
#[derive(Default)]
struct Lane {
    orders: VecDeque<Order>,
    /// Those who wait for the finisher's look at the group.
    finish: Vec<oneshot::Sender<Pass>>,
    /// Whether the finisher is next, when commands wait too.
    finish_is_next: bool,
    /// Rung for each order.
    arrived: Arc<Notify>,
}

/// What waits for each group's turn.
#[derive(Default)]
pub(super) struct Lanes(Mutex<HashMap<GroupId, Lane>>);

impl Lanes {
    /// How many groups have something to do.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// What comes next; without any the lane ends.
    fn next(&self, id: &GroupId) -> Option<Turn> {
        let mut lanes = self.0.lock();
        let lane = lanes.get_mut(id)?;
        lane.finish_is_next = !lane.finish_is_next;
        let order = if lane.finish_is_next && !lane.finish.is_empty() { None } else { lane.orders.pop_front() };
        let turn = order.map(Turn::Order).or_else(|| lane.finish.pop().map(Turn::Finish));
        if turn.is_none() {
            lanes.remove(id);
        }
        turn
    }

    /// What is rung when an order comes for the group.
    pub(super) fn arrived(&self, id: &GroupId) -> Arc<Notify> {
        self.0.lock().get(id).map(|lane| Arc::clone(&lane.arrived)).unwrap_or_default()
    }

    /// The deletes that stand first, for as long as they do.
    pub(super) fn more_deletes(&self, id: &GroupId) -> Vec<Delete> {
        let mut deletes = Vec::new();
        let mut lanes = self.0.lock();
        let Some(lane) = lanes.get_mut(id) else { return deletes };
        while let Some(Order::Delete(_)) = lane.orders.front() {
            if let Some(Order::Delete(delete)) = lane.orders.pop_front() {
                deletes.push(delete);
            }
        }
        deletes
    }
}

/// Ends a lane whose task ended in the middle: those who wait in it are told, by that nobody answers them.
struct Guard {
    inner: Arc<Inner>,
    id: GroupId,
    has_ended: bool,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.has_ended {
            self.inner.lanes.0.lock().remove(&self.id);
        }
    }
}

impl Inner {
    /// Lets a command wait for its group's turn.
    pub(super) fn order(self: &Arc<Self>, id: &GroupId, order: Order) {
        self.enter(id, |lane| {
            lane.orders.push_back(order);
            lane.arrived.notify_one();
        });
    }

    /// Lets the finisher look at a group.
    pub(super) fn order_finish(self: &Arc<Self>, id: &GroupId, done: oneshot::Sender<Pass>) {
        self.enter(id, |lane| lane.finish.push(done));
    }

    fn enter(self: &Arc<Self>, id: &GroupId, put: impl FnOnce(&mut Lane)) {
        let mut lanes = self.lanes.0.lock();
        if let Some(lane) = lanes.get_mut(id) {
            return put(lane);
        }
        put(lanes.entry(id.clone()).or_default());
        drop(lanes);
        let guard = Guard { inner: Arc::clone(self), id: id.clone(), has_ended: false };
        self.tasks.spawn_on(run(guard), &self.runtime);
    }
}

/// Takes one turn after the other, until none is left.
async fn run(mut guard: Guard) {
    let command = Command { inner: Arc::clone(&guard.inner), id: guard.id.clone(), resized: Mutex::default() };
    while let Some(turn) = command.inner.lanes.next(&command.id) {
        command.resized.lock().take();
        match turn {
            Turn::Order(Order::Increase(delta, caller)) => {
                let work = command.increase(delta, &caller);
                let result = command.in_turn(&caller, work).await;
                command.answer(caller, result);
            }
            Turn::Order(Order::Decrease(delta, caller)) => {
                let work = command.decrease(delta, &caller);
                let result = command.in_turn(&caller, work).await;
                command.answer(caller, result);
            }
            Turn::Order(Order::Delete(first)) => {
                let deletes = command.gather(vec![first]).await;
                let asked = deletes.iter().map(|delete| delete.caller.trace());
                let span = command.api().traces().work("delete", asked);
                command.trace(&span);
                command.delete(deletes).with_context(span.context()).await;
                span.close();
            }
            Turn::Finish(done) => {
                let pass = command.finish().await;
                // The finisher has ended, and so has the program.
                let _ = done.send(pass);
            }
        }
    }
    guard.has_ended = true;
}

impl Command {
    /// What one caller alone has asked for.
    async fn in_turn(
        &self,
        caller: &Caller,
        work: impl Future<Output = Result<(), ScaleError>>,
    ) -> Result<(), ScaleError> {
        if caller.is_gone() {
            return Err(self.abandoned());
        }
        let span = self.api().traces().work(caller.command, std::iter::once(&caller.trace));
        self.trace(&span);
        let result = work.with_context(span.context()).await;
        match &result {
            Ok(()) => span.end("OK", None),
            Err(error) => span.end(error.grpc_code(), Some(error.to_string())),
        }
        result
    }

    fn trace(&self, span: &Span) {
        span.set("group", self.id.to_string());
    }

    /// Deletes, and those that come with them.
    pub(super) async fn gather(&self, mut deletes: Vec<Delete>) -> Vec<Delete> {
        let began = Instant::now();
        loop {
            tokio::time::sleep(QUIET).await;
            let more = self.inner.lanes.more_deletes(&self.id);
            let was_quiet = more.is_empty();
            deletes.extend(more);
            if was_quiet || began.elapsed() > MOST_GATHERED {
                return deletes;
            }
        }
    }
}
