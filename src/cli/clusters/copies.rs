//! The state of a fleet whose copies were all asked. Each copy knows its own connections alone, so the calls and the
//! callers of a Cluster are those of the copy that its autoscaler called last.

use std::collections::BTreeMap;

use state::{ClusterStanding, DeniedCaller, FleetCluster, FleetState, SyncCheck, SyncState};

/// Returns the state of all copies together. The version, the certificates and the informers are the first one's.
pub(super) fn merged(states: Vec<FleetState>) -> FleetState {
    states.into_iter().reduce(fleet).unwrap_or_default()
}

fn fleet(first: FleetState, second: FleetState) -> FleetState {
    let name = |cluster: &FleetCluster| (cluster.namespace.clone(), cluster.name.clone());
    let mut denied = by_key(first.denied, second.denied, |caller| caller.identity.clone(), denied_caller);
    denied.sort_by_key(|caller| caller.last_ago);
    FleetState {
        ready: first.ready && second.ready,
        checks: by_key(first.checks, second.checks, |check| check.name.clone(), check),
        clusters: by_key(first.clusters, second.clusters, name, cluster),
        denied,
        ..first
    }
}

/// Joins two lists by the keys of their items; an item that is in both is merged.
fn by_key<T, K: Ord>(first: Vec<T>, second: Vec<T>, key: impl Fn(&T) -> K, merge: impl Fn(T, T) -> T) -> Vec<T> {
    let mut joined = BTreeMap::new();
    for item in first.into_iter().chain(second) {
        let key = key(&item);
        let item = match joined.remove(&key) {
            Some(known) => merge(known, item),
            None => item,
        };
        joined.insert(key, item);
    }
    joined.into_values().collect()
}

/// Returns the check that is pending, if one is.
fn check(first: SyncCheck, second: SyncCheck) -> SyncCheck {
    if first.state != SyncState::Pending && second.state == SyncState::Pending { second } else { first }
}

fn denied_caller(first: DeniedCaller, second: DeniedCaller) -> DeniedCaller {
    let denied_calls = first.denied_calls + second.denied_calls;
    let last = if second.last_ago < first.last_ago { second } else { first };
    DeniedCaller { denied_calls, ..last }
}

/// Merges the states of one Cluster. A copy that can't serve it is seen even if its autoscaler calls the other one.
fn cluster(first: FleetCluster, second: FleetCluster) -> FleetCluster {
    let ago = |cluster: &FleetCluster| cluster.calls.last_refresh_ago.unwrap_or(u64::MAX);
    let (last, other) = if ago(&second) < ago(&first) { (second, first) } else { (first, second) };
    let sync = if is_ill(&other) && !is_ill(&last) { other.clone() } else { last.clone() };
    let unexpected = [last.last_unexpected_call_ago, other.last_unexpected_call_ago];
    FleetCluster {
        standing: sync.standing,
        reason: sync.reason,
        nodes_reason: sync.nodes_reason,
        nodes_synced: sync.nodes_synced,
        callers: [last.callers, other.callers].concat(),
        denied_calls: last.denied_calls + other.denied_calls,
        foreign_group_calls: last.foreign_group_calls + other.foreign_group_calls,
        last_unexpected_call_ago: unexpected.into_iter().flatten().min(),
        ..last
    }
}

/// Returns true if a copy serves a Cluster badly, or without its Nodes.
fn is_ill(cluster: &FleetCluster) -> bool {
    match cluster.standing {
        ClusterStanding::Served => !cluster.nodes_synced,
        ClusterStanding::NotInSync | ClusterStanding::NotConnected => true,
        ClusterStanding::Leaving => false,
    }
}
