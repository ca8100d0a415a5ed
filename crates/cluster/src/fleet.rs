//! The workload clusters that are served: one, or those of all Clusters of a management cluster that a label selector
//! matches, each with an index and Nodes of its own, fed by one watch per kind. Selected Clusters join and leave while
//! the program runs. One that has left keeps its last state for a while, since its autoscaler may be in the middle of a
//! loop.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use connect::{Clients, NodeAccess, Pace, WorkloadSource};
use index::{LONGEST_LOOP, Memory};
use parking_lot::Mutex;
use rules::{
    LabelSelector, PriceList, Rules,
    capi::{NotBefore, ObjectKey, Uid},
    log_limit::LogLimit,
};
use service::listen::{Check, CheckState, Checks};
use shared_informer::{Namespaces, Settings, SharedLimit, Spawner, Status};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    core_kinds::{API_SERVER, CoreKinds},
    dispatch::{ByCluster, Dispatch},
    management::{Management, ManagementOptions},
    remembered,
    template_store::TemplateStore,
    templates::{KindStates, Templates},
    workload_cluster::{Common, Selection, WorkloadCluster},
};

/// The name of the check of all Clusters together.
const CLUSTERS: &str = "fleet/clusters";
/// The maximum number of Clusters that it names.
const NAMED: usize = 10;
/// The pause between looks at Clusters that are starting.
const START_PAUSE: Duration = Duration::from_secs(1);

/// The limit of the memory of all objects of one workload cluster, in bytes: 100,000 Machines and Nodes need at most
/// 128 MiB. With what else the process needs it is less than the chart's limit.
const MAX_BYTES: usize = 160 << 20;

/// The options for reading workload clusters.
#[derive(Clone, Debug)]
pub struct FleetOptions {
    /// The rules of all groups. Clusters that a selector matches don't use the scope: the scope of each is itself.
    pub rules: Rules,
    /// The version of Cluster API; `None` is the one that the API server prefers.
    pub capi_version: Option<String>,
    /// The time for which a watch may be broken before Refresh fails.
    pub max_staleness: Duration,
    /// The settings of the informers.
    pub informers: Settings,
    /// The ConfigMaps in which Nodes are remembered; none remembers none. One of several is for its own namespace.
    pub remember: Vec<ObjectKey>,
}

/// The choice of workload clusters.
#[derive(Clone, Debug)]
pub enum Serve {
    /// One, with all groups in the scope of the rules.
    One(WorkloadSource),
    /// That of each Cluster that a selector matches.
    Selected {
        /// The selector, by the labels of Clusters.
        selector: LabelSelector,
        /// The namespaces of the Clusters; `None` stands for all.
        namespaces: Option<BTreeSet<String>>,
        /// The credentials by which the Nodes of each workload cluster are read.
        nodes: NodeAccess,
    },
}

impl FleetOptions {
    /// Returns the options of one workload cluster, with the preferred version of Cluster API.
    pub fn of_one(rules: Rules, max_staleness: Duration) -> Self {
        let shared_limit = Some(SharedLimit::new("all objects", MAX_BYTES));
        let informers = Settings { shared_limit, ..Settings::default() };
        Self { rules, capi_version: None, max_staleness, informers, remember: Vec::new() }
    }

    /// Returns the options of many workload clusters, with the preferred version of Cluster API.
    pub fn of_many(rules: Rules, max_staleness: Duration) -> Self {
        let informers = Settings::of_many_tenants();
        Self { rules, capi_version: None, max_staleness, informers, remember: Vec::new() }
    }

    fn memory(&self) -> Option<Arc<Memory>> {
        (!self.remember.is_empty()).then(|| Arc::new(Memory::new(&self.remember)))
    }

    /// Returns the options of the management cluster.
    pub fn management(&self) -> ManagementOptions {
        ManagementOptions {
            group: self.rules.keys.group.clone(),
            version: self.capi_version.clone(),
            informers: self.informers.clone(),
        }
    }
}

/// A receiver of the workload clusters that join and leave. Its calls must be quick. The only one joins at the start, and
/// never leaves.
pub trait Tenants: Send + Sync + 'static {
    /// A workload cluster is served from now on. It replaces one of the same Cluster's name that has left.
    fn joined(&self, cluster: &WorkloadCluster);
    /// It has left: it may be read, and nothing may be written.
    fn left(&self, cluster: &WorkloadCluster);
    /// One that has left isn't even read any more.
    fn dropped(&self, cluster: &WorkloadCluster);
}

/// The workload clusters that are served.
#[derive(Clone)]
pub struct Fleet {
    inner: Arc<Inner>,
}

struct Inner {
    common: Arc<Common>,
    /// The workload clusters by their Clusters; that of the only one isn't known.
    clusters: Mutex<BTreeMap<Option<ObjectKey>, WorkloadCluster>>,
    /// True once all Clusters are known, so that calls need no look at the informer.
    knows_clusters: AtomicBool,
    tasks: TaskTracker,
    ended: CancellationToken,
}

impl Fleet {
    /// Starts to follow the workload clusters in the background, and returns at once.
    pub fn start(
        management: Management,
        serve: Serve,
        options: FleetOptions,
        tenants: Arc<dyn Tenants>,
        runtime: impl Into<Spawner>,
    ) -> Self {
        match serve {
            Serve::One(source) => {
                let (fleet, only) = Self::of_one(management, source, options, runtime.into());
                tenants.joined(&only);
                fleet
            }
            Serve::Selected { selector, namespaces, nodes } => {
                let sink = Arc::new(ByCluster::new(selector, Arc::clone(&options.rules.prices)));
                let dispatch = Dispatch::ByCluster(Arc::clone(&sink));
                let selection = Selection { sink, node_access: nodes, pace: Pace::of_many() };
                let (templates, runtime) = (Arc::new(TemplateStore::new(options.memory())), runtime.into());
                let fleet = Self::follow(management, (dispatch, namespaces, templates), options, runtime);
                let task = fleet.clone();
                fleet.spawn(async move { task.follow_clusters(&selection, &*tenants).await });
                fleet
            }
        }
    }

    /// Starts to follow one workload cluster that no autoscaler asks for, and its management cluster.
    pub fn start_one(
        clients: Clients,
        source: WorkloadSource,
        options: FleetOptions,
        tasks: &Spawner,
    ) -> (Self, WorkloadCluster) {
        let management = Management::start(clients, options.management(), tasks);
        Self::of_one(management, source, options, tasks.clone())
    }

    fn of_one(
        management: Management,
        source: WorkloadSource,
        options: FleetOptions,
        spawner: Spawner,
    ) -> (Self, WorkloadCluster) {
        let templates = Arc::new(TemplateStore::new(options.memory()));
        let index = templates.index(options.rules.clone());
        let (dispatch, namespaces) = (Dispatch::One(Arc::clone(&index)), options.rules.scope.namespaces());
        let fleet = Self::follow(management, (dispatch, namespaces, templates), options, spawner);
        let only = WorkloadCluster::only(index, source, &fleet.inner.common);
        fleet.inner.clusters.lock().insert(None, only.clone());
        (fleet, only)
    }

    fn follow(
        management: Management,
        (dispatch, namespaces, templates): (Dispatch, Option<BTreeSet<String>>, Arc<TemplateStore>),
        options: FleetOptions,
        spawner: Spawner,
    ) -> Self {
        let FleetOptions { rules, max_staleness, informers, .. } = options;
        let namespaces = namespaces.map_or(Namespaces::All, Namespaces::Only);
        let core = CoreKinds::new(management, Arc::new(dispatch), namespaces, max_staleness);
        let kinds = KindStates::default();
        let fleet = Self {
            inner: Arc::new(Inner {
                common: Arc::new(Common { core, templates, kinds, rules, informers, spawner }),
                clusters: Mutex::default(),
                knows_clusters: AtomicBool::new(false),
                tasks: TaskTracker::new(),
                ended: CancellationToken::new(),
            }),
        };
        let inner = &fleet.inner;
        let Common { core, templates, kinds, spawner, .. } = &*inner.common;
        let templates = Arc::new(Templates {
            management: core.management().clone(),
            store: Arc::clone(templates),
            namespaces: core.namespaces().clone(),
            states: Arc::clone(kinds),
            left_out: Arc::clone(core.left_out()),
            spawner: spawner.clone(),
        });
        fleet.spawn(templates.follow(inner.tasks.clone(), inner.ended.clone()));
        if let Some(memory) = inner.common.templates.memory() {
            for config_map in memory.config_maps() {
                let factory = core.management().factory().clone();
                fleet.spawn(remembered::follow(Arc::clone(memory), config_map, factory));
            }
            let (task, memory) = (Arc::clone(&inner.common), Arc::clone(memory));
            fleet.spawn(async move { task.templates.follow(&memory).await });
        }
        let task = Arc::clone(&inner.common);
        fleet.spawn(async move { task.core.follow().await });
        if core.has_several_namespaces() {
            let task = Arc::clone(&inner.common);
            fleet.spawn(async move { task.core.follow_namespaces().await });
        }
        fleet
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let ended = self.inner.ended.clone();
        self.inner.common.spawner.spawn_tracked(&self.inner.tasks, async move {
            ended.run_until_cancelled(task).await;
        });
    }

    /// Lets Clusters join and leave. Never returns; drop the future to stop.
    async fn follow_clusters(&self, selection: &Selection, tenants: &dyn Tenants) {
        let sink = &selection.sink;
        let mut changed = sink.changed();
        let mut leaving = Leaving::default();
        loop {
            changed.borrow_and_update();
            let now = Instant::now();
            leaving.sum_up(now);
            for (name, cluster) in self.take_left() {
                let why = cluster.left().map(|why| why.to_string()).unwrap_or_default();
                leaving.log(&name, now, || {
                    tracing::info!(cluster = %name, "a Cluster isn't served any more: {why}");
                });
                tenants.left(&cluster);
                cluster.end().await;
                leaving.add(name, cluster, now);
            }
            for (name, cluster) in leaving.take_over(now) {
                sink.drop_left(&name);
                tenants.dropped(&cluster);
            }
            let mut to_join = sink.to_join();
            // The one before may have left since, which wakes this task again.
            to_join.retain(|(name, _)| !self.inner.clusters.lock().contains_key(&Some(name.clone())));
            leaving.hold_back(&mut to_join, now);
            if !to_join.is_empty() {
                let joined = WorkloadCluster::join_all(to_join, selection, &self.inner.common);
                let fleet = self.clone();
                let starting = joined.iter().map(|(_, cluster)| cluster.clone()).collect();
                self.spawn(async move { fleet.finish_starts(starting).await });
                for (name, cluster) in joined {
                    leaving.log(&name, now, || tracing::info!(cluster = %name, "a Cluster is served"));
                    tenants.joined(&cluster);
                    self.inner.clusters.lock().insert(Some(name), cluster);
                }
                let clusters = self.inner.clusters.lock();
                leaving.forget(|name| clusters.contains_key(&Some(name.clone())));
            }
            let next = leaving.next(now);
            tokio::select! {
                _ = changed.changed() => {}
                () = async { if let Some(next) = next { sleep_until(next).await } }, if next.is_some() => {}
            }
        }
    }

    /// Ends the start of Clusters that have joined: nobody may ask for what they await.
    async fn finish_starts(&self, mut starting: Vec<WorkloadCluster>) {
        while !starting.is_empty() {
            sleep(START_PAUSE).await;
            let is_in_sync = self.core_problem().is_none();
            starting.retain(|cluster| cluster.left().is_none() && (!is_in_sync || cluster.is_starting()));
        }
    }

    fn take_left(&self) -> Vec<(ObjectKey, WorkloadCluster)> {
        let mut clusters = self.inner.clusters.lock();
        let mut left = Vec::new();
        clusters.retain(|name, cluster| match name {
            Some(name) if cluster.left().is_some() => {
                left.push((name.clone(), cluster.clone()));
                false
            }
            Some(_) | None => true,
        });
        left
    }

    /// Returns the number of walks through the objects of a namespace for new Clusters.
    #[cfg(test)]
    pub(super) fn walks(&self) -> usize {
        self.inner.common.core.walks.load(Ordering::Relaxed)
    }

    /// Returns true once all Clusters are known. Until then a Cluster that isn't selected may be.
    pub fn knows_clusters(&self) -> bool {
        let are_known = &self.inner.knows_clusters;
        if are_known.load(Ordering::Relaxed) {
            return true;
        }
        let has_clusters = self.inner.common.core.has_clusters();
        are_known.store(has_clusters, Ordering::Relaxed);
        has_clusters
    }

    /// Returns true if there is one workload cluster, and no choice by a selector.
    pub fn is_one(&self) -> bool {
        matches!(self.inner.common.core.sink(), Dispatch::One(_))
    }

    /// Returns true if the selector matches a Cluster.
    pub fn is_selected(&self, cluster: &ObjectKey) -> bool {
        match self.inner.common.core.sink() {
            Dispatch::One(_) => false,
            Dispatch::ByCluster(sink) => sink.is_selected(cluster),
        }
    }

    /// Returns the workload clusters that are served, by their Clusters.
    pub fn clusters(&self) -> Vec<WorkloadCluster> {
        self.inner.clusters.lock().values().cloned().collect()
    }

    /// Returns the only workload cluster, if there is one.
    pub fn only(&self) -> Option<WorkloadCluster> {
        self.inner.clusters.lock().get(&None).cloned()
    }

    /// Returns what is remembered of Nodes, if anything is.
    pub fn memory(&self) -> Option<&Arc<Memory>> {
        self.inner.common.templates.memory()
    }

    /// Returns the templates of all groups, which need what is remembered of them.
    pub fn used_templates(&self) -> BTreeSet<rules::remembered::Templates> {
        self.inner.common.templates.used_templates()
    }

    /// Applies the operator's prices to all workload clusters.
    pub fn set_prices(&self, prices: &Arc<PriceList>) {
        self.inner.common.core.sink().set_prices(prices);
    }

    /// Returns the reason why the kinds that all Clusters need aren't in sync.
    pub fn core_problem(&self) -> Option<String> {
        let problems = self.inner.common.core.problems(Vec::new).into_iter();
        let problems: Vec<_> = problems.filter_map(|(name, problem)| Some(format!("{name}: {}", problem?))).collect();
        (!problems.is_empty()).then(|| problems.join("; "))
    }

    /// Returns the statuses of the informers with the cluster they watch: those of the management cluster, and of the
    /// only workload cluster.
    pub fn informers(&self) -> Vec<(&'static str, Status)> {
        self.only().map_or_else(
            || {
                let statuses = self.inner.common.core.management().factory().statuses();
                statuses.into_iter().map(|status| ("management", status)).collect()
            },
            |only| only.informers(),
        )
    }

    /// Stops all tasks, those of all workload clusters and those of the management cluster.
    pub async fn shutdown(&self) {
        let inner = &self.inner;
        inner.ended.cancel();
        inner.tasks.close();
        inner.tasks.wait().await;
        for cluster in self.clusters() {
            cluster.end().await;
        }
        inner.common.core.end();
        inner.common.core.management().shutdown().await;
    }
}

/// A workload cluster that can't be read isn't waited for, unless it is the only one: it concerns one autoscaler, and the
/// replicas answer all.
impl Checks for Fleet {
    fn checks(&self) -> Vec<Check> {
        if let Some(only) = self.only() {
            return only.checks();
        }
        let core = &self.inner.common.core;
        let mut checks = core.checks(Vec::new);
        checks.extend(core.unread_namespaces());
        checks.extend(self.memory().into_iter().flat_map(|memory| remembered::checks(memory)));
        // Without the core kinds nothing is known of the Clusters.
        let is_in_sync = checks.iter().all(Check::is_ready);
        let clusters = if is_in_sync { self.inner.clusters.lock().clone() } else { BTreeMap::new() };
        let mut behind = clusters.iter().filter_map(|(name, cluster)| Some((name.as_ref()?, cluster.concern()?)));
        let named: Vec<_> = behind.by_ref().take(NAMED).map(|(name, why)| format!("{name}: {why}")).collect();
        let named = named.join("; ");
        checks.push(match (named.is_empty(), behind.count()) {
            (true, _) => Check::ready(CLUSTERS),
            (false, 0) => Check::informational(CLUSTERS, named),
            (false, more) => Check::informational(CLUSTERS, format!("{named}; and {more} more")),
        });
        checks
    }

    /// Looks at no Cluster that a selector matches: none of them is waited for.
    fn pending(&self) -> Vec<Check> {
        if let Some(only) = self.only() {
            return only.checks().into_iter().filter(|check| !check.is_ready()).collect();
        }
        let problems = self.inner.common.core.problems(Vec::new).into_iter();
        problems.filter_map(|(name, problem)| Some(Check::pending(name, problem?))).collect()
    }

    fn outage(&self) -> Option<Check> {
        let is_outage =
            |check: &Check| check.name == API_SERVER && check.state == CheckState::Ready && check.reason.is_some();
        self.inner.common.core.checks(Vec::new).into_iter().find(is_outage)
    }
}

// The Clusters that have left. Each is read for the longest loop. One that opted out joins again after a pause: a join visits
// all objects of its namespace, and its owner may change the label at any rate.

/// The time after an opt-out for which a Cluster doesn't join again.
const PAUSE: Duration = Duration::from_secs(10);
/// The number of lines about one Cluster in a minute.
const LINES: usize = 4;

/// A Cluster that has left, and when.
type LeftAt = (Instant, ObjectKey, WorkloadCluster);

/// The Clusters that have left, the last one last, and the lines about those that come and go.
struct Leaving {
    left: VecDeque<LeftAt>,
    lines: LogLimit<ObjectKey>,
}

impl Default for Leaving {
    fn default() -> Self {
        Self { left: VecDeque::new(), lines: LogLimit::new(LINES) }
    }
}

impl Leaving {
    fn add(&mut self, name: ObjectKey, cluster: WorkloadCluster, now: Instant) {
        self.left.push_back((now, name, cluster));
    }

    fn forget(&mut self, is_served: impl Fn(&ObjectKey) -> bool) {
        self.left.retain(|(_, name, _)| !is_served(name));
    }

    /// Takes the Clusters that aren't read any more.
    fn take_over(&mut self, now: Instant) -> Vec<(ObjectKey, WorkloadCluster)> {
        let over = self.left.iter().take_while(|(at, ..)| *at + LONGEST_LOOP <= now).count();
        self.left.drain(..over).map(|(_, name, cluster)| (name, cluster)).collect()
    }

    fn hold_back(&self, to_join: &mut Vec<(ObjectKey, Uid)>, now: Instant) {
        let pausing: BTreeSet<_> = self.pausing(now).map(|(_, name, _)| name).collect();
        to_join.retain(|(cluster, _)| !pausing.contains(cluster));
    }

    /// Returns the Clusters that don't join again yet, the last one first.
    fn pausing(&self, now: Instant) -> impl Iterator<Item = &LeftAt> {
        let lately = self.left.iter().rev().take_while(move |(at, ..)| *at + PAUSE > now);
        lately.filter(|(.., cluster)| cluster.left() == Some(Left::OptedOut))
    }

    /// Returns the time of the next change that comes by itself.
    fn next(&self, now: Instant) -> Option<Instant> {
        let over = self.left.front().map(|(at, ..)| *at + LONGEST_LOOP);
        let joins = self.pausing(now).last().map(|(at, ..)| *at + PAUSE);
        [over, joins, self.lines.due().map(Instant::from_std)].into_iter().flatten().min()
    }

    /// Logs a change of a Cluster, unless there were many.
    fn log(&mut self, cluster: &ObjectKey, now: Instant, line: impl FnOnce()) {
        if let Some(more) = self.lines.allows(cluster.clone(), 1, now.into_std()) {
            log_more(cluster, more);
            line();
        }
    }

    fn sum_up(&mut self, now: Instant) {
        for (cluster, more) in self.lines.over(now.into_std()) {
            log_more(&cluster, more);
        }
    }
}

fn log_more(cluster: &ObjectKey, more: u64) {
    if more > 0 {
        tracing::info!(%cluster, more, "a Cluster has joined and left more often than is logged");
    }
}

// The standing of a Cluster in a fleet: served, or left for a reason, for good; and the certificates that its
// autoscaler may have.

/// The reason why a Cluster isn't served any more.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Left {
    /// Its labels don't match the selector any more.
    OptedOut,
    /// It was deleted.
    Deleted,
    /// Another Cluster has its name.
    Replaced,
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OptedOut => "its labels don't match --fleet-selector any more",
            Self::Deleted => "it was deleted",
            Self::Replaced => "another Cluster of its name was created",
        })
    }
}

/// The standing of a Cluster. One that has left never comes back: it is served anew, from an index of its own.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    left: OnceLock<Left>,
    client_not_before: Mutex<Option<NotBefore>>,
}

impl Standing {
    /// Notes that the Cluster has left; the first reason counts.
    pub(crate) fn leave(&self, why: Left) {
        // It has left already.
        let _ = self.left.set(why);
    }

    /// Returns the reason why it isn't served any more; `None` while it is.
    pub(crate) fn left(&self) -> Option<Left> {
        self.left.get().copied()
    }

    pub(crate) fn set_client_not_before(&self, not_before: Option<NotBefore>) {
        *self.client_not_before.lock() = not_before;
    }

    /// Returns the choice of certificates; `None` if any will do.
    pub(crate) fn client_not_before(&self) -> Option<NotBefore> {
        *self.client_not_before.lock()
    }
}

#[cfg(test)]
mod limits_tests {
    use super::*;
    use rules::Scope;

    /// Lists and their texts, threads and buffers take less than half as much again, as performance.md measures.
    #[test]
    fn all_kinds_of_one_cluster_share_a_limit_well_below_the_chart_s() {
        let values = include_str!("../../../charts/capi-autoscaler-provider/values.yaml");
        let limits = values.lines().skip_while(|line| *line != "  limits:");
        let of_chart = limits.skip(1).find_map(|line| line.trim().strip_prefix("memory: ")?.strip_suffix("Mi"));
        let of_chart = of_chart.unwrap().parse::<usize>().unwrap() << 20;
        let shared = FleetOptions::of_one(Rules::new(Scope::All), Duration::ZERO).informers.shared_limit.unwrap();
        assert!(shared.max_bytes() * 3 / 2 < of_chart, "{} of {of_chart}", shared.max_bytes());
    }

    #[test]
    fn a_fleet_has_a_limit_for_each_namespace() {
        let options = FleetOptions::of_many(Rules::new(Scope::All), Duration::ZERO);
        let Settings { max_objects, max_bytes, max_of_namespace, .. } = options.informers;
        let (of_one, alone) = (max_of_namespace.unwrap(), Settings::default());
        assert_eq!((of_one.objects, of_one.bytes), (alone.max_objects, alone.max_bytes));
        assert!(max_objects > 5 * of_one.objects && max_bytes > 5 * of_one.bytes, "one takes nothing from all");
        assert_eq!(alone.max_of_namespace, None);
    }
}
