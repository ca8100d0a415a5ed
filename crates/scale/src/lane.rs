//! The order of commands: one at a time per group, in the order of their arrival, and concurrently across groups. Adjacent
//! deletes are one batch. The finisher's looks take turns with a group's commands. It must never hold a lock across an
//! await, and a command never waits for a look that hasn't begun.

#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use nodegroup::GroupId;
use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

use super::{
    order::{Delete, Order},
    passes::{Pass, Passes},
};

/// The next turn of a group.
pub(super) enum Turn {
    Order(Order),
    /// A look of the finisher, which has a slot.
    Finish,
}

/// The turns of one group. A lane exists for as long as its task runs.
#[derive(Default)]
struct Lane {
    orders: VecDeque<Order>,
    pass: LanePass,
    /// True if the last turn was a look, so that a command goes first.
    was_looked_at: bool,
    /// Notified for each order.
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
    /// No look, and no slot.
    #[default]
    None,
    /// A look with a slot, which is the next turn.
    Next,
    /// A look with a slot, which is under way.
    UnderWay,
}

/// The lanes of all groups.
#[derive(Default)]
pub(super) struct Lanes {
    state: Mutex<State>,
    /// Notified when the time of the finisher's next look may have changed.
    look_ended: Arc<Notify>,
}

#[derive(Default)]
struct State {
    lanes: HashMap<GroupId, Lane>,
    /// While a slot is free, every group that is due has a lane in the middle of a turn.
    passes: Passes,
}

impl State {
    /// Puts a command into its group's lane. Returns true if that has to be run.
    fn order(&mut self, id: &GroupId, order: Order) -> bool {
        let is_new = !self.lanes.contains_key(id);
        let lane = self.lanes.entry(id.clone()).or_default();
        lane.was_looked_at |= is_new;
        lane.orders.push_back(order);
        lane.arrived.notify_one();
        is_new
    }

    /// Opens a lane for each look that can begin. Returns these lanes, which have to be run.
    fn begin_looks(&mut self) -> Vec<GroupId> {
        let mut begun = Vec::new();
        while let Some(id) = self.passes.begin_first(|id| !self.lanes.contains_key(id)) {
            self.lanes.insert(id.clone(), Lane { pass: LanePass::Next, ..Lane::default() });
            begun.push(id);
        }
        begun
    }

    /// Returns the next turn; the lane ends if there is none. Commands and looks take turns, and a look without a free slot
    /// keeps its place in the queue.
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

    /// Ends the look that is a lane's turn. Returns the lanes that have to be run for other looks.
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
    /// Returns the number of groups that have something to do.
    pub(super) fn len(&self) -> usize {
        self.state.lock().lanes.len()
    }

    /// Puts a command into its group's lane. Returns true if that has to be run.
    pub(super) fn order(&self, id: &GroupId, order: Order) -> bool {
        self.state.lock().order(id, order)
    }

    /// Queues the groups that have changed, and those whose next look is due. Returns the lanes that have to be run, and
    /// the time at which the next look is due.
    pub(super) fn look_at(
        &self,
        changed: impl IntoIterator<Item = GroupId>,
        now: Instant,
    ) -> (Vec<GroupId>, Option<Instant>) {
        let mut state = self.state.lock();
        for id in changed {
            state.passes.change(id);
        }
        state.passes.take_later(now);
        let begun = state.begin_looks();
        (begun, state.passes.next_time())
    }

    /// Returns the next turn of a lane; the lane ends if there is none.
    pub(super) fn next(&self, id: &GroupId) -> Option<Turn> {
        self.state.lock().next(id)
    }

    /// Ends the look that is a lane's turn. Returns the lanes that have to be run for other looks.
    pub(super) fn end_look(&self, id: &GroupId, pass: Pass) -> Vec<GroupId> {
        let begun = self.state.lock().end_look(id, pass, Instant::now());
        self.look_ended.notify_one();
        begun
    }

    /// A lane's task has ended in the middle of a turn.
    pub(super) fn break_off(&self, id: &GroupId) {
        self.state.lock().break_off(id, Instant::now());
        // The finisher begins the looks that can begin now: a runtime that shuts down would drop them here recursively.
        self.look_ended.notify_one();
    }

    /// Returns the handle that is notified when an order arrives for the group.
    pub(super) fn arrived(&self, id: &GroupId) -> Arc<Notify> {
        self.state.lock().lanes.get(id).map(|lane| Arc::clone(&lane.arrived)).unwrap_or_default()
    }

    /// Returns the handle that is notified when a look has ended.
    pub(super) fn look_ended(&self) -> Arc<Notify> {
        Arc::clone(&self.look_ended)
    }

    /// Lets no more looks begin.
    pub(super) fn stop_looks(&self) {
        self.state.lock().passes.stop();
    }

    /// Takes the deletes at the head of the lane, except those that are put off.
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

    /// Puts deferred deletes at the head of the lane, so that the next turn is theirs.
    pub(super) fn put_off(&self, id: &GroupId, deletes: Vec<Delete>) {
        if let Some(lane) = self.state.lock().lanes.get_mut(id) {
            lane.put_first(deletes);
        }
    }

    /// Returns a delete whose turn it is and, if it was put off, all deferred ones right behind it.
    pub(super) fn with_put_off(&self, id: &GroupId, first: Delete) -> Vec<Delete> {
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
