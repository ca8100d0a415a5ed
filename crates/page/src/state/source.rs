//! Reads the live state of all workload clusters, at a cost that grows with their number alone, or chooses one.

use std::{sync::Arc, time::Instant};

use jiff::Timestamp;
use rules::capi::ObjectKey;

use super::{
    ClusterStanding, DeniedCaller, FleetCluster, FleetState, Program, SCHEMA_VERSION, Selection, StateSource,
    StatusSources, convert, fleet::LATELY,
};
use cluster::{ClusterSync, Fleet, Left, WorkloadCluster};
use index::Sizes;
use scale::History;
use service::Calls;
use service::listen::{Certificates, Check, Checks as _, DebugError, DebugPages};

/// The parameter that chooses a Cluster of a fleet.
const CLUSTER: &str = "cluster";

/// The error of a question about a fleet to a server of one workload cluster.
const NO_FLEET: &str = "this server serves one workload cluster, not a fleet: leave the choice of a Cluster out";

/// A workload cluster, with the sources of its state. It is a handle: a copy costs little.
#[derive(Clone)]
pub struct ServedCluster {
    /// The workload cluster.
    pub cluster: WorkloadCluster,
    /// The last calls of its autoscaler.
    pub calls: Calls,
    /// The last writes and refusals.
    pub history: History,
    /// The number of calls that were denied.
    pub denied: u64,
    /// The number of calls for node groups of other Clusters.
    pub foreign: u64,
    /// The time of the last of either.
    pub last_unexpected: Option<Instant>,
}

/// The workload clusters that are served, or were until lately.
pub trait ServedClusters: Send + Sync {
    /// Returns all of them, by namespace and name of their Clusters.
    fn clusters(&self) -> Vec<ServedCluster>;

    /// Returns that of a Cluster; `None` stands for the only one.
    fn cluster(&self, cluster: Option<&ObjectKey>) -> Option<ServedCluster>;

    /// Returns the callers that were denied.
    fn denied_callers(&self) -> DeniedCallers;
}

/// The workload clusters as nobody has called them.
impl ServedClusters for Fleet {
    fn clusters(&self) -> Vec<ServedCluster> {
        Fleet::clusters(self).into_iter().map(ServedCluster::uncalled).collect()
    }

    fn cluster(&self, cluster: Option<&ObjectKey>) -> Option<ServedCluster> {
        Fleet::clusters(self).into_iter().find(|one| one.cluster() == cluster).map(ServedCluster::uncalled)
    }

    fn denied_callers(&self) -> DeniedCallers {
        DeniedCallers::default()
    }
}

impl ServedCluster {
    fn uncalled(cluster: WorkloadCluster) -> Self {
        let (calls, history) = (Calls::default(), History::default());
        Self { cluster, calls, history, denied: 0, foreign: 0, last_unexpected: None }
    }
}

/// The callers that were denied.
#[derive(Clone, Debug, Default)]
pub struct DeniedCallers {
    /// The number of calls that were denied, whoever made them.
    pub calls: u64,
    /// The callers, the last one first.
    pub callers: Vec<DeniedCaller>,
}

/// The source of the live state.
#[derive(Clone)]
pub struct Source {
    fleet: Fleet,
    served: Arc<dyn ServedClusters>,
    certificates: Option<Certificates>,
    started_at: Timestamp,
}

impl Source {
    /// Returns the source of the state of workload clusters, for a program that was started at `started_at`.
    #[must_use]
    pub fn new(
        fleet: Fleet,
        served: Arc<dyn ServedClusters>,
        certificates: Option<Certificates>,
        started_at: Timestamp,
    ) -> Self {
        Self { fleet, served, certificates, started_at }
    }

    /// Returns the source of the state of workload clusters that no autoscaler calls.
    #[must_use]
    pub fn alone(fleet: Fleet, started_at: Timestamp) -> Self {
        Self::new(fleet.clone(), Arc::new(fleet), None, started_at)
    }

    /// Returns true if there is one workload cluster, and none to choose.
    pub(crate) fn is_one(&self) -> bool {
        self.fleet.is_one()
    }

    /// Returns the source of the state of the only workload cluster, if there is one.
    #[must_use]
    pub fn only(&self) -> Option<StateSource> {
        self.served.cluster(None).map(|found| self.state_of(found))
    }

    /// Returns the state of all Clusters.
    #[must_use]
    pub fn read(&self) -> FleetState {
        let (now, core) = (Instant::now(), self.fleet.core_problem());
        let clusters = self.served.clusters();
        let clusters = clusters.iter().map(|served| converted(served, core.as_deref(), now)).collect();
        let management = self.fleet.informers().into_iter().filter(|(cluster, _)| *cluster == "management");
        let mut informers: Vec<_> = management.map(|(_, status)| convert::informer(status, now)).collect();
        informers.sort_by(|a, b| (&a.resource, &a.namespaces).cmp(&(&b.resource, &b.namespaces)));
        let denied =
            self.served.denied_callers().callers.into_iter().filter(|caller| caller.last_ago < LATELY).collect();
        FleetState { informers, clusters, denied, ..self.read_bare() }
    }

    /// Returns the state without any Cluster.
    #[must_use]
    pub fn read_bare(&self) -> FleetState {
        let checks = self.fleet.checks();
        FleetState {
            schema_version: SCHEMA_VERSION,
            program: Program { version: env!("CARGO_PKG_VERSION").to_owned(), started_at: self.started_at },
            taken_at: Timestamp::now(),
            ready: checks.iter().all(Check::is_ready),
            checks,
            tls: self.certificates.as_ref().map(Certificates::standing),
            informers: Vec::new(),
            clusters: Vec::new(),
            denied: Vec::new(),
        }
    }

    /// Returns the source of the state of one among many.
    ///
    /// # Errors
    /// If `cluster` isn't `<namespace>/<name>`, or that Cluster isn't served. The error says how to find those that
    /// are.
    pub fn of(&self, cluster: &str) -> Result<StateSource, String> {
        let key = cluster.split_once('/').filter(|(_, name)| !name.contains('/'));
        let key = key.ok_or_else(|| format!("cluster is {cluster:?}: it must be NAMESPACE/NAME"))?;
        let found = self.served.cluster(Some(&ObjectKey::new(key.0, key.1))).ok_or_else(|| {
            format!(
                "Cluster {cluster:?} isn't served here: clusters and /debug/clusters list those that are; one has to \
                 exist, and its labels have to match --fleet-selector"
            )
        })?;
        Ok(self.state_of(found))
    }

    fn state_of(&self, found: ServedCluster) -> StateSource {
        let ServedCluster { cluster, calls, history, .. } = found;
        let sources = StatusSources { history, calls, certificates: self.certificates.clone() };
        StateSource::new(cluster, self.started_at).with_sources(sources)
    }
}

impl DebugPages for Source {
    fn state(&self, query: &str) -> Result<Vec<u8>, DebugError> {
        let (of_cluster, rest): (Vec<_>, Vec<_>) =
            form_urlencoded::parse(query.as_bytes()).partition(|(name, _)| name == CLUSTER);
        let source = match (self.only(), of_cluster.last()) {
            (Some(only), None) => Ok(only),
            (Some(_), Some(_)) => Err(NO_FLEET.to_owned()),
            (None, Some((_, cluster))) => self.of(cluster),
            (None, None) => {
                Err("this server serves a fleet: choose a Cluster by cluster=NAMESPACE/NAME; clusters and \
                                 /debug/clusters list them"
                    .to_owned())
            }
        };
        let source = source.map_err(DebugError::Query)?;
        let rest = form_urlencoded::Serializer::new(String::new()).extend_pairs(rest).finish();
        let selection = Selection::parse(&rest).map_err(DebugError::Query)?;
        Ok(source.json(&selection)?)
    }

    fn clusters(&self) -> Result<Vec<u8>, DebugError> {
        Ok(serde_json::to_vec(&self.read())?)
    }
}

fn converted(served: &ServedCluster, core: Option<&str>, now: Instant) -> FleetCluster {
    let ServedCluster { cluster, calls, denied, foreign, last_unexpected, history: _ } = served;
    let sync = cluster.sync(core.is_none());
    let Sizes { groups, in_need, machines, nodes } = cluster.index().sizes();
    let name = cluster.cluster_in_scope();
    FleetCluster {
        namespace: name.as_ref().map(|name| name.namespace.to_string()).unwrap_or_default(),
        name: name.map(|name| name.name.to_string()).unwrap_or_default(),
        calls: convert::calls(calls, now),
        callers: calls.callers(),
        groups,
        machines,
        nodes,
        problems: in_need,
        denied_calls: *denied,
        foreign_group_calls: *foreign,
        last_unexpected_call_ago: last_unexpected.map(|at| now.saturating_duration_since(at).as_secs()),
        ..of_sync(cluster.left(), sync, core)
    }
}

/// Returns a Cluster's standing and the sync of its Nodes, with the reasons, given the problem of the core kinds.
fn of_sync(left: Option<Left>, sync: ClusterSync, core: Option<&str>) -> FleetCluster {
    let (nodes_synced, nodes_reason) = (sync.nodes.is_none(), sync.nodes.clone());
    let (standing, reason) = standing(left, sync, core);
    FleetCluster { standing, reason, nodes_reason, nodes_synced, ..FleetCluster::default() }
}

/// Returns the standing of a Cluster with its reason, given the problem of the core kinds.
fn standing(left: Option<Left>, sync: ClusterSync, core: Option<&str>) -> (ClusterStanding, Option<String>) {
    if let Some(why) = left {
        return (ClusterStanding::Leaving, Some(why.to_string()));
    }
    match (core, sync) {
        (Some(why), _) => (ClusterStanding::NotInSync, Some(why.to_owned())),
        (None, ClusterSync { is_connected: false, nodes: Some(why), .. }) => (ClusterStanding::NotConnected, Some(why)),
        (None, ClusterSync { problem: Some(why), .. }) => (ClusterStanding::NotInSync, Some(why)),
        (None, ClusterSync { problem: None, .. }) => (ClusterStanding::Served, None),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::state::ClusterCondition;

    fn sync(is_connected: bool, nodes: Option<&str>, problem: Option<&str>) -> ClusterSync {
        ClusterSync { is_connected, nodes: nodes.map(str::to_owned), problem: problem.map(str::to_owned) }
    }

    #[rstest]
    #[case::well(sync(true, None, None), ClusterCondition::Well, None)]
    #[case::never_connected(sync(false, Some("no Secret"), None), ClusterCondition::NotConnected, Some("no Secret"))]
    #[case::lost_later(sync(true, Some("cut"), None), ClusterCondition::NodesNotInSync, Some("cut"))]
    #[case::lost_with_a_machine_that_needs_its_node(
        sync(true, Some("cut"), Some("cut; only its Node")),
        ClusterCondition::NotInSync,
        Some("cut; only its Node")
    )]
    #[case::filling(sync(true, None, Some("not all")), ClusterCondition::NotInSync, Some("not all"))]
    fn a_cluster_says_what_it_lacks(
        #[case] sync: ClusterSync,
        #[case] expected: ClusterCondition,
        #[case] why: Option<&str>,
    ) {
        let calls = crate::state::CallsState { last_refresh_ago: Some(1), last_refresh_refused: None };
        let cluster = FleetCluster { calls, ..of_sync(None, sync, None) };
        assert_eq!((cluster.conditions(Timestamp::UNIX_EPOCH), cluster.why()), (vec![expected], why));
    }
}
