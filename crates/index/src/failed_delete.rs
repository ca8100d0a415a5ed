//! Machines whose deletion the API server recently refused or didn't answer. Their instances are sent without an error
//! meanwhile: Cluster Autoscaler requests the deletion of an instance with an error in every loop, and doesn't count it
//! as a replica.

use std::time::Duration;

use tokio::time;

/// The time for which the error isn't sent after the first failure. It is much longer than a loop of Cluster
/// Autoscaler, which takes several consecutive loops to correct a size that doesn't add up.
const FIRST: Duration = Duration::from_secs(5 * 60);
/// The maximum of this time, which doubles with each further failure: to Cluster Autoscaler, an instance without an
/// error may still join until `--max-node-provision-time` has passed since its error was last sent.
const LONGEST: Duration = Duration::from_secs(4 * 60 * 60);

/// The last failure to delete a Machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct FailedDelete {
    /// The time of the last failure.
    since: time::Instant,
    /// The time after it for which the error isn't sent.
    lasts: Duration,
}

impl FailedDelete {
    /// Returns true if the error is sent again.
    pub(super) fn is_over(self) -> bool {
        self.since.elapsed() >= self.lasts
    }

    /// Returns a failure at the current time that follows `before`.
    pub(super) fn after(before: Option<&Self>) -> Self {
        let lasts = match before {
            Some(failed) if failed.is_over() => (failed.lasts * 2).min(LONGEST),
            // The deletion was requested again although the error isn't sent.
            Some(failed) => failed.lasts,
            None => FIRST,
        };
        Self { since: time::Instant::now(), lasts }
    }
}
