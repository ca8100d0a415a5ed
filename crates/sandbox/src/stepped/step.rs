//! Reports of steps.

use std::fmt;

use super::kind::Controller;

/// A fault of a write.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// It isn't done, and the controller gets an error.
    Before,
    /// It is done, and the controller gets an error all the same.
    After,
}

/// The state that a reconcile has observed, and goes by to its end.
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
    /// The namespace of the object that it is about.
    pub namespace: String,
    /// The name of that object.
    pub name: String,
    /// The step.
    pub act: Act,
    /// The state that its reconcile goes by.
    pub observed: Observed,
}

/// Steps.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Act {
    /// It has read its views and has so many writes and waits to do.
    Planned(usize),
    /// A write that was done, and answered so.
    Wrote(String),
    /// A write that the API refused, by its HTTP status.
    Refused(String, u16),
    /// A write that wasn't done, by a fault.
    Failed(String),
    /// A write that was done, and its answer lost.
    Lost(String),
    /// It begins to wait until its view shows its own writes.
    Waits,
    /// Its view shows them.
    HasWaited,
    /// Its view hasn't shown them for too long: the reconcile fails.
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
