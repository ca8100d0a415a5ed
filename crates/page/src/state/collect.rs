//! Reads the live state: that of one workload cluster, or of all of them, at a cost that grows with their number alone.
//! It asks the index once, for pointers, and converts groups to the schema one by one as they are written: it must
//! never hold a large fleet twice. It must implement no rule.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use jiff::Timestamp;
use rules::{
    Excluded, Exclusion, GroupId, NodeTemplate, Overrides, RolloutCause, Sourced, SourcedMap, capacity,
    capi::ObjectKey, rollout,
};
use serde::{Serialize, Serializer};
use shared_informer::Status;

use super::{
    CallsState, ClusterStanding, ClusterState, DeniedCaller, FleetCluster, FleetState, Group, Head, HistoryEntry,
    InformerState, LATELY, LeftOutObject, Program, Rollout, SCHEMA_VERSION, SourcedTaint, SourcedText, State, Template,
    explain::{Explained, explained},
    past::{Past, Run},
};
use cluster::{ClusterSync, Fleet, Left, WorkloadCluster};
use index::{Detail, GroupSnapshot, Served, Sizes, Snapshot};
use scale::History;
use service::listen::{Certificates, Check, Checks as _, DebugError};
use service::{Calls, Refreshed};

/// The part of the live state that is requested.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Selection {
    /// True if the instances of each group are included.
    pub instances: bool,
    /// The only group to include. If the group doesn't exist, the lists are empty.
    pub group: Option<GroupId>,
}

impl Default for Selection {
    fn default() -> Self {
        Self { instances: true, group: None }
    }
}

impl Selection {
    /// Parses the query of a URL: `instances=false` and `group=<id>`. The last value of each parameter counts.
    ///
    /// # Errors
    /// If the query is invalid. The error text lists the known parameters.
    pub fn parse(query: &str) -> Result<Self, String> {
        let mut selection = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match (&*name, &*value) {
                ("instances", "true" | "") => selection.instances = true,
                ("instances", "false") => selection.instances = false,
                ("instances", _) => return Err(format!("instances is {value:?}: it must be true or false")),
                ("group", id) => {
                    selection.group = Some(GroupId::parse(id).ok_or_else(|| {
                        format!("group is {value:?}: it must be an id, such as MachineDeployment/team-a/workers")
                    })?);
                }
                _ => return Err(format!("parameter {name:?} isn't known: known are instances and group")),
            }
        }
        Ok(selection)
    }
}

/// The check of the informer of Nodes.
const NODES: &str = "workload/nodes";

impl Head {
    fn new(checks: Vec<Check>, program: &Program, cluster: Option<ObjectKey>) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            program: program.clone(),
            taken_at: Timestamp::now(),
            ready: checks.iter().all(Check::is_ready),
            checks,
            cluster: cluster.map(|cluster| cluster.to_string()),
        }
    }
}

/// The source of the live state of a workload cluster.
#[derive(Clone)]
pub struct StateSource {
    source: Source,
    served: ServedCluster,
}

/// A list whose items are built while it is serialized.
struct Lazy<I>(I);

impl<T: Serialize, I: Iterator<Item = T> + Clone> Serialize for Lazy<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.clone())
    }
}

impl StateSource {
    /// Returns the live state.
    pub fn read(&self, selection: &Selection) -> State {
        self.of(&self.snapshot(selection))
    }

    fn of(&self, snapshot: &Snapshot) -> State {
        self.whole(snapshot, self.groups(snapshot).collect(), self.left_out(snapshot).collect())
    }

    /// Returns the live state of this group alone, and the report on the group: `None` if the object doesn't exist.
    pub fn read_group(&self, id: &GroupId) -> (State, Option<Explained>) {
        let selection = Selection { instances: true, group: Some(id.clone()) };
        let snapshot = self.snapshot(&selection);
        let explained = snapshot.groups.first().and_then(|group| explained(group, &[], self.served.cluster.keys()));
        (self.of(&snapshot), explained)
    }

    /// Returns the live state for a table of groups. Each group has only the fields of a row, and MachineSets that a
    /// MachineDeployment scales are omitted.
    pub fn read_rows(&self) -> State {
        let mut snapshot = self.snapshot(&Selection { instances: false, group: None });
        let is_owned = |group: &GroupSnapshot| {
            group.standing.as_ref().is_err_and(|excluded| excluded.reason == Exclusion::OwnedByMachineDeployment)
        };
        snapshot.groups.retain(|group| !is_owned(group));
        let row = |group: &GroupSnapshot| Some(row(group, group.served()?, &self.served.history));
        let rows = snapshot.groups.iter().filter_map(row).collect();
        let left_out = self.left_out(&snapshot).collect();
        self.whole(&snapshot, rows, left_out)
    }

    pub(crate) fn past(&self, id: &GroupId) -> Vec<Run> {
        self.source.past.of(id)
    }

    /// Returns the ids of the groups of the Machine, Node or instance with this name or providerID.
    pub(crate) fn groups_of_name(&self, text: &str) -> Vec<String> {
        self.served.cluster.index().groups_of_name(text).iter().map(ToString::to_string).collect()
    }

    /// Returns the live state as JSON.
    ///
    /// # Errors
    /// If a value can't be written as JSON; every value of the schema can.
    pub fn json(&self, selection: &Selection) -> serde_json::Result<Vec<u8>> {
        let snapshot = self.snapshot(selection);
        let (groups, left_out) = (Lazy(self.groups(&snapshot)), Lazy(self.left_out(&snapshot)));
        serde_json::to_vec(&self.whole(&snapshot, groups, left_out))
    }

    fn snapshot(&self, selection: &Selection) -> Snapshot {
        let detail = if selection.instances { Detail::Instances } else { Detail::Counts };
        let mut snapshot = self.served.cluster.index().snapshot(selection.group.as_ref(), detail);
        snapshot.groups.sort_by(|a, b| a.id.cmp(&b.id));
        snapshot
    }

    /// Returns true if all Nodes of the workload cluster are known.
    fn has_nodes(&self) -> bool {
        let is_ready = |check: &Check| check.name == NODES && check.is_ready();
        self.served.cluster.reads_nodes() && self.served.cluster.checks().iter().any(is_ready)
    }

    fn whole<G, L>(&self, snapshot: &Snapshot, groups: G, left_out: L) -> State<G, L> {
        let now = Instant::now();
        State {
            head: Head::new(self.served.cluster.checks(), &self.source.program, self.served.cluster.cluster_in_scope()),
            calls: calls_of(&self.served.calls, now),
            tls: self.source.certificates.as_ref().map(Certificates::standing),
            clusters: clusters(self.served.cluster.informers(), self.served.cluster.reads_nodes(), now),
            machines: snapshot.machines as u64,
            nodes: snapshot.nodes as u64,
            groups,
            left_out,
        }
    }

    fn groups<'a>(&'a self, snapshot: &'a Snapshot) -> impl Iterator<Item = Group> + Clone + use<'a> {
        let has_nodes = self.has_nodes();
        let history = &self.served.history;
        let group = move |group: &GroupSnapshot| Some(group_of(group, group.served()?, history, has_nodes));
        snapshot.groups.iter().filter_map(group)
    }

    fn left_out<'a>(&'a self, snapshot: &'a Snapshot) -> impl Iterator<Item = LeftOutObject> + Clone + use<'a> {
        let left_out = |group: &GroupSnapshot| left_out(group, self.served.history.of(&group.id));
        snapshot.groups.iter().filter_map(left_out)
    }
}

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
    program: Program,
    past: Past,
}

impl Source {
    /// Returns the source of the state of workload clusters.
    pub fn new(
        fleet: Fleet,
        served: Arc<dyn ServedClusters>,
        certificates: Option<Certificates>,
        program: Program,
    ) -> Self {
        Self { fleet, served, certificates, program, past: Past::default() }
    }

    /// Returns the source of the state of workload clusters that no autoscaler calls.
    pub fn alone(fleet: Fleet, started_at: Timestamp) -> Self {
        Self::new(fleet.clone(), Arc::new(fleet), None, Program::new(started_at, ""))
    }

    /// Returns true if there is one workload cluster, and none to choose.
    pub(crate) fn is_one(&self) -> bool {
        self.fleet.is_one()
    }

    /// Returns the source of the state of the only workload cluster, if there is one.
    pub fn only(&self) -> Option<StateSource> {
        self.served.cluster(None).map(|found| self.state_of(found))
    }

    /// Returns the state of all Clusters.
    pub fn read(&self) -> FleetState {
        let (now, core) = (Instant::now(), self.fleet.core_problem());
        let clusters = self.served.clusters();
        let clusters = clusters.iter().map(|served| converted(served, core.as_deref(), now)).collect();
        let management = self.fleet.informers().into_iter().filter(|(cluster, _)| *cluster == "management");
        let informers = informers(management.map(|(_, status)| status), now);
        let denied =
            self.served.denied_callers().callers.into_iter().filter(|caller| caller.last_ago < LATELY).collect();
        let tls = self.certificates.as_ref().map(Certificates::standing);
        FleetState { informers, clusters, denied, head: self.head(), tls }
    }

    /// Adds the present sizes to the past of all groups, which the graphs on their pages show. Call it once a minute.
    pub fn sample(&self) {
        let snapshots = self.served.clusters().into_iter().map(|it| it.cluster.index().snapshot(None, Detail::Counts));
        let groups = snapshots.flat_map(|snapshot| snapshot.groups).filter(|group| group.served().is_some());
        self.past.add(groups.map(|group| (group.id, group.size, group.counts.running)));
    }

    pub(crate) fn head(&self) -> Head {
        let only = self.served.cluster(None).and_then(|only| only.cluster.cluster_in_scope());
        Head::new(self.fleet.checks(), &self.program, only)
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
        StateSource { source: self.clone(), served: found }
    }

    /// Returns the live state as JSON, narrowed by the query of the URL.
    pub(crate) fn debug_state(&self, query: &str) -> Result<Vec<u8>, DebugError> {
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
}

fn converted(served: &ServedCluster, core: Option<&str>, now: Instant) -> FleetCluster {
    let ServedCluster { cluster, calls, denied, foreign, last_unexpected, history: _ } = served;
    let sync = cluster.sync(core.is_none());
    let Sizes { groups, in_need, machines, nodes, .. } = cluster.index().sizes();
    let name = cluster.cluster_in_scope();
    FleetCluster {
        namespace: name.as_ref().map(|name| name.namespace.to_string()).unwrap_or_default(),
        name: name.map(|name| name.name.to_string()).unwrap_or_default(),
        calls: calls_of(calls, now),
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
    let (standing, reason) = match (left, core, sync) {
        (Some(why), ..) => (ClusterStanding::Leaving, Some(why.to_string())),
        (None, Some(why), _) => (ClusterStanding::NotInSync, Some(why.to_owned())),
        (None, None, ClusterSync { is_connected: false, nodes: Some(why), .. }) => {
            (ClusterStanding::NotConnected, Some(why))
        }
        (None, None, ClusterSync { problem: Some(why), .. }) => (ClusterStanding::NotInSync, Some(why)),
        (None, None, ClusterSync { problem: None, .. }) => (ClusterStanding::Served, None),
    };
    FleetCluster { standing, reason, nodes_reason, nodes_synced, ..FleetCluster::default() }
}

// Conversions of values of the index to types of the schema.

const ARCH: &str = "kubernetes.io/arch";
const OS: &str = "kubernetes.io/os";

/// Converts a group, with its instances if the snapshot has them.
///
/// `has_nodes` is true if the Nodes of the workload cluster are in sync.
fn group_of(snapshot: &GroupSnapshot, served: &Served, history: &History, has_nodes: bool) -> Group {
    let definition = &served.definition;
    Group {
        template: definition.template.as_ref().map(template),
        options: options(&served.options),
        notes: snapshot.note().iter().chain(&definition.notes).cloned().collect(),
        instances: snapshot.instances(has_nodes).map(Iterator::collect),
        ..row(snapshot, served, history)
    }
}

/// Converts a group without the fields that only its own page shows: template, options, notes and instances.
fn row(snapshot: &GroupSnapshot, served: &Served, history: &History) -> Group {
    let definition = &served.definition;
    let object = snapshot.object.as_deref();
    Group {
        id: snapshot.id.to_string(),
        kind: snapshot.id.kind.to_string(),
        namespace: snapshot.id.key.namespace.to_string(),
        name: snapshot.id.key.name.to_string(),
        cluster: object.map(|object| object.cluster_name.to_string()).unwrap_or_default(),
        min_size: definition.bounds.min,
        max_size: definition.bounds.max,
        size: snapshot.size,
        spec_replicas: object.and_then(|object| object.replicas),
        written: snapshot.written,
        pinned: snapshot.pinned,
        rolling_out: snapshot.rollout.as_ref().is_some_and(|it| it.cause == RolloutCause::MachineSets),
        rollout: snapshot.rollout.as_ref().map(|it| rollout(it, definition.ignores_rollouts)),
        counts: snapshot.counts,
        from_zero: definition.from_zero.map(|by| by.as_str().to_owned()),
        problems: definition.problems.clone(),
        history: history.of(&snapshot.id),
        ..Group::default()
    }
}

/// Converts an object that isn't a node group, with its last writes; `None` for one that is.
pub(super) fn left_out(snapshot: &GroupSnapshot, history: Vec<HistoryEntry>) -> Option<LeftOutObject> {
    let Excluded { reason, problems } = snapshot.standing.as_ref().err()?;
    let object = snapshot.object.as_deref();
    Some(LeftOutObject {
        id: snapshot.id.to_string(),
        kind: snapshot.id.kind.to_string(),
        namespace: snapshot.id.key.namespace.to_string(),
        name: snapshot.id.key.name.to_string(),
        cluster: object.map(|object| object.cluster_name.to_string()).unwrap_or_default(),
        reason: reason.as_str().to_owned(),
        message: reason.to_string(),
        invalid: reason.is_error() || !problems.is_empty(),
        pinned: snapshot.pinned,
        problems: problems.clone(),
        notes: Vec::new(),
        history,
    })
}

fn calls_of(calls: &Calls, now: Instant) -> CallsState {
    match calls.last_refresh() {
        None => CallsState::default(),
        Some(Refreshed { at, refused }) => CallsState {
            last_refresh_ago: Some(now.saturating_duration_since(at).as_secs()),
            last_refresh_refused: refused,
        },
    }
}

fn template(template: &NodeTemplate) -> Template {
    let label = |key| template.labels.get(key).map(|label| label.value.clone()).unwrap_or_default();
    Template {
        capacity: texts(&template.capacity),
        allocatable: template
            .capacity
            .keys()
            .filter_map(|resource| Some((resource.clone(), template.allocatable(resource)?.to_string())))
            .collect(),
        overhead: texts(&template.overhead),
        gpus: capacity::gpus(&template.capacity).map(|(name, count)| (name.to_owned(), count.to_string())).collect(),
        arch: label(ARCH),
        os: label(OS),
        labels: texts(&template.labels),
        taints: template
            .taints
            .iter()
            .map(|Sourced { value: taint, source, .. }| SourcedTaint {
                key: taint.key.clone(),
                value: taint.value.clone(),
                effect: taint.effect.to_string(),
                source: source.as_str().to_owned(),
            })
            .collect(),
        declared_features: template.declared_features.iter().map(text).collect(),
    }
}

fn texts<T: ToString>(values: &SourcedMap<T>) -> BTreeMap<String, SourcedText> {
    values.iter().map(|(key, it)| (key.clone(), text(it))).collect()
}

fn text<T: ToString>(it: &Sourced<T>) -> SourcedText {
    SourcedText {
        value: it.value.to_string(),
        source: it.source.as_str().to_owned(),
        detail: Some(it.source.to_string()),
    }
}

/// Returns the overridden options, by their annotations without the prefix.
pub(super) fn options(options: &Overrides) -> BTreeMap<String, String> {
    let Overrides {
        scale_down_utilization_threshold,
        scale_down_gpu_utilization_threshold,
        scale_down_unneeded_time,
        scale_down_unready_time,
        max_node_provision_time,
        max_node_startup_time,
        ignore_daemon_sets_utilization,
    } = options;
    let text = |name: &str, value: Option<String>| Some((name.to_owned(), value?));
    [
        text("scaledownutilizationthreshold", scale_down_utilization_threshold.map(|it| it.to_string())),
        text("scaledowngpuutilizationthreshold", scale_down_gpu_utilization_threshold.map(|it| it.to_string())),
        text("scaledownunneededtime", scale_down_unneeded_time.map(|it| it.to_string())),
        text("scaledownunreadytime", scale_down_unready_time.map(|it| it.to_string())),
        text("maxnodeprovisiontime", max_node_provision_time.map(|it| it.to_string())),
        text("maxnodestartuptime", max_node_startup_time.map(|it| it.to_string())),
        text("ignoredaemonsetsutilization", ignore_daemon_sets_utilization.map(|it| it.to_string())),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn rollout(ongoing: &rollout::Rollout, ignored: bool) -> Rollout {
    Rollout {
        cause: ongoing.cause.as_str().to_owned(),
        message: ongoing.cause.to_string(),
        since: ongoing.since,
        ignored,
    }
}

/// Converts the informers' statuses to clusters, sorted by cluster and resource. A workload cluster whose Nodes aren't
/// read isn't among them.
fn clusters(statuses: Vec<(&'static str, Status)>, reads_nodes: bool, now: Instant) -> Vec<ClusterState> {
    let expected = [Some("management"), reads_nodes.then_some("workload")];
    let mut clusters: BTreeMap<_, Vec<_>> = expected.into_iter().flatten().map(|name| (name, Vec::new())).collect();
    for (cluster, status) in statuses {
        clusters.entry(cluster).or_default().push(status);
    }
    let state = |(name, statuses): (&str, Vec<_>)| ClusterState {
        name: name.to_owned(),
        informers: informers(statuses.into_iter(), now),
    };
    clusters.into_iter().map(state).collect()
}

/// Converts the statuses of one cluster's informers, sorted by resource.
fn informers(statuses: impl Iterator<Item = Status>, now: Instant) -> Vec<InformerState> {
    let mut informers: Vec<_> = statuses.map(|status| informer(status, now)).collect();
    informers.sort_by(|a, b| (&a.resource, &a.namespaces).cmp(&(&b.resource, &b.namespaces)));
    informers
}

fn informer(status: Status, now: Instant) -> InformerState {
    let ago = |then: Option<Instant>| then.map(|then| now.saturating_duration_since(then).as_secs());
    InformerState {
        resource: status.resource,
        namespaces: status.namespaces,
        synced: status.synced,
        reason: status.reason,
        broken_for: ago(status.broken_since),
        last_error: status.last_error,
        objects: status.objects as u64,
        undecodable: status.undecodable as u64,
        last_event_ago: ago(status.last_event),
        last_list_ago: ago(status.last_list),
        watch_errors: status.watch_errors,
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

    #[test]
    fn a_workload_cluster_that_is_not_connected_is_shown_unless_it_is_left_out_on_purpose() {
        let names = |reads_nodes: bool| {
            let clusters = clusters(Vec::new(), reads_nodes, Instant::now());
            clusters.into_iter().map(|cluster| cluster.name).collect::<Vec<_>>()
        };
        assert_eq!(
            (names(true), names(false)),
            (vec!["management".to_owned(), "workload".to_owned()], vec!["management".to_owned()])
        );
    }
}
