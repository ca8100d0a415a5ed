//! The order of commands: one at a time per group, in the order of their arrival, and concurrently across groups.
//! Adjacent deletes are one batch. The finisher's reconciles take turns with a group's commands. It must never hold a
//! lock across an await, and a command never waits for a reconcile that hasn't begun.

#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, VecDeque},
    mem,
    sync::Arc,
};

use nodegroup::GroupId;
use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

use super::{
    command::{Command, Delete},
    work_queue::{ReconcileResult, WorkQueue},
};

/// The maximum number of commands that wait for a group's turn.
pub(super) const MOST_WAITING: usize = 1_000;
/// The number of waiting commands from which on those whose callers are gone are looked for.
const FIRST_SWEEP: usize = 16;

/// The next turn of a group.
pub(super) enum Turn {
    Command(Command),
    /// A reconcile of the finisher, which has a slot.
    Reconcile,
}

/// The turns of one group. A lane exists for as long as its task runs.
#[derive(Default)]
struct Lane {
    commands: VecDeque<Command>,
    reconcile: ReconcileState,
    /// True if the last turn was a reconcile, so that a command goes first.
    was_reconciled: bool,
    /// Notified for each command.
    arrived: Arc<Notify>,
    /// The number of waiting commands at which those whose callers are gone are looked for next.
    sweep_at: usize,
}

/// The result of queueing a command.
#[derive(Default)]
pub(super) struct Enqueued {
    /// True if the lane is new and has to be run.
    pub(super) is_new: bool,
    /// The command, if too many wait already.
    pub(super) refused: Option<Command>,
    /// The waiting commands whose callers are gone. They are out of the lane.
    pub(super) gone: Vec<Command>,
}

impl Lane {
    /// Takes out the commands whose callers are gone, each time that as many have come as were left the last time. What
    /// a caller has sent would stay until its turn otherwise, and the server counts it no longer.
    fn sweep(&mut self, must: bool) -> Vec<Command> {
        if !must && self.commands.len() < self.sweep_at.max(FIRST_SWEEP) {
            return Vec::new();
        }
        let (gone, left): (VecDeque<_>, _) = mem::take(&mut self.commands).into_iter().partition(Command::is_abandoned);
        self.commands = left;
        self.sweep_at = (2 * self.commands.len()).min(MOST_WAITING);
        Vec::from(gone)
    }

    fn put_first(&mut self, deletes: Vec<Delete>) {
        for delete in deletes.into_iter().rev() {
            self.commands.push_front(Command::Delete(delete));
        }
    }
}

/// The state of the finisher's reconcile in a lane.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum ReconcileState {
    /// No reconcile, and no slot.
    #[default]
    None,
    /// A reconcile with a slot, which is the next turn.
    Next,
    /// A reconcile with a slot, which is under way.
    UnderWay,
}

/// The lanes of all groups.
#[derive(Default)]
pub(super) struct Lanes {
    state: Mutex<State>,
    /// Notified when the time of the finisher's next reconcile may have changed.
    reconcile_ended: Arc<Notify>,
}

#[derive(Default)]
struct State {
    lanes: HashMap<GroupId, Lane>,
    /// While a slot is free, every group that is due has a lane in the middle of a turn.
    work_queue: WorkQueue,
}

impl State {
    /// Puts a command into its group's lane, if not too many wait there.
    fn enqueue(&mut self, id: &GroupId, command: Command) -> Enqueued {
        let is_new = !self.lanes.contains_key(id);
        let lane = self.lanes.entry(id.clone()).or_default();
        lane.was_reconciled |= is_new;
        let gone = lane.sweep(command.is_large());
        if lane.commands.len() >= MOST_WAITING {
            return Enqueued { is_new, refused: Some(command), gone };
        }
        lane.commands.push_back(command);
        lane.arrived.notify_one();
        Enqueued { is_new, refused: None, gone }
    }

    /// Opens a lane for each reconcile that can begin. Returns these lanes, which have to be run.
    fn begin_reconciles(&mut self) -> Vec<GroupId> {
        let mut begun = Vec::new();
        while let Some(id) = self.work_queue.begin_first(|id| !self.lanes.contains_key(id)) {
            self.lanes.insert(id.clone(), Lane { reconcile: ReconcileState::Next, ..Lane::default() });
            begun.push(id);
        }
        begun
    }

    /// Returns the next turn; the lane ends if there is none. Commands and reconciles take turns, and a reconcile
    /// without a free slot keeps its place in the queue.
    fn next(&mut self, id: &GroupId) -> Option<Turn> {
        let lane = self.lanes.get_mut(id)?;
        let is_command_first = lane.was_reconciled && !lane.commands.is_empty();
        let reconciles = lane.reconcile == ReconcileState::Next || !is_command_first && self.work_queue.begin(id);
        if reconciles {
            lane.reconcile = ReconcileState::UnderWay;
            return Some(Turn::Reconcile);
        }
        lane.was_reconciled = false;
        let command = lane.commands.pop_front();
        if command.is_none() {
            self.lanes.remove(id);
        }
        command.map(Turn::Command)
    }

    /// Ends the reconcile that is a lane's turn. Returns the lanes that have to be run for other reconciles.
    fn end_reconcile(&mut self, id: &GroupId, result: ReconcileResult, now: Instant) -> Vec<GroupId> {
        if let Some(lane) = self.lanes.get_mut(id) {
            (lane.reconcile, lane.was_reconciled) = (ReconcileState::None, true);
            self.work_queue.end(id, result, now);
        }
        self.begin_reconciles()
    }

    /// Removes a lane whose task has ended in the middle of a turn.
    fn break_off(&mut self, id: &GroupId, now: Instant) {
        if let Some(lane) = self.lanes.remove(id)
            && lane.reconcile != ReconcileState::None
        {
            self.work_queue.end(id, ReconcileResult::Failed, now);
        }
    }
}

impl Lanes {
    /// Returns the number of commands that wait for a turn of this group.
    #[cfg(test)]
    pub(super) fn waiting(&self, id: &GroupId) -> usize {
        self.state.lock().lanes.get(id).map_or(0, |lane| lane.commands.len())
    }

    /// Returns the number of groups that have something to do.
    pub(super) fn len(&self) -> usize {
        self.state.lock().lanes.len()
    }

    /// Puts a command into its group's lane, if not too many wait there.
    pub(super) fn enqueue(&self, id: &GroupId, command: Command) -> Enqueued {
        self.state.lock().enqueue(id, command)
    }

    /// Queues the groups that have changed, and those whose next reconcile is due. Returns the lanes that have to be
    /// run, and the time at which the next reconcile is due.
    pub(super) fn reconcile_due(
        &self,
        changed: impl IntoIterator<Item = GroupId>,
        now: Instant,
    ) -> (Vec<GroupId>, Option<Instant>) {
        let mut state = self.state.lock();
        for id in changed {
            state.work_queue.change(id);
        }
        state.work_queue.take_later(now);
        let begun = state.begin_reconciles();
        (begun, state.work_queue.next_time())
    }

    /// Returns the next turn of a lane; the lane ends if there is none.
    pub(super) fn next(&self, id: &GroupId) -> Option<Turn> {
        self.state.lock().next(id)
    }

    /// Ends the reconcile that is a lane's turn. Returns the lanes that have to be run for other reconciles.
    pub(super) fn end_reconcile(&self, id: &GroupId, result: ReconcileResult) -> Vec<GroupId> {
        let begun = self.state.lock().end_reconcile(id, result, Instant::now());
        self.reconcile_ended.notify_one();
        begun
    }

    /// Removes a lane whose task has ended in the middle of a turn.
    pub(super) fn break_off(&self, id: &GroupId) {
        self.state.lock().break_off(id, Instant::now());
        // The finisher begins the next reconciles: if they began here, a runtime that shuts down would drop each at
        // once, recursively.
        self.reconcile_ended.notify_one();
    }

    /// Returns the handle that is notified when a command arrives for the group.
    pub(super) fn arrived(&self, id: &GroupId) -> Arc<Notify> {
        self.state.lock().lanes.get(id).map(|lane| Arc::clone(&lane.arrived)).unwrap_or_default()
    }

    /// Returns the handle that is notified when a reconcile has ended.
    pub(super) fn reconcile_ended(&self) -> Arc<Notify> {
        Arc::clone(&self.reconcile_ended)
    }

    /// Lets no more reconciles begin.
    pub(super) fn stop_reconciles(&self) {
        self.state.lock().work_queue.stop();
    }

    /// Takes the deletes at the head of the lane, except deferred ones.
    pub(super) fn more_deletes(&self, id: &GroupId) -> Vec<Delete> {
        let (mut deletes, mut deferred) = (Vec::new(), Vec::new());
        let mut state = self.state.lock();
        let Some(lane) = state.lanes.get_mut(id) else { return deletes };
        while let Some(Command::Delete(_)) = lane.commands.front() {
            match lane.commands.pop_front() {
                Some(Command::Delete(delete)) if delete.deferred.is_some() => deferred.push(delete),
                Some(Command::Delete(delete)) => deletes.push(delete),
                _ => {}
            }
        }
        lane.put_first(deferred);
        deletes
    }

    /// Puts deferred deletes at the head of the lane, so that the next turn is theirs.
    pub(super) fn defer(&self, id: &GroupId, deletes: Vec<Delete>) {
        if let Some(lane) = self.state.lock().lanes.get_mut(id) {
            lane.put_first(deletes);
        }
    }

    /// Returns the delete whose turn it is and, if it was deferred, all deferred ones right behind it.
    pub(super) fn with_deferred(&self, id: &GroupId, first: Delete) -> Vec<Delete> {
        let was_deferred = first.deferred.is_some();
        let mut deletes = vec![first];
        let mut state = self.state.lock();
        let Some(lane) = state.lanes.get_mut(id).filter(|_| was_deferred) else { return deletes };
        while let Some(Command::Delete(Delete { deferred: Some(_), .. })) = lane.commands.front() {
            if let Some(Command::Delete(delete)) = lane.commands.pop_front() {
                deletes.push(delete);
            }
        }
        deletes
    }
}
