//! Commands against a fake API server, with faults at the HTTP layer; the tests check the end state.

mod autoscaler;
mod callers;
mod deletes;
mod failed_writes;
mod hostile;
mod joined;
mod joins;
mod marks;
mod placeholders;
mod put_back;
mod read_only;
mod replacements;
mod rollouts;
mod search;
mod sizes;
mod tenants;
mod traceable;

use super::fake;

/// The Machines of most tests.
const ABCD: [&str; 4] = ["a", "b", "c", "d"];
