//! The plan of a controller: its writes, and the time of the next reconcile. Planning must not write anything itself.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

/// One of the two APIs.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) enum Side {
    /// The API of the management cluster.
    Management,
    /// The API of the workload cluster.
    Workload,
}

/// A write.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Write {
    /// Creates an object, with the status it has.
    Create(Side, Value),
    /// Changes an object from one state to another: metadata and spec if they differ, then status if it differs. Fails
    /// if the object has changed in the meantime.
    Change(Side, Arc<Value>, Value),
    /// Deletes an object, if its uid is unchanged.
    Delete(Side, Arc<Value>),
}

impl Write {
    /// Returns true if this changes that object.
    pub(crate) fn is_change_of(&self, object: &Arc<Value>) -> bool {
        matches!(self, Self::Change(_, before, _) if Arc::ptr_eq(before, object))
    }
}

/// The result of a controller's reconcile.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Plan {
    /// The writes, in order.
    pub(crate) writes: Vec<Write>,
    /// The time of the next reconcile if nothing changes.
    pub(crate) again: Option<Timestamp>,
}

impl Plan {
    pub(crate) fn create(&mut self, side: Side, object: Value) {
        self.writes.push(Write::Create(side, object));
    }

    /// Plans a change, unless both states are equal.
    pub(crate) fn change(&mut self, side: Side, before: &Arc<Value>, after: Value) {
        if **before != after {
            self.writes.push(Write::Change(side, Arc::clone(before), after));
        }
    }

    pub(crate) fn delete(&mut self, side: Side, object: &Arc<Value>) {
        self.writes.push(Write::Delete(side, Arc::clone(object)));
    }

    /// Plans the next reconcile for `time` at the latest.
    pub(crate) fn look_again(&mut self, time: Timestamp) {
        self.again = Some(self.again.map_or(time, |again| again.min(time)));
    }
}
