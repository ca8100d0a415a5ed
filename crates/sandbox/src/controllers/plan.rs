//! The plan of a controller: writes, and when to look again. Planning writes nothing itself.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

/// Which of the two APIs.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) enum Side {
    /// The management cluster's.
    Management,
    /// The workload cluster's.
    Workload,
}

/// A write.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Write {
    /// Creates an object, with the status it holds.
    Create(Side, Value),
    /// Brings an object from one state to another: metadata and spec where they differ, then status where it does. It
    /// fails when the object has changed meanwhile.
    Change(Side, Arc<Value>, Value),
    /// Deletes an object, if it is still this one.
    Delete(Side, Arc<Value>),
}

impl Write {
    /// Returns true if this changes that object.
    pub(crate) fn is_change_of(&self, object: &Arc<Value>) -> bool {
        matches!(self, Self::Change(_, before, _) if Arc::ptr_eq(before, object))
    }
}

/// The intent of a controller after one look at its object.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Plan {
    /// In this order.
    pub(crate) writes: Vec<Write>,
    /// When to look again, though nothing changes.
    pub(crate) again: Option<Timestamp>,
}

impl Plan {
    pub(crate) fn create(&mut self, side: Side, object: Value) {
        self.writes.push(Write::Create(side, object));
    }

    /// Intends a change, if it is one.
    pub(crate) fn change(&mut self, side: Side, before: &Arc<Value>, after: Value) {
        if **before != after {
            self.writes.push(Write::Change(side, Arc::clone(before), after));
        }
    }

    pub(crate) fn delete(&mut self, side: Side, object: &Arc<Value>) {
        self.writes.push(Write::Delete(side, Arc::clone(object)));
    }

    /// Intends to look again, not later than `time`.
    pub(crate) fn look_again(&mut self, time: Timestamp) {
        self.again = Some(self.again.map_or(time, |again| again.min(time)));
    }
}
