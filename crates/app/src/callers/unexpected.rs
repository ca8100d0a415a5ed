//! The calls that no autoscaler of a Cluster should make: those that are denied, and those for node groups of other
//! Clusters. The caller gets the same answer as for a group that doesn't exist, and the operator a count and a warning.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rules::GroupId;

use cluster::WorkloadCluster;
use service::listen::Client;

/// The time after a log line in which further calls of the same Cluster are only counted.
const PAUSE: Duration = Duration::from_secs(60);

/// The log target of the lines about callers.
const LOG: &str = "app::fleet";

/// The unexpected calls of the callers of one Cluster.
#[derive(Debug, Default)]
pub(super) struct Unexpected(Mutex<Counts>);

/// The numbers of unexpected calls.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// The number of calls that were denied.
    pub(super) denied: u64,
    /// The number of calls for node groups of other Clusters.
    pub(super) foreign: u64,
    /// The time of the last one.
    pub(super) last: Option<Instant>,
    logged: Option<Instant>,
    /// The number of calls for node groups of other Clusters since the last log line.
    more: u64,
}

impl Unexpected {
    pub(super) fn counts(&self) -> Counts {
        *self.0.lock()
    }

    /// Counts a call that was denied.
    pub(super) fn denied(&self, now: Instant) {
        let mut counts = self.0.lock();
        counts.denied += 1;
        counts.last = Some(now);
    }

    /// Counts a call for a node group of another Cluster. Returns the number of those since the last log line if this
    /// one has to be logged.
    fn foreign(&self, now: Instant) -> Option<u64> {
        let mut counts = self.0.lock();
        counts.foreign += 1;
        counts.last = Some(now);
        if counts.logged.is_some_and(|logged| now.saturating_duration_since(logged) < PAUSE) {
            counts.more += 1;
            return None;
        }
        counts.logged = Some(now);
        Some(std::mem::take(&mut counts.more))
    }
}

/// Counts and logs a call of one of a Cluster's callers, if it is for a node group of another Cluster.
pub(super) fn asked_for(cluster: &WorkloadCluster, unexpected: &Unexpected, group: &GroupId, client: Option<&Client>) {
    let Some(own) = cluster.cluster() else { return };
    let Some(other) = cluster.cluster_of(group).filter(|other| other != own) else { return };
    let Some(more) = unexpected.foreign(Instant::now()) else { return };
    let client = client.map(Client::certified).unwrap_or_default();
    tracing::warn!(
        target: LOG,
        cluster = %own,
        %group,
        of = %other,
        client = client.as_str(),
        more,
        "a client asks for a node group of another Cluster, which it isn't answered about: its certificate may be in use \
         by another cluster's autoscaler"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_call_is_logged_at_once_and_those_that_follow_are_counted() {
        let (unexpected, begun) = (Unexpected::default(), Instant::now());
        assert_eq!(unexpected.foreign(begun), Some(0));
        for _ in 0..1_000 {
            assert_eq!(unexpected.foreign(begun + PAUSE / 2), None);
        }
        assert_eq!(unexpected.foreign(begun + PAUSE), Some(1_000));
        assert_eq!(unexpected.foreign(begun + PAUSE * 2), Some(0));
        unexpected.denied(begun + PAUSE * 3);
        let Counts { denied, foreign, last, .. } = unexpected.counts();
        assert_eq!((denied, foreign, last), (1, 1_003, Some(begun + PAUSE * 3)));
    }
}
