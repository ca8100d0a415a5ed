//! The rules of node groups as pure functions and values: what makes a group, its bounds, the state of its
//! instances, its options, and the template of the Node that would join. Every rule lives here once.
//!
//! This room knows [`crate::capi`]'s values and nothing else: no cluster, no clock, no I/O. It must never
//! panic, whatever an annotation holds.

mod id;
mod problem;

pub use id::GroupId;
pub use problem::{Problem, ProblemKind};
