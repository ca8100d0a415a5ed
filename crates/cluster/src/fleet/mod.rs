//! The Clusters of a management cluster that a label selector matches, each with an index and Nodes of its own, fed by
//! one watch per kind. Clusters join and leave while the program runs. One that has left keeps its last state for a
//! while, since its autoscaler may be in the middle of a loop.

mod leaving;
mod member;
mod sink;
mod standing;
mod templates;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use capi::ObjectKey;
use nodegroup::{LabelSelector, PriceList, Rules};
use parking_lot::Mutex;
use shared_informer::{Namespaces, Settings, Spawner, Status};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{leaving::Leaving, member::Common, sink::FleetSink, templates::FleetTemplates};
pub use self::{
    member::{Member, MemberSync},
    standing::Left,
};
use super::{
    core_kinds::CoreKinds,
    management::Management,
    templates::{KindStates, Templates},
};
use connect::{NodeAccess, Pace};
use server::{Check, Checks};

/// The name of the check of all Clusters together.
const CLUSTERS: &str = "fleet/clusters";
/// The maximum number of Clusters that it names.
const NAMED: usize = 10;
/// The pause between looks at Clusters that are starting.
const START_PAUSE: Duration = Duration::from_secs(1);

/// The options for reading a fleet.
#[derive(Clone, Debug)]
pub struct FleetOptions {
    /// The rules of all groups. The scope isn't used: each Cluster's scope is itself.
    pub rules: Rules,
    /// The selector of Clusters by their labels.
    pub selector: LabelSelector,
    /// The namespaces of the Clusters; `None` stands for all.
    pub namespaces: Option<BTreeSet<String>>,
    /// The credentials by which the Nodes of each workload cluster are read.
    pub nodes: NodeAccess,
    /// The time for which a watch may be broken before Refresh fails.
    pub max_staleness: Duration,
    /// The settings of the informers.
    pub informers: Settings,
}

/// A receiver of the Clusters that join and leave. Its calls must be quick.
pub trait Tenants: Send + Sync + 'static {
    /// A Cluster is served from now on. It replaces one of the same name that has left.
    fn joined(&self, member: &Member);
    /// A Cluster has left: it may be read, and nothing may be written.
    fn left(&self, member: &Member);
    /// A Cluster that has left isn't even read any more.
    fn dropped(&self, member: &Member);
}

/// The Clusters of a management cluster that are served.
#[derive(Clone)]
pub struct Fleet {
    inner: Arc<Inner>,
}

struct Inner {
    common: Common,
    kinds: KindStates,
    members: Mutex<BTreeMap<ObjectKey, Member>>,
    /// True once all Clusters are known, so that calls need no look at the informer.
    knows_clusters: AtomicBool,
    tasks: TaskTracker,
    ended: CancellationToken,
}

impl Fleet {
    /// Starts to follow the Clusters in the background, and returns at once.
    #[must_use]
    pub fn start(
        management: Management,
        options: FleetOptions,
        tenants: Arc<dyn Tenants>,
        runtime: impl Into<Spawner>,
    ) -> Self {
        let FleetOptions { rules, selector, namespaces, nodes, max_staleness, informers } = options;
        let namespaces = namespaces.map_or(Namespaces::All, Namespaces::Only);
        let sink = Arc::new(FleetSink::new(selector, Arc::clone(&rules.prices)));
        let core = Arc::new(CoreKinds::new(management, Arc::clone(&sink), namespaces, max_staleness));
        let (templates, rules, spawner) = (Arc::new(FleetTemplates::default()), Arc::new(rules), runtime.into());
        let fleet = Self {
            inner: Arc::new(Inner {
                common: Common {
                    core,
                    sink,
                    templates,
                    rules,
                    node_access: nodes,
                    pace: Pace::of_many(),
                    informers,
                    spawner,
                },
                kinds: KindStates::default(),
                members: Mutex::default(),
                knows_clusters: AtomicBool::new(false),
                tasks: TaskTracker::new(),
                ended: CancellationToken::new(),
            }),
        };
        let inner = &fleet.inner;
        let Common { core, templates, spawner, .. } = &inner.common;
        let templates = Arc::new(Templates {
            management: core.management().clone(),
            sink: Arc::clone(templates),
            namespaces: core.namespaces().clone(),
            states: Arc::clone(&inner.kinds),
            left_out: Arc::clone(core.left_out()),
            spawner: spawner.clone(),
        });
        fleet.spawn(templates.follow(inner.tasks.clone(), inner.ended.clone()));
        let task = Arc::clone(core);
        fleet.spawn(async move { task.follow().await });
        if core.has_several_namespaces() {
            let task = Arc::clone(core);
            fleet.spawn(async move { task.follow_namespaces().await });
        }
        let task = fleet.clone();
        fleet.spawn(async move { task.follow_members(&*tenants).await });
        fleet
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let ended = self.inner.ended.clone();
        self.inner.common.spawner.spawn_tracked(&self.inner.tasks, async move {
            ended.run_until_cancelled(task).await;
        });
    }

    /// Lets Clusters join and leave. Never returns; drop the future to stop.
    async fn follow_members(&self, tenants: &dyn Tenants) {
        let Common { sink, .. } = &self.inner.common;
        let mut changed = sink.changed();
        let mut leaving = Leaving::default();
        loop {
            changed.borrow_and_update();
            let now = Instant::now();
            leaving.sum_up(now);
            for member in self.take_left() {
                let why = member.left().map(|why| why.to_string()).unwrap_or_default();
                let cluster = member.cluster();
                leaving.log(cluster, now, || {
                    tracing::info!(%cluster, "a Cluster isn't served any more: {why}");
                });
                tenants.left(&member);
                member.end().await;
                leaving.add(member, now);
            }
            for member in leaving.take_over(now) {
                sink.drop_left(member.cluster());
                tenants.dropped(&member);
            }
            let mut to_join = sink.to_join();
            // The one before may have left since, which wakes this task again.
            to_join.retain(|(cluster, _)| !self.inner.members.lock().contains_key(cluster));
            leaving.hold_back(&mut to_join, now);
            if !to_join.is_empty() {
                let joined = Member::join_all(to_join, &self.inner.common);
                let fleet = self.clone();
                let starting = joined.clone();
                self.spawn(async move { fleet.finish_starts(starting).await });
                for member in joined {
                    let cluster = member.cluster();
                    leaving.log(cluster, now, || tracing::info!(%cluster, "a Cluster is served"));
                    tenants.joined(&member);
                    self.inner.members.lock().insert(member.cluster().clone(), member);
                }
                let members = self.inner.members.lock();
                leaving.forget(|cluster| members.contains_key(cluster));
            }
            let next = leaving.next(now);
            tokio::select! {
                _ = changed.changed() => {}
                () = async { if let Some(next) = next { sleep_until(next).await } }, if next.is_some() => {}
            }
        }
    }

    /// Ends the start of Clusters that have joined: nobody may ask for what they await.
    async fn finish_starts(&self, mut starting: Vec<Member>) {
        while !starting.is_empty() {
            sleep(START_PAUSE).await;
            let is_in_sync = self.core_problem().is_none();
            starting.retain(|member| member.left().is_none() && (!is_in_sync || member.is_starting()));
        }
    }

    /// Takes the Clusters that have left.
    fn take_left(&self) -> Vec<Member> {
        let mut members = self.inner.members.lock();
        let left: Vec<_> = members.values().filter(|member| member.left().is_some()).cloned().collect();
        for member in &left {
            members.remove(member.cluster());
        }
        left
    }

    /// Returns the number of walks through the objects of a namespace for new Clusters.
    #[cfg(test)]
    pub(super) fn walks(&self) -> usize {
        self.inner.common.core.walks.load(Ordering::Relaxed)
    }

    /// Returns true once all Clusters are known. Until then a Cluster that isn't selected may be.
    #[must_use]
    pub fn knows_clusters(&self) -> bool {
        let are_known = &self.inner.knows_clusters;
        if are_known.load(Ordering::Relaxed) {
            return true;
        }
        let has_clusters = self.inner.common.core.has_clusters();
        are_known.store(has_clusters, Ordering::Relaxed);
        has_clusters
    }

    /// Returns true if the selector matches a Cluster.
    #[must_use]
    pub fn is_selected(&self, cluster: &ObjectKey) -> bool {
        self.inner.common.sink.is_selected(cluster)
    }

    /// Applies the operator's prices to all Clusters.
    pub fn set_prices(&self, prices: &Arc<PriceList>) {
        self.inner.common.sink.set_prices(prices);
    }

    /// Returns the reason why the kinds that all Clusters need aren't in sync.
    #[must_use]
    pub fn core_problem(&self) -> Option<String> {
        let problems = self.inner.common.core.problems(Vec::new).into_iter();
        let problems: Vec<_> = problems.filter_map(|(name, problem)| Some(format!("{name}: {}", problem?))).collect();
        (!problems.is_empty()).then(|| problems.join("; "))
    }

    /// Returns the statuses of the management cluster's informers.
    #[must_use]
    pub fn informers(&self) -> Vec<(&'static str, Status)> {
        let statuses = self.inner.common.core.management().factory().statuses();
        statuses.into_iter().map(|status| ("management", status)).collect()
    }

    /// Stops all tasks, and those of all Clusters. The shared informers of the management cluster continue.
    pub async fn shutdown(&self) {
        let inner = &self.inner;
        inner.ended.cancel();
        inner.tasks.close();
        inner.tasks.wait().await;
        let members = std::mem::take(&mut *inner.members.lock());
        for member in members.values() {
            member.end().await;
        }
        inner.common.core.end();
    }
}

/// A workload cluster that can't be read isn't waited for: it concerns one autoscaler, and the replicas answer all.
impl Checks for Fleet {
    fn checks(&self) -> Vec<Check> {
        let core = &self.inner.common.core;
        let mut checks = core.checks(Vec::new);
        checks.extend(core.unread_namespaces());
        // Without the core kinds nothing is known of the Clusters.
        let is_in_sync = checks.iter().all(Check::is_ready);
        let members: Vec<_> = self.inner.members.lock().values().filter(|_| is_in_sync).cloned().collect();
        let mut behind = members.iter().filter_map(|member| Some((member.cluster(), member.concern()?)));
        let named: Vec<_> = behind.by_ref().take(NAMED).map(|(cluster, why)| format!("{cluster}: {why}")).collect();
        let named = named.join("; ");
        checks.push(match (named.is_empty(), behind.count()) {
            (true, _) => Check::ready(CLUSTERS),
            (false, 0) => Check::informational(CLUSTERS, named),
            (false, more) => Check::informational(CLUSTERS, format!("{named}; and {more} more")),
        });
        checks
    }

    /// Looks at no Cluster: none of them is waited for.
    fn pending(&self) -> Vec<Check> {
        let problems = self.inner.common.core.problems(Vec::new).into_iter();
        problems.filter_map(|(name, problem)| Some(Check::pending(name, problem?))).collect()
    }
}
