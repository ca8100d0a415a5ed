//! A Cluster of a fleet: its index, the Nodes of its workload cluster, and the sync of both. Nothing of it may hold up
//! another Cluster.

use std::{fmt, sync::Arc};

use capi::{Keys, Machine, ObjectKey, Uid};
use nodegroup::{GroupId, Rules, Scope, ScopeSpec};
use shared_informer::{AsOf, Settings, Spawner, Status};
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
use connect::{ClusterRef, WorkloadSource};
use index::{Freshness, Index};
use scale::WatchedMachines;
use server::{Check, Checks};

/// The name of the check of a Cluster's own parts besides its Nodes.
const CLUSTER: &str = "fleet/cluster";

/// The parts of a fleet that its Clusters share.
#[derive(Clone)]
pub(super) struct Common {
    pub(super) core: Arc<CoreKinds<FleetSink>>,
    pub(super) sink: Arc<FleetSink>,
    pub(super) templates: Arc<FleetTemplates>,
    /// The rules of all groups; each Cluster has a scope of its own.
    pub(super) rules: Arc<Rules>,
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
    at_start: TemplatesAtStart,
    standing: Arc<Standing>,
    common: Common,
    tasks: TaskTracker,
    ended: CancellationToken,
}

impl Member {
    /// Starts to serve a Cluster. Returns `None` if it isn't selected any more.
    pub(super) fn join(cluster: &ObjectKey, uid: &Uid, common: &Common) -> Option<Self> {
        // The names of Clusters are those of objects, so the API server has checked them.
        let secret = ClusterRef::new(&*cluster.namespace, &*cluster.name).ok()?;
        let scope = Scope::Specs(vec![ScopeSpec::cluster(&*cluster.namespace, &*cluster.name)]);
        let rules = Rules { scope, ..(*common.rules).clone() };
        let index = Arc::new(Index::new(rules).in_first_sync());
        let (source, standing) = (WorkloadSource::Secret(secret), Arc::default());
        let begin = |kinds| common.sink.join(cluster, uid, (&index, &standing), kinds);
        if !common.core.replay(cluster, begin) {
            return None;
        }
        let nodes = WorkloadNodes::new(Arc::clone(&index), source, common.informers.clone(), common.spawner.clone());
        let member = Self {
            inner: Arc::new(Inner {
                cluster: cluster.clone(),
                uid: uid.clone(),
                index,
                nodes,
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
        Some(member)
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let ended = self.inner.ended.clone();
        self.inner.common.spawner.spawn_tracked(&self.inner.tasks, async move {
            ended.run_until_cancelled(task).await;
        });
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

    /// Returns the sync of its own parts. Its own problem is known once the core kinds are in sync.
    #[must_use]
    pub fn sync(&self, is_core_in_sync: bool) -> MemberSync {
        let Inner { nodes, common, .. } = &*self.inner;
        let health = nodes.health();
        let is_connected = health.is_ok();
        let nodes = common.core.problem(health);
        let problem = if is_core_in_sync { self.problem(nodes.clone()) } else { None };
        MemberSync { is_connected, nodes, problem }
    }

    /// Returns the reason why its own index isn't in sync, given that the core kinds are.
    pub(super) fn own_problem(&self) -> Option<String> {
        let Inner { nodes, common, .. } = &*self.inner;
        self.problem(common.core.problem(nodes.health()))
    }

    /// Returns the reason why its own index isn't in sync, given the problem of its Nodes.
    fn problem(&self, nodes: Option<String>) -> Option<String> {
        let Inner { cluster, index, at_start, common, .. } = &*self.inner;
        if common.sink.is_left_out(cluster) {
            return Some(format!("the namespace {} can't be read", cluster.namespace));
        }
        if let Some(why) = nodes {
            return Some(format!("{NODES}: {why}"));
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
        inner.common.templates.remove(&inner.cluster);
        inner.nodes.shutdown().await;
    }
}

impl Freshness for Member {
    fn check(&self) -> Result<(), String> {
        let Inner { cluster, common, .. } = &*self.inner;
        let problems = common.core.problems(Vec::new).into_iter();
        let mut problems: Vec<_> =
            problems.filter_map(|(name, problem)| Some(format!("{name}: {}", problem?))).collect();
        // Templates are awaited once the core kinds are in sync.
        if problems.is_empty() {
            problems.extend(self.own_problem());
        }
        // It comes last: another Cluster of its name may have been filled meanwhile.
        if let Some(why) = self.left() {
            return Err(format!("Cluster {cluster} isn't served any more: {why}"));
        }
        if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
    }
}

/// The checks of its Refresh: those of the fleet are about all Clusters.
impl Checks for Member {
    fn checks(&self) -> Vec<Check> {
        let core = &self.inner.common.core;
        let checks = core.problems(|| vec![(NODES, self.inner.nodes.health())]).into_iter();
        let mut checks: Vec<_> = checks
            .map(|(name, problem)| match problem {
                None => Check::ready(name),
                Some(why) => Check::pending(name, why),
            })
            .collect();
        if let Some(why) = self.left() {
            checks.push(Check::pending(CLUSTER, format!("it isn't served any more: {why}")));
        } else if checks.iter().all(Check::is_ready)
            && let Some(why) = self.problem(None)
        {
            checks.push(Check::pending(CLUSTER, why));
        }
        checks
    }
}

impl WatchedMachines for Member {
    fn as_of(&self, key: &ObjectKey, version: u64) -> AsOf<Machine> {
        self.inner.common.core.machine_as_of(key, version)
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member").field("cluster", &self.inner.cluster).finish_non_exhaustive()
    }
}
