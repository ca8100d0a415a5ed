//! Commands against a fake API server, with faults at the HTTP layer; the tests check the end state.

mod autoscaler;
mod callers;
mod deletes;
mod failed_writes;
mod finishing;
mod hostile;
mod joined;
mod joins;
mod left_out;
mod many_entries;
mod placeholders;
mod read_only;
mod replaced;
mod replacements;
mod rollouts;
mod sizes;
mod tenants;
mod traceable;
mod unread;

use super::fake;

/// The Machines of most tests.
const ABCD: [&str; 4] = ["a", "b", "c", "d"];
