//! Machines whose deletion the API server recently refused or didn't answer. Their errors aren't sent meanwhile:
//! Cluster Autoscaler would ask for their deletion in every loop, and doesn't count them as replicas.

use std::time::Duration;

use capi::{Machine, ObjectKey, Uid};
use tokio::time::Instant;

use super::{Index, live_state::LiveState};

/// The time for which the error isn't sent after the first failure. It is much longer than a loop of Cluster
/// Autoscaler, which fixes a size that doesn't add up in several consecutive loops.
const FIRST: Duration = Duration::from_secs(5 * 60);
/// The maximum time. Each further failure doubles the time up to this: an instance without an error counts as one
/// that may still join until `--max-node-provision-time` has passed since its error was last sent.
const LONGEST: Duration = Duration::from_secs(4 * 60 * 60);

/// A failed deletion.
#[derive(Clone, Copy, Debug)]
pub(super) struct FailedDelete {
    /// The time of the last failure.
    since: Instant,
    /// The time after it for which the error isn't sent.
    lasts: Duration,
}

impl FailedDelete {
    fn is_over(self) -> bool {
        self.since.elapsed() >= self.lasts
    }
}

impl LiveState {
    /// Returns true if the deletion of a Machine failed recently.
    pub(super) fn has_failed_delete(&self, machine: &Machine) -> bool {
        self.failed_deletes.get(&machine.meta.key).is_some_and(|failed| !failed.is_over())
    }
}

impl Index {
    /// Records that the API server has refused to delete a Machine, or hasn't answered.
    pub fn record_failed_delete(&self, key: &ObjectKey, uid: &Uid) {
        let live = &mut self.inner.write().live;
        if live.machines.get(key).is_some_and(|machine| machine.meta.uid == *uid) {
            let lasts = match live.failed_deletes.get(key) {
                Some(failed) if failed.is_over() => (failed.lasts * 2).min(LONGEST),
                // The deletion was requested again although the error isn't sent.
                Some(failed) => failed.lasts,
                None => FIRST,
            };
            live.failed_deletes.insert(key.clone(), FailedDelete { since: Instant::now(), lasts });
        }
    }
}
