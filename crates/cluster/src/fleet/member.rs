//! A Cluster of a fleet: its index, the Nodes of its workload cluster, and the sync of both. Nothing of it may hold up
//! another Cluster.

use std::{fmt, sync::Arc, time::Duration};

use capi::{Keys, NotBefore, ObjectKey, Uid};
use nodegroup::{GroupId, Rules, Scope, ScopeSpec};
use shared_informer::{Settings, Spawner, Status};
use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    sink::FleetSink,
    standing::{Left, Standing},
    templates::FleetTemplates,
};
use crate::{
    core_kinds::CoreKinds,
    templates_at_start::{FIRST_TEMPLATES, TemplatesAtStart},
    workload_nodes::{NODES, WorkloadNodes},
};
use connect::{ClusterRef, NodeAccess, Pace, WorkloadSource};
use index::{Freshness, Index};
use scale::MayWrite;
use server::{Check, Checks};

/// The name of the check of a Cluster's own parts.
const CLUSTER: &str = "fleet/cluster";

/// The time after a Cluster has joined for which its Refresh waits for the first list of its Nodes. Afterwards it does
/// without them.
const FIRST_NODES: Duration = Duration::from_secs(30);

/// The limits for the Nodes of one Cluster: its API server is its tenant's, and must not fill the memory of all.
/// Kubernetes itself supports 5,000 Nodes in a cluster.
const MOST_NODES: usize = 5_000;
const MOST_BYTES: usize = 6 << 20;
const LONGEST_EVENT: usize = 2 << 20;
const LONGEST_PAGE: usize = 2 << 20;
/// The number of Nodes in a page: most Clusters have fewer, and each page is in memory as a whole.
const PAGE: u32 = 100;
/// The longest pause between two attempts to list or watch the Nodes of one Cluster.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Returns the settings of the informer of one Cluster's Nodes.
fn of_nodes(all: &Settings) -> Settings {
    Settings {
        backoff_max: all.backoff_max.max(LONGEST_PAUSE),
        max_event_bytes: all.max_event_bytes.min(LONGEST_EVENT),
        max_page_bytes: all.max_page_bytes.min(LONGEST_PAGE),
        page_size: all.page_size.min(PAGE),
        max_objects: all.max_objects.min(MOST_NODES),
        max_bytes: all.max_bytes.min(MOST_BYTES),
        // Nodes have no namespace.
        max_of_namespace: None,
        ..all.clone()
    }
}

/// The parts of a fleet that its Clusters share.
#[derive(Clone)]
pub(super) struct Common {
    pub(super) core: Arc<CoreKinds<FleetSink>>,
    pub(super) sink: Arc<FleetSink>,
    pub(super) templates: Arc<FleetTemplates>,
    /// The rules of all groups; each Cluster has a scope of its own.
    pub(super) rules: Arc<Rules>,
    /// The credentials by which Nodes are read.
    pub(super) node_access: NodeAccess,
    /// The pace at which the Clusters connect.
    pub(super) pace: Pace,
    pub(super) informers: Settings,
    pub(super) spawner: Spawner,
}

/// The sync of a Cluster's own parts.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct MemberSync {
    /// True if its workload cluster's Nodes are followed, in sync or not.
    pub is_connected: bool,
    /// The reason why its Nodes aren't in sync.
    pub nodes: Option<String>,
    /// The reason why its Refresh fails though the core kinds are in sync, which may be that of its Nodes.
    pub problem: Option<String>,
}

/// A Cluster that is served, or was.
#[derive(Clone)]
pub struct Member {
    inner: Arc<Inner>,
}

struct Inner {
    cluster: ObjectKey,
    uid: Uid,
    index: Arc<Index>,
    nodes: WorkloadNodes,
    joined_at: Instant,
    at_start: TemplatesAtStart,
    standing: Arc<Standing>,
    common: Common,
    tasks: TaskTracker,
    ended: CancellationToken,
}

/// A Cluster that is about to be served.
struct Joining {
    cluster: ObjectKey,
    uid: Uid,
    index: Arc<Index>,
    source: WorkloadSource,
    standing: Arc<Standing>,
}

impl Joining {
    fn new(cluster: ObjectKey, uid: Uid, common: &Common) -> Option<Self> {
        // The names of Clusters are those of objects, so the API server has checked them.
        let named = ClusterRef::new(&*cluster.namespace, &*cluster.name).ok()?;
        let scope = Scope::Specs(vec![ScopeSpec::cluster(&*cluster.namespace, &*cluster.name)]);
        let rules = Rules { scope, ..(*common.rules).clone() };
        let index = common.templates.index(rules);
        Some(Self { cluster, uid, index, source: common.node_access.of(&named), standing: Arc::default() })
    }
}

impl Member {
    /// Starts to serve these Clusters, but those that aren't selected any more.
    pub(super) fn join_all(clusters: Vec<(ObjectKey, Uid)>, common: &Common) -> Vec<Self> {
        let joining = clusters.into_iter().filter_map(|(cluster, uid)| Joining::new(cluster, uid, common));
        let mut joined = Vec::new();
        common.core.replay(|kinds| {
            let mut marks = Vec::new();
            for one in joining {
                let Joining { cluster, uid, index, standing, .. } = &one;
                let Some(mark) = common.sink.join(cluster, uid, (index, standing), kinds.clone()) else {
                    common.templates.remove(cluster, index);
                    continue;
                };
                marks.push((cluster.clone(), mark));
                joined.push(one);
            }
            marks
        });
        joined.into_iter().map(|one| Self::start(one, common)).collect()
    }

    fn start(joined: Joining, common: &Common) -> Self {
        let Joining { cluster, uid, index, source, standing } = joined;
        let (pace, informers) = (common.pace.of_another(), of_nodes(&common.informers));
        let nodes = WorkloadNodes::new(Arc::clone(&index), source, pace, informers, common.spawner.clone());
        let member = Self {
            inner: Arc::new(Inner {
                cluster,
                uid,
                index,
                nodes,
                joined_at: Instant::now(),
                at_start: TemplatesAtStart::default(),
                standing,
                common: common.clone(),
                tasks: TaskTracker::new(),
                ended: CancellationToken::new(),
            }),
        };
        let inner = Arc::clone(&member.inner);
        member.spawn(async move { inner.nodes.follow(inner.common.core.management()).await });
        let inner = Arc::clone(&member.inner);
        member.spawn(async move { inner.common.templates.supply(&inner.cluster, &inner.index).await });
        member
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let ended = self.inner.ended.clone();
        // Otherwise the task would have a place for it before it runs, and another one while it does.
        let task = Box::pin(task);
        self.inner.common.spawner.spawn_tracked(&self.inner.tasks, async move {
            ended.run_until_cancelled(task).await;
        });
    }

    /// Notes that its autoscaler is there, so that it connects before Clusters without one.
    pub fn called(&self) {
        self.inner.nodes.hurry();
    }

    /// Returns the Cluster.
    #[must_use]
    pub fn cluster(&self) -> &ObjectKey {
        &self.inner.cluster
    }

    /// Returns the uid of the Cluster.
    #[must_use]
    pub fn uid(&self) -> &Uid {
        &self.inner.uid
    }

    /// Returns the index.
    #[must_use]
    pub fn index(&self) -> &Arc<Index> {
        &self.inner.index
    }

    /// Returns the reason why it isn't served any more; `None` while it is.
    #[must_use]
    pub fn left(&self) -> Option<Left> {
        self.inner.standing.left()
    }

    /// Returns the annotation keys in force.
    #[must_use]
    pub fn keys(&self) -> &Keys {
        &self.inner.common.rules.keys
    }

    /// Returns the Cluster of a MachineDeployment, MachineSet or MachinePool, whether it is this one, another one or
    /// one that isn't served.
    #[must_use]
    pub fn cluster_of(&self, group: &GroupId) -> Option<ObjectKey> {
        self.inner.common.sink.cluster_of(group)
    }

    /// Returns the statuses of the informers that feed its index, with the cluster they watch.
    #[must_use]
    pub fn informers(&self) -> Vec<(&'static str, Status)> {
        let management = self.inner.common.core.management().factory().statuses();
        let management = management.into_iter().map(|status| ("management", status));
        let workload = self.inner.nodes.informers();
        management.chain(workload.into_iter().map(|status| ("workload", status))).collect()
    }

    /// Returns true unless its Nodes are left out on purpose.
    #[must_use]
    pub fn reads_nodes(&self) -> bool {
        !self.inner.nodes.are_off()
    }

    /// Returns the sync of its own parts. Its own problem is known once the core kinds are in sync.
    #[must_use]
    pub fn sync(&self, is_core_in_sync: bool) -> MemberSync {
        let Inner { nodes, .. } = &*self.inner;
        let is_connected = nodes.are_off() || nodes.health().is_ok();
        let problem = if is_core_in_sync { self.own_problem() } else { None };
        MemberSync { is_connected, nodes: self.problem_of_nodes(), problem }
    }

    fn not_served(&self, why: Left) -> String {
        format!("Cluster {} isn't served any more: {why}", self.inner.cluster)
    }

    /// Returns the certificates that its autoscaler may have; `None` if any will do.
    #[must_use]
    pub fn client_not_before(&self) -> Option<NotBefore> {
        self.inner.standing.client_not_before()
    }

    /// Returns the reason why its Nodes aren't in sync, unless they aren't read at all.
    fn problem_of_nodes(&self) -> Option<String> {
        let Inner { nodes, common, .. } = &*self.inner;
        if nodes.are_off() {
            return None;
        }
        common.core.problem(nodes.health())
    }

    /// Returns what people should know of it, given that the core kinds are in sync.
    pub(super) fn concern(&self) -> Option<String> {
        self.own_problem().or_else(|| self.problem_of_nodes().map(|why| format!("{NODES}: {why}")))
    }

    /// Returns true while something is awaited at its start, given that the core kinds are in sync. Ends the first sync
    /// of its index otherwise.
    pub(super) fn is_starting(&self) -> bool {
        self.own_problem();
        !self.inner.at_start.is_over()
    }

    /// Returns the reason why its own index isn't in sync, given that the core kinds are.
    fn own_problem(&self) -> Option<String> {
        let Inner { cluster, index, joined_at, at_start, common, .. } = &*self.inner;
        if common.sink.is_left_out(cluster) {
            return Some(format!("the namespace {} can't be read", cluster.namespace));
        }
        if let Some(why) = common.core.management().factory().left_out_of(&cluster.namespace) {
            return Some(why);
        }
        // Without Nodes the groups are the same, unless a Machine is recognized by its Node alone.
        if let Some(why) = self.problem_of_nodes().map(|why| format!("{NODES}: {why}")) {
            if let Some(machine) = index.unidentified_machine() {
                return Some(format!("{why}; only its Node has the providerID of Machine {}", machine.name));
            }
            if joined_at.elapsed() < FIRST_NODES {
                return Some(why);
            }
        }
        if !common.sink.is_filled(cluster) {
            return Some("not all of its objects have arrived yet".to_owned());
        }
        at_start.are_awaited(index).then(|| format!("templates: {FIRST_TEMPLATES}"))
    }

    /// Stops its tasks, and disconnects from its workload cluster. The index keeps its last state.
    pub(super) async fn end(&self) {
        let inner = &self.inner;
        inner.ended.cancel();
        inner.tasks.close();
        inner.tasks.wait().await;
        inner.common.templates.remove(&inner.cluster, &inner.index);
        inner.nodes.shutdown().await;
    }
}

impl Freshness for Member {
    fn check(&self) -> Result<(), String> {
        let common = &self.inner.common;
        let problems = common.core.problems(Vec::new).into_iter();
        let mut problems: Vec<_> =
            problems.filter_map(|(name, problem)| Some(format!("{name}: {}", problem?))).collect();
        // Templates are awaited once the core kinds are in sync.
        if problems.is_empty() {
            problems.extend(self.own_problem());
        }
        // It comes last: another Cluster of its name may have been filled meanwhile.
        if let Some(why) = self.left() {
            return Err(self.not_served(why));
        }
        if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
    }
}

/// The checks of its Refresh: those of the fleet are about all Clusters.
impl Checks for Member {
    fn checks(&self) -> Vec<Check> {
        let mut checks = self.inner.common.core.checks(Vec::new);
        if let Some(why) = self.left() {
            checks.push(Check::pending(CLUSTER, format!("it isn't served any more: {why}")));
        } else if checks.iter().all(Check::is_ready)
            && let Some(why) = self.own_problem()
        {
            checks.push(Check::pending(CLUSTER, why));
        }
        checks
    }
}

impl MayWrite for Member {
    fn may_write(&self) -> Result<(), String> {
        self.left().map_or(Ok(()), |why| Err(self.not_served(why)))
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member").field("cluster", &self.inner.cluster).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nodes_of_a_cluster_have_limits_of_their_own_below_those_of_the_operator() {
        let limits = |all: &Settings| {
            let Settings { max_objects, max_bytes, max_event_bytes, max_page_bytes, max_of_namespace, .. } =
                of_nodes(all);
            assert_eq!(max_of_namespace, None, "Nodes have no namespace");
            [max_objects, max_bytes, max_event_bytes, max_page_bytes]
        };
        assert_eq!(limits(&Settings::of_many_tenants()), [5_000, 6 << 20, 2 << 20, 2 << 20]);
        let small =
            Settings { max_objects: 7, max_bytes: 8, max_event_bytes: 9, max_page_bytes: 10, ..Settings::default() };
        assert_eq!(limits(&small), [7, 8, 9, 10]);
    }
}
