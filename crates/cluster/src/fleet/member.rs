//! A Cluster of a fleet: its index, the Nodes of its workload cluster, and the sync of both. Nothing of it may hold up
//! another Cluster.

use std::{fmt, sync::Arc};

use capi::{Machine, ObjectKey, Uid};
use nodegroup::{Rules, Scope, ScopeSpec};
use shared_informer::{AsOf, Settings, Spawner};
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

    /// Returns the reason why its own index isn't in sync, given that the core kinds are.
    pub(super) fn own_problem(&self) -> Option<String> {
        let Inner { cluster, index, nodes, at_start, common, .. } = &*self.inner;
        if common.sink.is_left_out(cluster) {
            return Some(format!("the namespace {} can't be read", cluster.namespace));
        }
        if let Some(why) = common.core.problem(nodes.health()) {
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
