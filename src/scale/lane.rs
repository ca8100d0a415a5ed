//! The order of commands: one at a time per group and side by side across groups, in the order of their arrival. Deletes
//! that stand together are one batch. The finisher's looks take turns with a group's commands. It must never hold a lock
//! across an await, and a command never waits for a look that hasn't begun.

#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use arcstr::ArcStr;
use opentelemetry::{Context, context::FutureExt as _};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};

use super::{Command, Inner, ScaleError, delete::NodeName, finisher::Pass, passes::Passes, rule::Request};
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
    /// The client that asks, by name.
    client: Option<ArcStr>,
    answer: oneshot::Sender<Result<(), ScaleError>>,
}

impl Caller {
    pub(super) fn new(command: &'static str, answer: oneshot::Sender<Result<(), ScaleError>>) -> Self {
        Self { command, nodes: None, begun: Instant::now(), trace: traces::current(), client: None, answer }
    }

    /// The same, of a command that this client has asked for.
    pub(super) fn asked_by(self, client: Option<ArcStr>) -> Self {
        Self { client, ..self }
    }

    pub(super) fn client(&self) -> Option<&ArcStr> {
        self.client.as_ref()
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
    /// Its request, if it could not be decided with those that came with it: it joins no batch that is under way.
    pub(super) put_off: Option<PutOff>,
}

/// A request that was looked up already.
pub(super) struct PutOff {
    pub(super) request: Request,
    /// The number of its placeholders that were given up not long ago, as this process remembered then.
    pub(super) given_up: usize,
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
    /// A look of the finisher, which has its slot.
    Finish,
}

/// The turns of one group. It is there for as long as its task runs.
#[derive(Default)]
struct Lane {
    orders: VecDeque<Order>,
    pass: LanePass,
    /// True if a look was the last turn, so that a command goes first.
    was_looked_at: bool,
    /// Rung for each order.
    arrived: Arc<Notify>,
}

impl Lane {
    fn put_first(&mut self, deletes: Vec<Delete>) {
        for delete in deletes.into_iter().rev() {
            self.orders.push_front(Order::Delete(delete));
        }
    }
}

/// The state of the finisher's look in a lane.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum LanePass {
    /// None, and no slot.
    #[default]
    None,
    /// A slot, for its next turn.
    Next,
    /// A slot, and its turn.
    UnderWay,
}

/// What waits for each group's turn.
#[derive(Default)]
pub(super) struct Lanes {
    state: Mutex<State>,
    /// Rung when the finisher has to see when it looks next.
    look_ended: Arc<Notify>,
}

#[derive(Default)]
struct State {
    lanes: HashMap<GroupId, Lane>,
    /// As long as a slot is free, every group that is due has a lane, in the middle of a turn.
    passes: Passes,
}

impl State {
    /// Puts a command into its group's lane; whether that has to be run.
    fn order(&mut self, id: &GroupId, order: Order) -> bool {
        let is_new = !self.lanes.contains_key(id);
        let lane = self.lanes.entry(id.clone()).or_default();
        lane.was_looked_at |= is_new;
        lane.orders.push_back(order);
        lane.arrived.notify_one();
        is_new
    }

    /// Opens a lane for each look that can begin; they have to be run.
    fn begin_looks(&mut self) -> Vec<GroupId> {
        let mut begun = Vec::new();
        while let Some(id) = self.passes.begin_first(|id| !self.lanes.contains_key(id)) {
            self.lanes.insert(id.clone(), Lane { pass: LanePass::Next, ..Lane::default() });
            begun.push(id);
        }
        begun
    }

    /// Returns the next turn; without any the lane ends. Commands and looks take turns, and a look that finds no free slot
    /// keeps its place.
    fn next(&mut self, id: &GroupId) -> Option<Turn> {
        let lane = self.lanes.get_mut(id)?;
        let is_order_first = lane.was_looked_at && !lane.orders.is_empty();
        let looks = lane.pass == LanePass::Next || !is_order_first && self.passes.begin(id);
        if looks {
            lane.pass = LanePass::UnderWay;
            return Some(Turn::Finish);
        }
        lane.was_looked_at = false;
        let order = lane.orders.pop_front();
        if order.is_none() {
            self.lanes.remove(id);
        }
        order.map(Turn::Order)
    }

    /// The look that is a lane's turn has ended; the lanes that have to be run for others.
    fn end_look(&mut self, id: &GroupId, pass: Pass, now: Instant) -> Vec<GroupId> {
        if let Some(lane) = self.lanes.get_mut(id) {
            (lane.pass, lane.was_looked_at) = (LanePass::None, true);
            self.passes.end(id, pass, now);
        }
        self.begin_looks()
    }

    /// A lane's task has ended in the middle of a turn.
    fn break_off(&mut self, id: &GroupId, now: Instant) {
        if let Some(lane) = self.lanes.remove(id)
            && lane.pass != LanePass::None
        {
            self.passes.end(id, Pass::Failed, now);
        }
    }
}

impl Lanes {
    /// How many groups have something to do.
    pub(super) fn len(&self) -> usize {
        self.state.lock().lanes.len()
    }

    /// What is rung when an order comes for the group.
    pub(super) fn arrived(&self, id: &GroupId) -> Arc<Notify> {
        self.state.lock().lanes.get(id).map(|lane| Arc::clone(&lane.arrived)).unwrap_or_default()
    }

    /// Notified when a look has ended.
    pub(super) fn look_ended(&self) -> Arc<Notify> {
        Arc::clone(&self.look_ended)
    }

    /// Begins no more looks.
    pub(super) fn stop_looks(&self) {
        self.state.lock().passes.stop();
    }

    /// The deletes that stand first, for as long as they do, but for those that are put off.
    pub(super) fn more_deletes(&self, id: &GroupId) -> Vec<Delete> {
        let (mut deletes, mut put_off) = (Vec::new(), Vec::new());
        let mut state = self.state.lock();
        let Some(lane) = state.lanes.get_mut(id) else { return deletes };
        while let Some(Order::Delete(_)) = lane.orders.front() {
            match lane.orders.pop_front() {
                Some(Order::Delete(delete)) if delete.put_off.is_some() => put_off.push(delete),
                Some(Order::Delete(delete)) => deletes.push(delete),
                _ => {}
            }
        }
        lane.put_first(put_off);
        deletes
    }

    /// Lets deletes that are put off stand first: the next turn is theirs.
    pub(super) fn put_off(&self, id: &GroupId, deletes: Vec<Delete>) {
        if let Some(lane) = self.state.lock().lanes.get_mut(id) {
            lane.put_first(deletes);
        }
    }

    /// A delete whose turn it is and, if it was put off, all that were put off and stand next.
    fn with_put_off(&self, id: &GroupId, first: Delete) -> Vec<Delete> {
        let was_put_off = first.put_off.is_some();
        let mut deletes = vec![first];
        let mut state = self.state.lock();
        let Some(lane) = state.lanes.get_mut(id).filter(|_| was_put_off) else { return deletes };
        while let Some(Order::Delete(Delete { put_off: Some(_), .. })) = lane.orders.front() {
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
            let lanes = &self.inner.lanes;
            lanes.state.lock().break_off(&self.id, Instant::now());
            // It begins the looks that can begin by this: a runtime that ends would drop them here, one within the other.
            lanes.look_ended.notify_one();
        }
    }
}

impl Inner {
    /// Lets a command wait for its group's turn.
    pub(super) fn order(self: &Arc<Self>, id: &GroupId, order: Order) {
        if self.lanes.state.lock().order(id, order) {
            self.run_lane(id.clone());
        }
    }

    /// Lets the finisher look at groups that have changed, and at those that are to be looked at again by now. When the
    /// next is to be looked at is returned.
    pub(super) fn look_at(
        self: &Arc<Self>,
        changed: impl IntoIterator<Item = GroupId>,
        now: Instant,
    ) -> Option<Instant> {
        let mut state = self.lanes.state.lock();
        for id in changed {
            state.passes.change(id);
        }
        state.passes.take_later(now);
        let (begun, next) = (state.begin_looks(), state.passes.next_time());
        drop(state);
        self.run_lanes(begun);
        next
    }

    fn end_look(self: &Arc<Self>, id: &GroupId, pass: Pass) {
        let begun = self.lanes.state.lock().end_look(id, pass, Instant::now());
        self.lanes.look_ended.notify_one();
        self.run_lanes(begun);
    }

    fn run_lanes(self: &Arc<Self>, ids: Vec<GroupId>) {
        for id in ids {
            self.run_lane(id);
        }
    }

    fn run_lane(self: &Arc<Self>, id: GroupId) {
        let guard = Guard { inner: Arc::clone(self), id, has_ended: false };
        self.spawner.spawn_tracked(&self.tasks, run(guard));
    }

    fn next_turn(&self, id: &GroupId) -> Option<Turn> {
        self.lanes.state.lock().next(id)
    }
}

/// Takes one turn after the other, until none is left.
async fn run(mut guard: Guard) {
    let command = Command::new(Arc::clone(&guard.inner), guard.id.clone());
    while let Some(turn) = command.inner.next_turn(&command.id) {
        command.begin_turn();
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
                let deletes = command.gather(command.inner.lanes.with_put_off(&command.id, first)).await;
                let asked = deletes.iter().map(|delete| delete.caller.trace());
                let span = command.api().traces().work("delete", asked);
                command.trace(&span);
                command.delete(deletes).with_context(span.context()).await;
                span.close();
            }
            Turn::Finish => {
                let pass = command.finish().await;
                command.inner.end_look(&command.id, pass);
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
        self.note_clients([caller]);
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
                self.note_clients(deletes.iter().map(|delete| &delete.caller));
                return deletes;
            }
        }
    }
}
