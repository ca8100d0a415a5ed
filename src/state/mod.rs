//! The whole picture as others read it: the typed, versioned schema of `/debug/state`. The server writes these very types
//! and `groups` reads them, so that the two can't drift apart. It must never hold a secret, nor a field that changes its
//! meaning within a schema version; fields may be added, and readers ignore those they don't know.

mod collect;
mod convert;
pub(crate) mod explain;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::collect::{Selection, StateSource, StatusSources};

/// The version of the schema that this program writes and reads.
pub const SCHEMA_VERSION: u32 = 1;

/// The whole picture. `G` and `L` are lists; a server writes them as it goes, without holding them.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct State<G = Vec<Group>, L = Vec<LeftOutObject>> {
    /// [`SCHEMA_VERSION`] of who wrote it.
    pub schema_version: u32,
    /// The program that answers.
    pub program: Program,
    /// When this was read, RFC 3339.
    pub taken_at: String,
    /// True if all that is waited for is in sync: the answer of `/readyz`.
    pub ready: bool,
    /// The checks, as `/readyz?verbose` lists them.
    pub checks: Vec<SyncCheck>,
    /// The calls of Cluster Autoscaler.
    #[serde(default)]
    pub calls: CallsState,
    /// The certificates of the gRPC listener; absent where it is served without TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsState>,
    /// The clusters and the informers on them.
    pub clusters: Vec<ClusterState>,
    /// Machines in the picture.
    pub machines: u64,
    /// Nodes in the picture.
    pub nodes: u64,
    /// The node groups, by id.
    pub groups: G,
    /// MachineDeployments, MachineSets and MachinePools that are no node groups, by id.
    pub left_out: L,
}

/// The program that answers.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Program {
    /// Its version.
    pub version: String,
    /// When it started, RFC 3339.
    pub started_at: String,
}

/// One thing that is waited for.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SyncCheck {
    /// Its name, such as `management/machines`.
    pub name: String,
    /// Its progress.
    pub state: SyncState,
    /// Why it isn't ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The progress of a check.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum SyncState {
    /// In sync.
    Ready,
    /// Not in sync; `Refresh` fails.
    Pending,
    /// Not in sync, and nothing waits for it.
    NotWaitedFor,
}

/// The calls of Cluster Autoscaler, which sends Refresh once in every loop. Both fields are absent when none has come since
/// the program started.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CallsState {
    /// The seconds since Refresh was last answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_refresh_ago: Option<u64>,
    /// The reason why it was refused, where it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_refresh_refused: Option<String>,
}

/// Until when the certificates in force are valid.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TlsState {
    /// The last moment of the server's certificate, RFC 3339.
    pub server_until: String,
    /// The last moment of the client authority, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients_until: Option<String>,
    /// Why the files can't take the place of what is in force, while they can't.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing: Option<String>,
}

/// Something that was written for a group or refused; repetitions in a row are one.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HistoryEntryState {
    /// `done`, `refused` or `failed`.
    pub outcome: String,
    /// The reason of the Event that tells the same, or the command where no Event does.
    pub what: String,
    /// The class of the error: the label `result` of the metric of commands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// For people.
    pub text: String,
    /// When it was first so, RFC 3339.
    pub first: String,
    /// When it was last so, RFC 3339.
    pub last: String,
    /// The number of times it was so.
    pub times: u64,
}

/// A cluster.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterState {
    /// `management` or `workload`.
    pub name: String,
    /// Its informers; none while it isn't connected, and the checks say why.
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
    /// Why it is broken now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// For how long it has been broken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken_for: Option<u64>,
    /// The last failure, also when it is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Objects held, the undecodable ones included.
    pub objects: u64,
    /// Objects held that don't decode.
    pub undecodable: u64,
    /// The time since a watch last gave an event or a bookmark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_event_ago: Option<u64>,
    /// The time since a list was last completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_list_ago: Option<u64>,
    /// Watches that could not be started, were cut, stalled, or told an error.
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
    /// Cluster Autoscaler doesn't go below it.
    pub min_size: i32,
    /// Cluster Autoscaler doesn't go beyond it.
    pub max_size: i32,
    /// The size asked for, own writes included: what `NodeGroupTargetSize` answers.
    pub size: i32,
    /// `spec.replicas` as the watch has shown it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec_replicas: Option<i32>,
    /// A size that was written and that the watch hasn't shown yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written: Option<Written>,
    /// True if the last `Refresh` reported it to Cluster Autoscaler.
    pub pinned: bool,
    /// True if older MachineSets of it still have replicas.
    pub rolling_out: bool,
    /// The rollout that is under way or about to begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Rollout>,
    /// Its instances, counted.
    pub counts: Counts,
    /// The Node that would join; absent while too little is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<Template>,
    /// The autoscaling options it overrides, by the names of their annotations; values as Cluster Autoscaler gets them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, String>,
    /// The problems with it, which are left aside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<ProblemState>,
    /// Notes that are no fault and worth knowing, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The last that was written for it and refused, the newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<HistoryEntryState>,
    /// Its instances; absent unless asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instances: Option<Vec<InstanceOf>>,
}

/// A rollout of a group that is under way or about to begin.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    /// The sign that shows it: `machine_sets` or `topology`.
    pub cause: String,
    /// The same, for people.
    pub message: String,
    /// Since when, RFC 3339.
    pub since: String,
    /// True if its annotation lets Machines be deleted all the same.
    pub ignored: bool,
}

/// A size that was written and that the watch hasn't shown yet.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Written {
    /// The size.
    pub replicas: i32,
    /// The seconds since it was written.
    pub ago: u64,
}

/// Instances by what they are doing. `failed` ones are counted in their state too.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// Their Node has joined.
    pub running: u64,
    /// They have no Node yet; replicas without a Machine are among them.
    pub creating: u64,
    /// They are on their way out.
    pub deleting: u64,
    /// Something went wrong with them.
    pub failed: u64,
}

/// The Node that would join.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Template {
    /// Resources as Kubernetes quantities; cpu, memory and pods are always there.
    pub capacity: BTreeMap<String, SourcedText>,
    /// The amounts that pods get of them; the same resources.
    #[serde(default)]
    pub allocatable: BTreeMap<String, String>,
    /// The amounts that pods don't get, where something says it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub overhead: BTreeMap<String, SourcedText>,
    /// Those resources of the capacity that are GPUs, without zeros.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub gpus: BTreeMap<String, String>,
    /// The architecture, such as `amd64`.
    pub arch: String,
    /// The operating system, such as `linux`.
    pub os: String,
    /// Labels, those of arch and os among them.
    pub labels: BTreeMap<String, SourcedText>,
    /// Taints.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<SourcedTaint>,
}

/// A value and where it comes from.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SourcedText {
    /// The value.
    pub value: String,
    /// `default`, `flag`, `status.capacity`, `status.nodeInfo`, `annotation`, `spec.template.metadata`,
    /// `spec.template.spec`, `real node` or `learned`.
    pub source: String,
    /// The source in full, for people: which annotation, which object, which Node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// A taint and where it comes from.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SourcedTaint {
    /// The key.
    pub key: String,
    /// The value, often empty.
    pub value: String,
    /// The effect.
    pub effect: String,
    /// As in [`SourcedText::source`].
    pub source: String,
}

/// One thing that is wrong.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProblemState {
    /// Its class: the label `problem` of the metrics.
    pub kind: String,
    /// For people.
    pub message: String,
}

/// An instance of a group.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceOf {
    /// A providerID, or a placeholder.
    pub id: String,
    /// Its activity.
    pub state: InstanceActivity,
    /// The error, where something went wrong with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<InstanceFailure>,
    /// Its Machine, in the group's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Its Node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// When its Machine was made, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
}

/// The activity of an instance.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum InstanceActivity {
    /// Its Node has joined.
    Running,
    /// It has no Node yet.
    Creating,
    /// It is on its way out.
    Deleting,
}

/// The error of an instance.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceFailure {
    /// `DeletingFailed` or `ProvisioningFailed`.
    pub code: String,
    /// For people.
    pub message: String,
    /// True if it is for want of capacity or quota.
    pub out_of_resources: bool,
    /// True if it is sent to Cluster Autoscaler: only while the delete that it answers with would be accepted.
    #[serde(default)]
    pub sent: bool,
}

/// A MachineDeployment, MachineSet or MachinePool that is no node group.
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
    /// The name of its Cluster; empty where it isn't known.
    pub cluster: String,
    /// Why, in one word: the label `state` of the metrics, or `gone`.
    pub reason: String,
    /// Why, for people.
    pub message: String,
    /// True if someone has to mend something, false if it is left out on purpose.
    #[serde(default)]
    pub invalid: bool,
    /// True if it was a group at the last `Refresh`: it answers its last values until the next one.
    pub pinned: bool,
    /// The problems with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<ProblemState>,
    /// The last that was written for it and refused, the newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<HistoryEntryState>,
}

impl LeftOutObject {
    /// The reason of a MachineSet that its MachineDeployment scales: not worth a line to people.
    pub const OWNED: &'static str = "owned_by_machine_deployment";
}
