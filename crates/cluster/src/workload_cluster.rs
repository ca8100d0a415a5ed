//! A workload cluster: its index, its Nodes, and the sync of both. It is that of a Cluster which a selector matches, and
//! then nothing of it may hold up another one; or the only one, whose index has all groups in the scope of the rules.

use std::{fmt, sync::Arc, time::Duration};

use rules::capi::{Keys, NotBefore, ObjectKey, Uid};
use rules::{GroupId, Rules, Scope, ScopeSpec};
use shared_informer::{Settings, Spawner, Status};
use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    core_kinds::{CoreKinds, NamedHealth},
    dispatch::ByCluster,
    fleet::{Left, Standing},
    management::Management,
    remembered,
    template_store::TemplateStore,
    templates::{FIRST_TEMPLATES, KindStates, TemplatesAtStart, not_followed},
    workload_nodes::{NODES, WorkloadNodes},
};
use connect::{ClusterRef, NodeAccess, Pace, WorkloadSource};
use index::{Index, KindState};
use scale::MayWrite;
use service::listen::Check;

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

/// The parts that all workload clusters share.
pub(super) struct Common {
    pub(super) core: CoreKinds,
    pub(super) templates: Arc<TemplateStore>,
    /// The kinds of templates with their state.
    pub(super) kinds: KindStates,
    /// The rules of all groups; a Cluster that a selector matches has a scope of its own.
    pub(super) rules: Rules,
    pub(super) informers: Settings,
    pub(super) spawner: Spawner,
}

/// The choice of Clusters by a selector.
pub(super) struct Selection {
    pub(super) sink: Arc<ByCluster>,
    /// The credentials by which Nodes are read.
    pub(super) node_access: NodeAccess,
    /// The pace at which the Clusters connect.
    pub(super) pace: Pace,
}

/// The sync of the own parts of a workload cluster.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ClusterSync {
    /// True if its Nodes are followed, in sync or not, or aren't read at all.
    pub is_connected: bool,
    /// The reason why its Nodes aren't in sync.
    pub nodes: Option<String>,
    /// The reason why its Refresh fails though the core kinds are in sync, which may be that of its Nodes.
    pub problem: Option<String>,
}

/// A workload cluster that is served, or was.
#[derive(Clone)]
pub struct WorkloadCluster {
    inner: Arc<Inner>,
}

struct Inner {
    /// Its Cluster, if a selector chose it.
    selected: Option<Selected>,
    index: Arc<Index>,
    nodes: WorkloadNodes,
    at_start: TemplatesAtStart,
    common: Arc<Common>,
    tasks: TaskTracker,
    ended: CancellationToken,
}

/// A Cluster that a selector chose.
struct Selected {
    cluster: ObjectKey,
    uid: Uid,
    joined_at: Instant,
    standing: Arc<Standing>,
    sink: Arc<ByCluster>,
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
    fn new(cluster: ObjectKey, uid: Uid, selection: &Selection, common: &Common) -> Option<Self> {
        // The names of Clusters are those of objects, so the API server has checked them.
        let named = ClusterRef::new(&*cluster.namespace, &*cluster.name).ok()?;
        let scope = Scope::Specs(vec![ScopeSpec::cluster(&*cluster.namespace, &*cluster.name)]);
        let index = common.templates.index(Rules { scope, ..common.rules.clone() });
        Some(Self { cluster, uid, index, source: selection.node_access.of(&named), standing: Arc::default() })
    }
}

impl WorkloadCluster {
    /// Starts to follow the only workload cluster, whose core kinds go to `index`.
    pub(super) fn only(index: Arc<Index>, source: WorkloadSource, common: &Arc<Common>) -> Self {
        let nodes = (source, Pace::default(), common.informers.clone());
        Self::start(None, index, nodes, common)
    }

    /// Starts to serve these Clusters, but those that aren't selected any more.
    pub(super) fn join_all(
        clusters: Vec<(ObjectKey, Uid)>,
        selection: &Selection,
        common: &Arc<Common>,
    ) -> Vec<(ObjectKey, Self)> {
        let Selection { sink, pace, .. } = selection;
        let joining = clusters.into_iter().filter_map(|(cluster, uid)| Joining::new(cluster, uid, selection, common));
        let mut joined = Vec::new();
        for one in joining {
            let Joining { cluster, uid, index, standing, .. } = &one;
            if sink.join(cluster, uid, index, standing) {
                joined.push(one);
            } else {
                common.templates.remove(index);
            }
        }
        common.core.fill(sink, joined.iter().map(|one| one.cluster.clone()));
        let start = |one| {
            let Joining { cluster, uid, index, source, standing } = one;
            let nodes = (source, pace.of_another(), of_nodes(&common.informers));
            let (name, joined_at, sink) = (cluster.clone(), Instant::now(), Arc::clone(sink));
            let selected = Selected { cluster, uid, joined_at, standing, sink };
            (name, Self::start(Some(selected), index, nodes, common))
        };
        joined.into_iter().map(start).collect()
    }

    fn start(
        selected: Option<Selected>,
        index: Arc<Index>,
        (source, pace, informers): (WorkloadSource, Pace, Settings),
        common: &Arc<Common>,
    ) -> Self {
        let nodes = WorkloadNodes::new(Arc::clone(&index), source, pace, informers, common.spawner.clone());
        let started = Self {
            inner: Arc::new(Inner {
                selected,
                index,
                nodes,
                at_start: TemplatesAtStart::default(),
                common: Arc::clone(common),
                tasks: TaskTracker::new(),
                ended: CancellationToken::new(),
            }),
        };
        let inner = Arc::clone(&started.inner);
        started.spawn(async move { inner.nodes.follow(inner.common.core.management()).await });
        let inner = Arc::clone(&started.inner);
        started.spawn(async move { inner.common.templates.supply(&inner.index).await });
        started
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

    /// Returns its Cluster, if a selector chose it. The only workload cluster may have groups of several.
    pub fn cluster(&self) -> Option<&ObjectKey> {
        self.inner.selected.as_ref().map(|selected| &selected.cluster)
    }

    /// Returns its Cluster; that of the only workload cluster is the one whose groups are the scope.
    pub fn cluster_in_scope(&self) -> Option<ObjectKey> {
        let of_scope = || match &self.inner.common.rules.scope {
            Scope::Specs(specs) => match &specs[..] {
                [ScopeSpec { namespace: Some(namespace), cluster_name: Some(name), .. }] => {
                    Some(ObjectKey::new(namespace.as_str(), name.as_str()))
                }
                _ => None,
            },
            Scope::All => None,
        };
        self.cluster().cloned().or_else(of_scope)
    }

    /// Returns the uid of its Cluster.
    pub fn uid(&self) -> Option<&Uid> {
        self.inner.selected.as_ref().map(|selected| &selected.uid)
    }

    /// Returns the index.
    pub fn index(&self) -> &Arc<Index> {
        &self.inner.index
    }

    /// Returns its management cluster.
    pub fn management(&self) -> &Management {
        self.inner.common.core.management()
    }

    /// Returns the reason why it isn't served any more; `None` while it is.
    pub fn left(&self) -> Option<Left> {
        self.inner.selected.as_ref()?.standing.left()
    }

    /// Returns the annotation keys in force.
    pub fn keys(&self) -> &Keys {
        &self.inner.common.rules.keys
    }

    /// Returns the Cluster of a MachineDeployment, MachineSet or MachinePool, whether it is this one, another one or
    /// one that isn't served. The only workload cluster knows none.
    pub fn cluster_of(&self, group: &GroupId) -> Option<ObjectKey> {
        self.inner.selected.as_ref()?.sink.cluster_of(group)
    }

    /// Returns the statuses of the informers that feed its index, with the cluster they watch.
    pub fn informers(&self) -> Vec<(&'static str, Status)> {
        let management = self.inner.common.core.management().factory().statuses();
        let management = management.into_iter().map(|status| ("management", status));
        let workload = self.inner.nodes.informers();
        management.chain(workload.into_iter().map(|status| ("workload", status))).collect()
    }

    /// Returns true unless its Nodes are left out on purpose.
    pub fn reads_nodes(&self) -> bool {
        !self.inner.nodes.are_off()
    }

    /// Returns the sync of its own parts. Its own problem is known once the core kinds are in sync.
    pub fn sync(&self, is_core_in_sync: bool) -> ClusterSync {
        let Inner { nodes, selected, .. } = &*self.inner;
        let is_connected = nodes.are_off() || nodes.health().is_ok();
        let problem = match (is_core_in_sync, selected) {
            (false, _) => None,
            (true, Some(_)) => self.own_problem(),
            (true, None) => self.check_fresh().err(),
        };
        ClusterSync { is_connected, nodes: self.problem_of_nodes(), problem }
    }

    /// Checks that every core kind is in sync, that its watch is recent enough, and that its own parts are in sync: that
    /// Refresh may succeed.
    ///
    /// # Errors
    /// What fails the check, with the reason.
    pub fn check_fresh(&self) -> Result<(), String> {
        let problems = self.inner.common.core.problems(|| self.required_nodes()).into_iter();
        let mut problems: Vec<_> =
            problems.filter_map(|(name, problem)| Some(format!("{name}: {}", problem?))).collect();
        // Templates are awaited once the core kinds are in sync.
        if problems.is_empty() {
            problems.extend(self.own_problem());
        }
        // It comes last: another Cluster of its name may have been filled meanwhile.
        self.may_write()?;
        if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
    }

    /// Checks that it is served now.
    ///
    /// # Errors
    /// The reason why it isn't any more.
    pub fn may_write(&self) -> Result<(), String> {
        match (&self.inner.selected, self.left()) {
            (Some(Selected { cluster, .. }), Some(why)) => {
                Err(format!("Cluster {cluster} isn't served any more: {why}"))
            }
            (Some(_) | None, _) => Ok(()),
        }
    }

    /// Returns the checks of its Refresh.
    pub fn checks(&self) -> Vec<Check> {
        let mut checks = self.inner.common.core.checks(|| self.required_nodes());
        if self.inner.selected.is_none() {
            return self.with_templates(checks);
        }
        if let Some(why) = self.left() {
            checks.push(Check::pending(CLUSTER, format!("it isn't served any more: {why}")));
        } else if checks.iter().all(Check::is_ready)
            && let Some(why) = self.own_problem()
        {
            checks.push(Check::pending(CLUSTER, why));
        }
        checks
    }

    /// Adds the checks of namespaces and templates to those of the only workload cluster.
    fn with_templates(&self, mut checks: Vec<Check>) -> Vec<Check> {
        let Common { core, kinds, .. } = &*self.inner.common;
        let awaited = checks.iter().all(Check::is_ready) && self.awaits_templates();
        checks.extend(core.unread_namespaces());
        let kinds = kinds.lock();
        let (followed, others): (Vec<_>, Vec<_>) = kinds.iter().partition(|(_, known)| known.is_followed);
        checks.extend(followed.into_iter().map(|(kind, known)| {
            let prefix = if self.inner.index.is_bootstrap(kind) { "remembered" } else { "templates" };
            let name = format!("{prefix}/{kind}");
            match &known.state {
                KindState::Synced => Check::ready(name),
                KindState::Pending if awaited => Check::pending(name, FIRST_TEMPLATES),
                KindState::Pending => Check::informational(name, FIRST_TEMPLATES),
                KindState::Unreadable(why) => Check::informational(name, &**why),
            }
        }));
        checks.extend(not_followed(&others));
        checks.extend(self.inner.common.templates.memory().into_iter().flat_map(|memory| remembered::checks(memory)));
        // A kind that a group has just named has no state of its own yet.
        if awaited && checks.iter().all(Check::is_ready) {
            checks.push(Check::pending("templates", FIRST_TEMPLATES));
        }
        checks
    }

    /// Returns the certificates that its autoscaler may have; `None` if any will do.
    pub fn client_not_before(&self) -> Option<NotBefore> {
        self.inner.selected.as_ref()?.standing.client_not_before()
    }

    /// Returns the health of its Nodes if its Refresh always waits for them: the only workload cluster's does.
    fn required_nodes(&self) -> Vec<NamedHealth> {
        let Inner { nodes, selected, .. } = &*self.inner;
        if selected.is_some() || nodes.are_off() { Vec::new() } else { vec![(NODES, nodes.health())] }
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

    /// Returns the reason why its own index isn't in sync, given that the core kinds are, and Nodes where they are
    /// required.
    fn own_problem(&self) -> Option<String> {
        let Inner { selected, index, common, .. } = &*self.inner;
        if let Some(Selected { cluster, joined_at, sink, .. }) = selected {
            if sink.is_namespace_forbidden(cluster) {
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
        }
        self.awaits_templates().then(|| format!("templates: {FIRST_TEMPLATES}"))
    }

    /// Returns true if the start still waits for templates, given that everything else is in sync.
    fn awaits_templates(&self) -> bool {
        self.inner.at_start.advance(&self.inner.index)
    }

    /// Stops its tasks, and disconnects from its workload cluster. The index keeps its last state.
    pub(super) async fn end(&self) {
        let inner = &self.inner;
        inner.ended.cancel();
        inner.tasks.close();
        inner.tasks.wait().await;
        inner.common.templates.remove(&inner.index);
        inner.nodes.shutdown().await;
    }
}

impl MayWrite for WorkloadCluster {
    fn may_write(&self) -> Result<(), String> {
        Self::may_write(self)
    }
}

impl fmt::Debug for WorkloadCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkloadCluster").field("cluster", &self.cluster()).finish_non_exhaustive()
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
