//! The live state for other programs: the typed, versioned schema of `/debug/state`, and of a fleet's
//! `/debug/clusters`. The server writes these types, and `groups` and `clusters` read them, so that the two can't drift
//! apart. The schema must never hold a secret. A field must keep its meaning within a schema version; fields may be
//! added, and readers ignore unknown ones.
//!
//! Metrics, state and [`explain`] are all built from [`index::GroupSnapshot`] and the types of [`rules`], which
//! implement every rule. The report of `explain` has its own schema. It carries each overridden value, which would make
//! the state of thousands of groups too large. It has no sizes in flight, history or instances, since manifests have
//! none.

mod collect;
pub mod explain;
mod past;
pub mod tables;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, net::IpAddr};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use self::collect::{DeniedCallers, Selection, ServedCluster, ServedClusters, Source, StateSource};
pub(crate) use self::past::Run;
pub use index::{InstanceView, WrittenSize};
pub use rules::{Instance, InstanceCounts, InstanceError, InstanceState, Problem, ProblemKind};
pub use scale::{HistoryEntry, HistoryOutcome};
pub use service::listen::{Check, CheckState, Client, TlsStanding};

/// The version of the schema that this program writes and reads.
pub const SCHEMA_VERSION: u32 = 1;
/// The number of seconds without a Refresh after which a Cluster counts as not called by this copy: a loop of Cluster
/// Autoscaler takes about ten.
pub(crate) const QUIET: u64 = 120;
/// The number of seconds for which an unexpected call makes a Cluster one in need, and for which one that is denied is
/// shown.
const LATELY: u64 = 3_600;
/// The number of seconds of remaining validity below which a certificate should have been renewed.
pub(crate) const ENDS_SOON: i64 = 7 * 86_400;

/// The whole live state. `G` and `L` are lists, whose items a server may build while it serializes them.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct State<G = Vec<Group>, L = Vec<LeftOutObject>> {
    /// What both documents begin with.
    #[serde(flatten)]
    pub head: Head,
    /// The calls of Cluster Autoscaler.
    #[serde(default)]
    pub calls: CallsState,
    /// The certificates of the gRPC listener; absent if it serves without TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsStanding>,
    /// The clusters and the informers on them.
    pub clusters: Vec<ClusterState>,
    /// The number of Machines in the index.
    pub machines: u64,
    /// The number of Nodes in the index.
    pub nodes: u64,
    /// The node groups, by id.
    pub groups: G,
    /// The MachineDeployments, MachineSets and MachinePools that aren't node groups, by id.
    pub left_out: L,
}

/// What both documents begin with.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Head {
    /// The [`SCHEMA_VERSION`] of the program that wrote it.
    pub schema_version: u32,
    /// The program that wrote it.
    pub program: Program,
    /// When this was read.
    pub taken_at: Timestamp,
    /// True if all required checks are in sync, as `/readyz` reports.
    pub ready: bool,
    /// The checks, as `/readyz?verbose` lists them.
    pub checks: Vec<Check>,
    /// The Cluster that this is about, `<namespace>/<name>`; absent if it is about several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
}

/// The program that wrote the state.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Program {
    /// Its version.
    pub version: String,
    /// When it started.
    pub started_at: Timestamp,
    /// The Pod that it runs in, by the variable `HOSTNAME`; absent if that isn't set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
}

impl Program {
    /// Returns this program, which was started at `started_at` in this Pod; its name is empty outside of one.
    pub fn new(started_at: Timestamp, pod: &str) -> Self {
        let pod = (!pod.is_empty()).then(|| pod.to_owned());
        Self { version: env!("CARGO_PKG_VERSION").to_owned(), started_at, pod }
    }
}

/// The calls of Cluster Autoscaler, which sends Refresh once in every loop. Both fields are absent if no Refresh has
/// arrived since the program started.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CallsState {
    /// The seconds since Refresh was last answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_refresh_ago: Option<u64>,
    /// The reason why the last Refresh was refused, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_refresh_refused: Option<String>,
}

/// A cluster.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterState {
    /// `management` or `workload`.
    pub name: String,
    /// Its informers; none while it isn't connected, for which the checks give the reason.
    pub informers: Vec<InformerState>,
}

/// The status of one informer. Ages are in seconds.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InformerState {
    /// `plural.group/version`, or `plural/version` in the core group.
    pub resource: String,
    /// `all namespaces`, or their names, separated by `, `.
    pub namespaces: String,
    /// True if the first list is complete.
    pub synced: bool,
    /// The reason why it is broken now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The time for which it has been broken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken_for: Option<u64>,
    /// The last failure, even if it is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// The number of objects held, including undecodable ones.
    pub objects: u64,
    /// The number of objects held that can't be decoded.
    pub undecodable: u64,
    /// The time since a watch last delivered an event or a bookmark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_event_ago: Option<u64>,
    /// The time since a list was last completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_list_ago: Option<u64>,
    /// The number of watches that couldn't be started, were cut, stalled, or delivered an error.
    pub watch_errors: u64,
}

/// A node group.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    /// `<Kind>/<namespace>/<name>`.
    pub id: String,
    /// `MachineDeployment`, `MachineSet` or `MachinePool`.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The name of its Cluster, in the same namespace; may be empty.
    pub cluster: String,
    /// The min size, below which Cluster Autoscaler doesn't go.
    pub min_size: i32,
    /// The max size, beyond which Cluster Autoscaler doesn't go.
    pub max_size: i32,
    /// The requested size, including this program's own writes, as `NodeGroupTargetSize` answers it.
    pub size: i32,
    /// `spec.replicas` as the watch shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec_replicas: Option<i32>,
    /// A written size that the watch doesn't show yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written: Option<WrittenSize>,
    /// True if the last `Refresh` reported it to Cluster Autoscaler.
    pub pinned: bool,
    /// True if older MachineSets of it still have replicas.
    pub rolling_out: bool,
    /// The rollout that is under way or about to begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Rollout>,
    /// The numbers of its instances.
    pub counts: InstanceCounts,
    /// The Node that a scale-up would add; absent if too little is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<Template>,
    /// What lets it scale from zero: `annotation`, `remembered` or `status.capacity`; absent if nothing does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_zero: Option<String>,
    /// The autoscaling options that it overrides, by the names of their annotations; the values are as Cluster
    /// Autoscaler gets them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, String>,
    /// Its problems; the settings that they concern are ignored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Problem>,
    /// Notes for people that are worth knowing and aren't problems.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The last writes and refused requests for it, the newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<HistoryEntry>,
    /// Its instances; absent unless requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instances: Option<Vec<InstanceView>>,
}

/// A rollout of a group that is under way or about to begin.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    /// The sign of the rollout: `machine_sets` or `topology`.
    pub cause: String,
    /// The cause, for people.
    pub message: String,
    /// Its start.
    pub since: Timestamp,
    /// True if an annotation allows deletes of Machines despite the rollout.
    pub ignored: bool,
}

/// The Node that a scale-up adds.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Template {
    /// The resources as Kubernetes quantities; cpu, memory and pods are always included.
    pub capacity: BTreeMap<String, SourcedText>,
    /// The amounts that pods get; the same resources.
    #[serde(default)]
    pub allocatable: BTreeMap<String, String>,
    /// The amounts that aren't allocatable, where they are known.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub overhead: BTreeMap<String, SourcedText>,
    /// The resources of the capacity that are GPUs, without zeros.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub gpus: BTreeMap<String, String>,
    /// The architecture, such as `amd64`.
    pub arch: String,
    /// The operating system, such as `linux`.
    pub os: String,
    /// The labels, including those of architecture and operating system.
    pub labels: BTreeMap<String, SourcedText>,
    /// The taints.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<SourcedTaint>,
    /// The features that its kubelet declares, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub declared_features: Vec<SourcedText>,
}

/// A value and its source.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SourcedText {
    /// The value.
    pub value: String,
    /// `default`, `flag`, `status.capacity`, `status.nodeInfo`, `annotation`, `spec.template.metadata`,
    /// `spec.template.spec`, `real node`, `learned`, `remembered` or `huge pages`.
    pub source: String,
    /// The full source, for people: the annotation, object or Node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// A taint and its source.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SourcedTaint {
    /// The key.
    pub key: String,
    /// The value, often empty.
    pub value: String,
    /// The effect.
    pub effect: String,
    /// The source, as in [`SourcedText::source`].
    pub source: String,
}

/// A MachineDeployment, MachineSet or MachinePool that isn't a node group.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LeftOutObject {
    /// `<Kind>/<namespace>/<name>`.
    pub id: String,
    /// `MachineDeployment`, `MachineSet` or `MachinePool`.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The name of its Cluster; empty if it isn't known.
    pub cluster: String,
    /// The reason in one word: the label `state` of the metrics, or `gone`.
    pub reason: String,
    /// The reason, for people.
    pub message: String,
    /// True if someone has to fix something, false if it is left out on purpose.
    #[serde(default)]
    pub invalid: bool,
    /// True if it was a node group at the last `Refresh`. Until the next one, calls for it return its last values.
    pub pinned: bool,
    /// Its problems.
    #[serde(default)]
    pub problems: Vec<Problem>,
    /// Notes for people that are worth knowing and aren't problems.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The last writes and refused requests for it, the newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<HistoryEntry>,
}

impl LeftOutObject {
    /// The reason of a MachineSet that its MachineDeployment scales. Lists for people omit such MachineSets.
    pub const OWNED: &'static str = "owned_by_machine_deployment";
}

/// The Clusters of a fleet.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetState {
    /// What both documents begin with.
    #[serde(flatten)]
    pub head: Head,
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
    pub fn id(&self) -> String {
        if self.name.is_empty() {
            return "(the scope)".to_owned();
        }
        format!("{}/{}", self.namespace, self.name)
    }

    /// Returns the expiry of the certificate that ends first among those of its callers.
    pub fn certificate_until(&self) -> Option<Timestamp> {
        self.callers.iter().filter_map(|caller| caller.until).min()
    }

    fn is_called(&self) -> bool {
        self.calls.last_refresh_ago.is_some_and(|ago| ago < QUIET)
    }

    /// Returns the reason of its most urgent condition, where there is one.
    pub fn why(&self) -> Option<&str> {
        // A refusal from before its autoscaler went to another copy says nothing any more.
        let refused = self.calls.last_refresh_refused.as_ref().filter(|_| self.is_called());
        let reasons = [self.reason.as_ref(), self.nodes_reason.as_ref(), refused];
        reasons.into_iter().flatten().next().map(String::as_str)
    }

    /// Returns its conditions at a time, the most urgent first. There is always one.
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

/// A Cluster with its conditions.
pub type ClusterRow<'a> = (&'a FleetCluster, Vec<ClusterCondition>);

impl FleetState {
    /// Returns the Clusters with their conditions, those in need first, else by namespace and name.
    pub fn in_need_first(&self) -> Vec<ClusterRow<'_>> {
        let conditions = |cluster: &FleetCluster| cluster.conditions(self.head.taken_at);
        let mut clusters: Vec<_> = self.clusters.iter().map(|cluster| (cluster, conditions(cluster))).collect();
        clusters.sort_by(|(a, of_a), (b, of_b)| {
            (of_a.first(), &a.namespace, &a.name).cmp(&(of_b.first(), &b.namespace, &b.name))
        });
        clusters
    }
}
