//! The schema of `/debug/clusters`: the Clusters of a fleet with their callers, and the conditions that people look
//! for.

use std::net::IpAddr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{CallsState, Check, Client, InformerState, Program, TlsStanding};

/// The number of seconds without a Refresh after which a Cluster counts as not called by this copy: a loop of Cluster
/// Autoscaler takes about ten.
const QUIET: u64 = 120;
/// The number of seconds for which an unexpected call makes a Cluster one in need, and for which one that is denied is
/// shown.
pub(super) const LATELY: u64 = 3_600;
/// The number of seconds of remaining validity below which a certificate should have been renewed.
const ENDS_SOON: i64 = 7 * 86_400;

/// The Clusters of a fleet.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetState {
    /// The [`SCHEMA_VERSION`](super::SCHEMA_VERSION) of the program that wrote it.
    pub schema_version: u32,
    /// The program that wrote it.
    pub program: Program,
    /// When this was read.
    pub taken_at: Timestamp,
    /// True if all required checks are in sync, as `/readyz` reports.
    pub ready: bool,
    /// The checks, as `/readyz?verbose` lists them.
    pub checks: Vec<Check>,
    /// The certificates of the gRPC listener.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsStanding>,
    /// The informers of the management cluster.
    pub informers: Vec<InformerState>,
    /// The Clusters, by namespace and name.
    pub clusters: Vec<FleetCluster>,
    /// The callers that were denied in the last hour, the last one first. Their Clusters may not be served.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub denied: Vec<DeniedCaller>,
}

/// A caller that was denied.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeniedCaller {
    /// The only URI of its certificate, or else the name by which it was admitted, after the word `name`.
    pub identity: String,
    /// The address of its last call, which may be that of a proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<IpAddr>,
    /// The reason for its last denial.
    pub reason: String,
    /// The number of its calls that were denied.
    pub denied_calls: u64,
    /// The seconds since the last one.
    pub last_ago: u64,
}

/// A Cluster of a fleet.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetCluster {
    /// Its namespace. A program for one workload cluster whose scope isn't one Cluster has neither this nor a name.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its standing.
    pub standing: ClusterStanding,
    /// The reason of its standing; absent while it is served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The reason why the Nodes of its workload cluster aren't in sync.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes_reason: Option<String>,
    /// The calls of its autoscaler.
    pub calls: CallsState,
    /// The clients that have called and are still connected, the last one first.
    pub callers: Vec<Client>,
    /// True if the Nodes of its workload cluster are in sync, or aren't read on purpose.
    pub nodes_synced: bool,
    /// The number of its node groups.
    pub groups: u64,
    /// The number of its Machines.
    pub machines: u64,
    /// The number of Nodes of its workload cluster.
    pub nodes: u64,
    /// The number of its node groups with problems, and of objects that are left out because of an error.
    pub problems: u64,
    /// The number of calls that were denied.
    pub denied_calls: u64,
    /// The number of calls for node groups of other Clusters.
    pub foreign_group_calls: u64,
    /// The seconds since the last of either.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_unexpected_call_ago: Option<u64>,
}

/// The standing of a Cluster of a fleet.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ClusterStanding {
    /// Refresh succeeds.
    #[default]
    Served,
    /// Not in sync: Refresh fails.
    NotInSync,
    /// Its workload cluster hasn't been connected to: Refresh is delayed for a while, and then does without Nodes.
    NotConnected,
    /// Not served any more: reads get its last state for a while.
    Leaving,
}

/// A condition of a Cluster that people look for; the most urgent first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum ClusterCondition {
    /// Its workload cluster hasn't been connected to.
    NotConnected,
    /// It isn't in sync.
    NotInSync,
    /// It is served, and the Nodes of its workload cluster aren't in sync.
    NodesNotInSync,
    /// Its last Refresh was refused.
    Refused,
    /// A certificate of its caller has expired.
    CertificateExpired,
    /// Its caller asks for node groups of other Clusters, or was denied.
    UnexpectedCalls,
    /// A certificate of its caller ends soon.
    CertificateEndsSoon,
    /// Node groups of it have problems.
    Problems,
    /// Its autoscaler doesn't call this copy. It may call another one, so this ranks below the real problems.
    NotCalled,
    /// It isn't served any more.
    Leaving,
    /// None of the other conditions is true.
    Well,
}

impl ClusterCondition {
    /// Returns the title for people.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::NotConnected => "not connected",
            Self::NotInSync => "not in sync",
            Self::NodesNotInSync => "Nodes not in sync",
            Self::Refused => "Refresh refused",
            Self::CertificateExpired => "certificate expired",
            Self::UnexpectedCalls => "unexpected calls",
            Self::CertificateEndsSoon => "certificate ends soon",
            Self::Problems => "problems",
            Self::NotCalled => "not called here",
            Self::Leaving => "leaving",
            Self::Well => "well",
        }
    }
}

impl FleetCluster {
    /// Returns `<namespace>/<name>`.
    #[must_use]
    pub fn id(&self) -> String {
        if self.name.is_empty() {
            return "(the scope)".to_owned();
        }
        format!("{}/{}", self.namespace, self.name)
    }

    /// Returns the expiry of the certificate that ends first among those of its callers.
    #[must_use]
    pub fn certificate_until(&self) -> Option<Timestamp> {
        self.callers.iter().filter_map(|caller| caller.until).min()
    }

    /// Returns true if its autoscaler calls this copy.
    fn is_called(&self) -> bool {
        self.calls.last_refresh_ago.is_some_and(|ago| ago < QUIET)
    }

    /// Returns the reason of its most urgent condition, where there is one.
    #[must_use]
    pub fn why(&self) -> Option<&str> {
        // A refusal from before its autoscaler went to another copy says nothing any more.
        let refused = self.calls.last_refresh_refused.as_ref().filter(|_| self.is_called());
        let reasons = [self.reason.as_ref(), self.nodes_reason.as_ref(), refused];
        reasons.into_iter().flatten().next().map(String::as_str)
    }

    /// Returns its conditions at a time, the most urgent first. There is always one.
    #[must_use]
    pub fn conditions(&self, now: Timestamp) -> Vec<ClusterCondition> {
        if self.standing == ClusterStanding::Leaving {
            return vec![ClusterCondition::Leaving];
        }
        let calls = &self.calls;
        let left = self.certificate_until().map(|until| until.duration_since(now).as_secs());
        let is_called = self.is_called();
        let conditions = [
            (ClusterCondition::NotConnected, self.standing == ClusterStanding::NotConnected),
            (ClusterCondition::NotInSync, self.standing == ClusterStanding::NotInSync),
            (ClusterCondition::NodesNotInSync, self.standing == ClusterStanding::Served && !self.nodes_synced),
            (ClusterCondition::Refused, is_called && calls.last_refresh_refused.is_some()),
            (ClusterCondition::CertificateExpired, left.is_some_and(|left| left < 0)),
            (ClusterCondition::UnexpectedCalls, self.last_unexpected_call_ago.is_some_and(|ago| ago < LATELY)),
            (ClusterCondition::CertificateEndsSoon, left.is_some_and(|left| (0..ENDS_SOON).contains(&left))),
            (ClusterCondition::Problems, self.problems > 0),
            (ClusterCondition::NotCalled, !is_called),
        ];
        let mut conditions: Vec<_> =
            conditions.into_iter().filter(|(_, is_so)| *is_so).map(|(condition, _)| condition).collect();
        if conditions.is_empty() {
            conditions.push(ClusterCondition::Well);
        }
        conditions
    }
}

impl FleetState {
    /// Returns the Clusters with their conditions, those in need first, else by namespace and name.
    #[must_use]
    pub fn in_need_first(&self) -> Vec<(&FleetCluster, Vec<ClusterCondition>)> {
        let conditions = |cluster: &FleetCluster| cluster.conditions(self.taken_at);
        let mut clusters: Vec<_> = self.clusters.iter().map(|cluster| (cluster, conditions(cluster))).collect();
        clusters.sort_by(|(a, of_a), (b, of_b)| {
            (of_a.first(), &a.namespace, &a.name).cmp(&(of_b.first(), &b.namespace, &b.name))
        });
        clusters
    }
}
