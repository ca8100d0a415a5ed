//! Commands against an API server of a few lines, with faults at the HTTP layer: the end state is checked.

mod autoscaler;
mod callers;
mod deletes;
mod failed_writes;
pub(crate) mod fake;
mod finishing;
mod joined;
mod joins;
mod placeholders;
mod read_only;
mod replaced;
mod replacements;
mod rollouts;
mod sizes;
mod traceable;
mod unread;

/// The Machines of most tests.
const ABCD: [&str; 4] = ["a", "b", "c", "d"];
