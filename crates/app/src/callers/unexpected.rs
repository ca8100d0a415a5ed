//! The calls that no autoscaler of a Cluster should make: those that are denied, and those for node groups of other
//! Clusters. The caller gets the same answer as for a group that doesn't exist, and the operator a count and a warning.

use std::{
    cmp::Reverse,
    collections::HashMap,
    net::IpAddr,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use rules::GroupId;

use cluster::WorkloadCluster;
use page::state::{DeniedCaller, DeniedCallers};
use service::listen::Client;

/// The time after a log line in which further calls of the same Cluster are only counted.
const PAUSE: Duration = Duration::from_secs(60);

const LOG: &str = "app::fleet";

/// The unexpected calls of the callers of one Cluster.
#[derive(Debug, Default)]
pub(super) struct Unexpected(Mutex<Counts>);

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

// The callers that were denied, also those of Clusters that aren't served: nobody else shows that a Cluster lacks its
// label, or that a certificate names none.

/// The maximum number of callers that are known. Of more, those are forgotten that were denied least lately.
const MOST_DENIED: usize = 64;

/// The callers that were denied lately, and the number of their calls.
#[derive(Debug, Default)]
pub(super) struct Denied(Mutex<All>);

#[derive(Debug, Default)]
struct All {
    calls: u64,
    callers: HashMap<String, Caller>,
}

#[derive(Debug)]
struct Caller {
    peer: Option<IpAddr>,
    reason: String,
    calls: u64,
    last: Instant,
}

impl Denied {
    pub(super) fn add(&self, client: Option<&Client>, reason: &str, now: Instant) {
        let mut all = self.0.lock();
        all.calls += 1;
        let Some(client) = client else { return };
        let identity = client.identity();
        if let Some(caller) = all.callers.get_mut(&*identity) {
            (caller.peer, caller.last) = (client.peer, now);
            caller.calls += 1;
            if caller.reason != reason {
                reason.clone_into(&mut caller.reason);
            }
            return;
        }
        if all.callers.len() >= MOST_DENIED {
            let first = all.callers.iter().min_by_key(|(_, caller)| caller.last).map(|(identity, _)| identity.clone());
            if let Some(first) = first {
                all.callers.remove(&first);
            }
        }
        let caller = Caller { peer: client.peer, reason: reason.to_owned(), calls: 1, last: now };
        all.callers.insert(identity.into_owned(), caller);
    }

    /// Returns the callers, the last one first, and the number of all calls.
    pub(super) fn callers(&self) -> DeniedCallers {
        let all = self.0.lock();
        let now = Instant::now();
        let shown = |(identity, caller): (&String, &Caller)| DeniedCaller {
            identity: identity.clone(),
            peer: caller.peer,
            reason: caller.reason.clone(),
            denied_calls: caller.calls,
            last_ago: now.saturating_duration_since(caller.last).as_secs(),
        };
        let mut callers: Vec<_> = all.callers.iter().collect();
        callers.sort_by_key(|(_, caller)| Reverse(caller.last));
        DeniedCallers { calls: all.calls, callers: callers.into_iter().map(shown).collect() }
    }
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

    fn client(name: &str) -> Client {
        Client { uri: Some(name.into()), ..Client::default() }
    }

    #[test]
    fn a_caller_that_is_denied_without_end_has_one_entry_with_its_last_reason() {
        let (denied, begun) = (Denied::default(), Instant::now());
        for second in 0..100 {
            denied.add(Some(&client("noisy")), "no label", begun + Duration::from_secs(second));
        }
        denied.add(Some(&client("quiet")), "no URI", begun + Duration::from_secs(50));
        denied.add(Some(&client("noisy")), "deleted", begun + Duration::from_secs(100));
        denied.add(None, "no certificate", begun);
        let DeniedCallers { calls, callers } = denied.callers();
        let shown: Vec<_> = callers.iter().map(|it| (&*it.identity, it.denied_calls, &*it.reason)).collect();
        assert_eq!((calls, shown), (103, vec![("noisy", 101, "deleted"), ("quiet", 1, "no URI")]));
    }

    #[test]
    fn of_many_callers_the_last_ones_are_known() {
        let (denied, begun) = (Denied::default(), Instant::now());
        for number in 0..1_000_u16 {
            denied.add(Some(&client(&number.to_string())), "no label", begun + Duration::from_secs(number.into()));
        }
        let DeniedCallers { calls, callers } = denied.callers();
        assert_eq!((calls, callers.len()), (1_000, MOST_DENIED));
        assert_eq!((&*callers[0].identity, &*callers[MOST_DENIED - 1].identity), ("999", "936"));
    }
}
