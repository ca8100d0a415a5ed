//! The reports of steps.

use std::fmt;

use super::kind::Controller;

/// The fault of a write.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Fault {
    /// No fault.
    #[default]
    None,
    /// The write isn't executed, and the controller gets an error.
    Before,
    /// The write is executed, and the controller gets an error nevertheless.
    After,
}

/// The state that a reconcile observes at its beginning, and uses to its end.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Observed {
    /// The number of the reconcile.
    pub reconcile: u64,
    /// The revision of the newest Machine in its controller's cache.
    pub machines: u64,
}

/// A step of a controller.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Step {
    /// The controller.
    pub controller: Controller,
    /// The namespace of the reconciled object.
    pub namespace: String,
    /// The name of that object.
    pub name: String,
    /// The action.
    pub act: Act,
    /// The state that its reconcile uses.
    pub observed: Observed,
}

/// The action of a step.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Act {
    /// The controller has read its views, and plans this many writes and waits.
    Planned(usize),
    /// A write succeeded.
    Wrote(String),
    /// The API refused a write, with this HTTP status.
    Refused(String, u16),
    /// A write wasn't executed, because of a fault.
    Failed(String),
    /// A write was executed, and its response was lost.
    Lost(String),
    /// The controller begins to wait until its view shows its own writes.
    Waits,
    /// The view shows them.
    HasWaited,
    /// The view hasn't shown them for too long, so that the reconcile fails.
    GaveUp,
}

impl fmt::Display for Step {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}/{}: ", self.controller.name(), self.namespace, self.name)?;
        match &self.act {
            Act::Planned(0) => out.write_str("has nothing to do"),
            Act::Planned(writes) => write!(out, "has {writes} steps to do"),
            Act::Wrote(what) => out.write_str(what),
            Act::Refused(what, code) => write!(out, "{what}: {code}"),
            Act::Failed(what) => write!(out, "{what}: fails"),
            Act::Lost(what) => write!(out, "{what}: done, the answer is lost"),
            Act::Waits => out.write_str("waits for its cache"),
            Act::HasWaited => out.write_str("its cache is up to date"),
            Act::GaveUp => out.write_str("has waited too long for its cache"),
        }
    }
}
