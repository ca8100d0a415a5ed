//! A workload cluster: its index, the management cluster's kinds that feed it, its own Nodes, and the sync of all of
//! them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use capi::{Cluster, Machine, Node, ObjectKey, ScalableKind, ScalableResource};
use k8s_openapi::api::core::v1 as core;
use kube::core::ApiResource;
use nodegroup::Rules;
use parking_lot::Mutex;
use shared_informer::{AsOf, Factory, Namespaces, Settings, Spawner, Status};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    follow::{Followed, Health},
    management::Management,
    reach::{self, Patience, out_of_reach},
    templates::{KindStates, LeftOutNamespaces, Templates, not_followed},
};
use connect::WorkloadSource;
use discovery::CoreResources;
use index::{Change, Freshness, Index, IndexFeed, KindState};
use scale::WatchedMachines;
use server::{Check, Checks};

const CLUSTERS: &str = "management/clusters";
const MACHINE_DEPLOYMENTS: &str = "management/machinedeployments";
const MACHINE_POOLS: &str = "management/machinepools";
const FIRST_TEMPLATES: &str = "the first list isn't complete yet";

/// The maximum time after the sync of the core kinds for which Refresh fails while templates aren't listed yet.
const TEMPLATES_AT_START: Duration = Duration::from_secs(10);

/// The interval at which the readability of namespaces is evaluated; each check evaluates it as well.
const LOOK: Duration = Duration::from_secs(5);

/// The options for reading a workload cluster.
#[derive(Clone, Debug)]
pub struct WorkloadOptions {
    /// The rules of its groups, including its scope.
    pub rules: Rules,
    /// The source of its clients.
    pub source: WorkloadSource,
    /// The time for which a watch may be broken before Refresh fails.
    pub max_staleness: Duration,
    /// The settings of the informers.
    pub informers: Settings,
}

/// One workload cluster.
#[derive(Clone)]
pub struct Workload {
    inner: Arc<Inner>,
}

struct Inner {
    index: Arc<Index>,
    management: Management,
    options: WorkloadOptions,
    namespaces: Namespaces,
    spawner: Spawner,
    core: Mutex<Core>,
    connection: Mutex<Connection>,
    templates: KindStates,
    /// The namespaces of the scope that can't be read, with the reason.
    out_of_reach: Mutex<BTreeMap<String, String>>,
    /// The names of these namespaces, shared with the task that follows templates.
    left_out: LeftOutNamespaces,
    started: tokio::time::Instant,
    start: Mutex<Start>,
    tasks: TaskTracker,
    ended: CancellationToken,
}

/// The progress of the start. Cluster Autoscaler's first loop must have all groups to choose from, with their
/// templates.
#[derive(Default)]
enum Start {
    /// Core kinds aren't in sync yet.
    #[default]
    CoreKinds,
    /// The templates that groups name are still in their first list.
    Templates { until: tokio::time::Instant },
    /// Nothing is awaited any more: a template that can't be read affects only its own groups.
    Over,
}

/// The kinds of the management cluster, once discovery has found them.
#[derive(Default)]
struct Core {
    clusters: Option<Followed<Cluster>>,
    machine_deployments: Option<Followed<ScalableResource>>,
    machine_sets: Option<Followed<ScalableResource>>,
    machine_pools: Option<Followed<ScalableResource>>,
    machines: Option<Followed<Machine>>,
}

/// The informers of a workload cluster.
struct Connected {
    factory: Factory,
    nodes: Followed<Node>,
}

/// The connection to the workload cluster.
enum Connection {
    Pending(String),
    Connected(Box<Connected>),
}

impl Workload {
    /// Starts to follow a workload cluster in the background, and returns at once.
    #[must_use]
    pub fn start(management: Management, options: WorkloadOptions, runtime: impl Into<Spawner>) -> Self {
        let namespaces = match options.rules.scope.namespaces() {
            None => Namespaces::All,
            Some(namespaces) => Namespaces::Only(namespaces),
        };
        let workload = Self {
            inner: Arc::new(Inner {
                index: Arc::new(Index::new(options.rules.clone()).in_first_sync()),
                management,
                options,
                namespaces,
                spawner: runtime.into(),
                core: Mutex::default(),
                connection: Mutex::new(Connection::Pending("not connected yet".to_owned())),
                templates: KindStates::default(),
                out_of_reach: Mutex::default(),
                left_out: LeftOutNamespaces::default(),
                started: tokio::time::Instant::now(),
                start: Mutex::default(),
                tasks: TaskTracker::new(),
                ended: CancellationToken::new(),
            }),
        };
        let templates = Arc::new(Templates {
            management: workload.inner.management.clone(),
            index: Arc::clone(&workload.inner.index),
            namespaces: workload.inner.namespaces.clone(),
            states: Arc::clone(&workload.inner.templates),
            left_out: Arc::clone(&workload.inner.left_out),
            spawner: workload.inner.spawner.clone(),
        });
        workload.spawn(templates.follow(workload.inner.tasks.clone(), workload.inner.ended.clone()));
        let task = workload.clone();
        workload.spawn(async move { task.follow_core().await });
        let task = workload.clone();
        workload.spawn(async move { task.connect().await });
        if let Namespaces::Only(names) = &workload.inner.namespaces
            && names.len() > 1
        {
            let task = workload.clone();
            workload.spawn(async move {
                loop {
                    tokio::time::sleep(LOOK).await;
                    task.look_at_namespaces();
                }
            });
        }
        workload
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let ended = self.inner.ended.clone();
        self.inner.spawner.spawn_tracked(&self.inner.tasks, async move {
            ended.run_until_cancelled(task).await;
        });
    }

    /// Follows the core kinds once discovery has found them, and again when they are served differently.
    async fn follow_core(&self) {
        let mut announced = self.inner.management.announced();
        loop {
            let resources = announced.borrow_and_update().clone();
            if let Some(resources) = resources {
                self.set_core(&resources);
            }
            if announced.changed().await.is_err() {
                return;
            }
        }
    }

    fn set_core(&self, resources: &CoreResources) {
        let inner = &self.inner;
        let management = &inner.management;
        let mut core = inner.core.lock();
        let core = &mut *core;
        let scalable = |kind: ScalableKind| ScalableResource::projection(kind, management.context());
        self.set(&mut core.clusters, resources.cluster.as_ref(), (), Cluster::projection);
        for (slot, kind) in [
            (&mut core.machine_deployments, ScalableKind::MachineDeployment),
            (&mut core.machine_sets, ScalableKind::MachineSet),
            (&mut core.machine_pools, ScalableKind::MachinePool),
        ] {
            self.set(slot, resources.scalable(kind), kind, || scalable(kind));
        }
        self.set(&mut core.machines, Some(&resources.machine), (), || Machine::projection(management.context()));
    }

    /// Follows a kind as it is served now. A `resource` of `None` means that it isn't served any more.
    fn set<T: IndexFeed>(
        &self,
        slot: &mut Option<Followed<T>>,
        resource: Option<&ApiResource>,
        kind: T::Kind,
        projection: impl Fn() -> shared_informer::Projection<T>,
    ) {
        let inner = &self.inner;
        match (slot.take(), resource) {
            (Some(followed), Some(resource)) if followed.resource() == resource => *slot = Some(followed),
            (previous, Some(resource)) => {
                *slot = Some(Followed::start(
                    inner.management.factory(),
                    resource.clone(),
                    inner.namespaces.clone(),
                    projection(),
                    (&inner.index, kind),
                    previous,
                ));
            }
            (Some(followed), None) => {
                for key in followed.end() {
                    inner.index.apply(T::deleted(&kind, key));
                }
            }
            (None, None) => {}
        }
    }

    /// Connects to the workload cluster, follows its Nodes, and then its configuration.
    async fn connect(&self) {
        let inner = &self.inner;
        let source = &inner.options.source;
        let access = source
            .access_in_time(inner.management.clients(), |error| {
                let why = error.to_string();
                let known = std::mem::replace(&mut *inner.connection.lock(), Connection::Pending(why.clone()));
                // The reason is logged once per change, not per attempt.
                if !matches!(known, Connection::Pending(known) if known == why) {
                    tracing::warn!("can't connect to the workload cluster yet: {why}");
                }
            })
            .await;
        // Nodes and Machines contain the same names, so they share an interner.
        let texts = Arc::clone(&inner.management.context().interner);
        let factory =
            Factory::new(access.clients().watches.clone(), inner.spawner.clone(), inner.options.informers.clone())
                .with_texts(texts);
        let nodes = Followed::start(
            &factory,
            ApiResource::erase::<core::Node>(&()),
            Namespaces::All,
            Node::projection(inner.management.context()),
            (&inner.index, ()),
            None,
        );
        *inner.connection.lock() = Connection::Connected(Box::new(Connected { factory, nodes }));
        access.follow_workload(source, inner.management.clients()).await;
    }

    /// Returns the index.
    #[must_use]
    pub fn index(&self) -> &Arc<Index> {
        &self.inner.index
    }

    /// Returns the rules of its groups.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.inner.options.rules
    }

    /// Returns the health of each core kind by name, or the reason for which it isn't followed yet.
    fn core_health(&self) -> Vec<(&'static str, Result<Health, String>)> {
        let inner = &self.inner;
        let undiscovered = || inner.management.discovery_problem().unwrap_or_else(|| "not started yet".to_owned());
        // A kind that isn't served, according to discovery, must not block readiness.
        let resources = inner.management.resources().load_full();
        let is_served =
            |name| name != MACHINE_POOLS && resources.as_deref().is_none_or(|resources| is_served(resources, name));
        let found = inner.core.lock().healths();
        let found = found.into_iter().filter(|(name, health)| health.is_some() || is_served(name));
        let mut healths: Vec<_> = found.map(|(name, health)| (name, health.ok_or_else(undiscovered))).collect();
        let nodes = match &*inner.connection.lock() {
            Connection::Pending(why) => Err(why.clone()),
            Connection::Connected(connected) => Ok(connected.nodes.health()),
        };
        healths.push(("workload/nodes", nodes));
        healths
    }

    /// Returns each kind that must be in sync by name, with the reason if it isn't.
    fn problems(&self) -> impl Iterator<Item = (&'static str, Option<String>)> {
        let left_out = self.look_at_namespaces();
        let (max_staleness, now) = (self.inner.options.max_staleness, Instant::now());
        self.core_health().into_iter().map(move |(name, health)| match health {
            Err(why) => (name, Some(why)),
            Ok(health) => (name, health.problem(&left_out, max_staleness, now)),
        })
    }

    /// Determines which namespaces of the scope can't be read, leaves their groups out, and returns them.
    fn look_at_namespaces(&self) -> Arc<BTreeSet<String>> {
        let inner = &self.inner;
        let Namespaces::Only(names) = &inner.namespaces else { return inner.left_out.load_full() };
        let patience =
            Patience { starts: inner.started.elapsed() < reach::AT_START, max_staleness: inner.options.max_staleness };
        // The lock is held to the end, so that the index and the log see results in the same order.
        let mut known = inner.out_of_reach.lock();
        let kinds: Vec<_> = inner.core.lock().healths().into_iter().filter_map(|(_, health)| health).collect();
        let found = out_of_reach(names, &known, &kinds, patience, Instant::now());
        if !found.keys().eq(known.keys()) {
            let left_out: BTreeSet<_> = found.keys().cloned().collect();
            inner.index.apply(Change::ForbiddenNamespaces(left_out.clone()));
            inner.left_out.store(Arc::new(left_out));
            for (namespace, why) in found.iter().filter(|(namespace, _)| !known.contains_key(*namespace)) {
                tracing::warn!(
                    namespace,
                    "a namespace of the scope can't be read, its node groups aren't served: {why}"
                );
            }
            for namespace in known.keys().filter(|namespace| !found.contains_key(*namespace)) {
                tracing::info!(namespace, "the namespace can be read again");
            }
            *known = found;
        }
        let left_out = inner.left_out.load_full();
        // An informer may have been started since the last call.
        inner.core.lock().stop_waiting_for(&left_out);
        left_out
    }

    /// Returns true if the start still waits for templates, given that the core kinds are in sync.
    fn awaits_templates(&self) -> bool {
        let inner = &self.inner;
        let mut start = inner.start.lock();
        let now = tokio::time::Instant::now();
        if let Start::CoreKinds = *start {
            *start = Start::Templates { until: now + TEMPLATES_AT_START };
        }
        let waits = match *start {
            Start::Templates { until } => now < until && !inner.index.has_settled(),
            Start::CoreKinds | Start::Over => false,
        };
        let ends = !waits && !matches!(*start, Start::Over);
        if ends {
            *start = Start::Over;
        }
        drop(start);
        if ends {
            inner.index.end_first_sync();
        }
        waits
    }

    /// Returns the statuses of the informers that feed this index, with the cluster they watch.
    #[must_use]
    pub fn informers(&self) -> Vec<(&'static str, Status)> {
        let management = self.inner.management.factory().statuses().into_iter().map(|status| ("management", status));
        let workload = match &*self.inner.connection.lock() {
            Connection::Pending(_) => Vec::new(),
            Connection::Connected(connected) => connected.factory.statuses(),
        };
        management.chain(workload.into_iter().map(|status| ("workload", status))).collect()
    }

    /// Stops all tasks. The shared informers of the management cluster continue.
    pub async fn shutdown(&self) {
        let inner = &self.inner;
        inner.ended.cancel();
        inner.tasks.close();
        inner.tasks.wait().await;
        *inner.core.lock() = Core::default();
        let connection = std::mem::replace(&mut *inner.connection.lock(), Connection::Pending("shut down".to_owned()));
        if let Connection::Connected(connected) = connection {
            connected.factory.shutdown().await;
        }
    }
}

impl Core {
    /// Returns the health of each kind by name; `None` if it isn't followed.
    fn healths(&self) -> [(&'static str, Option<Health>); 5] {
        [
            (CLUSTERS, health(self.clusters.as_ref())),
            (MACHINE_DEPLOYMENTS, health(self.machine_deployments.as_ref())),
            ("management/machinesets", health(self.machine_sets.as_ref())),
            ("management/machines", health(self.machines.as_ref())),
            (MACHINE_POOLS, health(self.machine_pools.as_ref())),
        ]
    }

    /// Stops waiting for the first lists of these namespaces.
    fn stop_waiting_for(&self, namespaces: &BTreeSet<String>) {
        fn of<T: IndexFeed>(followed: Option<&Followed<T>>, namespaces: &BTreeSet<String>) {
            if let Some(followed) = followed {
                followed.stop_waiting_for(namespaces);
            }
        }
        of(self.clusters.as_ref(), namespaces);
        of(self.machine_deployments.as_ref(), namespaces);
        of(self.machine_sets.as_ref(), namespaces);
        of(self.machines.as_ref(), namespaces);
        of(self.machine_pools.as_ref(), namespaces);
    }
}

/// Returns true if discovery has found a kind, so that readiness waits for it.
fn is_served(resources: &CoreResources, name: &str) -> bool {
    match name {
        CLUSTERS => resources.cluster.is_some(),
        MACHINE_DEPLOYMENTS => resources.machine_deployment.is_some(),
        _ => true,
    }
}

fn health<T: IndexFeed>(followed: Option<&Followed<T>>) -> Option<Health> {
    followed.map(Followed::health)
}

impl Freshness for Workload {
    fn check(&self) -> Result<(), String> {
        let missing: Vec<_> =
            self.problems().filter_map(|(name, problem)| Some(format!("{name}: {}", problem?))).collect();
        match missing.is_empty() {
            false => Err(missing.join("; ")),
            true if self.awaits_templates() => Err(format!("templates: {FIRST_TEMPLATES}")),
            true => Ok(()),
        }
    }
}

impl WatchedMachines for Workload {
    fn as_of(&self, key: &ObjectKey, version: u64) -> AsOf<Machine> {
        let machines = self.inner.core.lock().machines.as_ref().map(Followed::lister);
        machines.map_or(AsOf::Behind, |machines| machines.as_of(key, version))
    }
}

impl Checks for Workload {
    fn checks(&self) -> Vec<Check> {
        let core: Vec<_> = self
            .problems()
            .map(|(name, problem)| match problem {
                None => Check::ready(name),
                Some(why) => Check::pending(name, why),
            })
            .collect();
        let awaited = core.iter().all(Check::is_ready) && self.awaits_templates();
        let templates = self.inner.templates.lock();
        let (followed, others): (Vec<_>, Vec<_>) = templates.iter().partition(|(_, known)| known.is_followed);
        let templates = followed.into_iter().map(|(kind, known)| {
            let name = format!("templates/{kind}");
            match &known.state {
                KindState::Synced => Check::ready(name),
                KindState::Pending if awaited => Check::pending(name, FIRST_TEMPLATES),
                KindState::Pending => Check::informational(name, FIRST_TEMPLATES),
                KindState::Unreadable(why) => Check::informational(name, &**why),
            }
        });
        let templates = templates.chain(not_followed(&others));
        let unread = self.inner.out_of_reach.lock();
        let unread = unread.iter().map(|(namespace, why)| {
            let why = format!("its node groups aren't served until it can be read: {why}");
            Check::informational(format!("management/namespaces/{namespace}"), why)
        });
        let mut checks: Vec<_> = core.into_iter().chain(unread).chain(templates).collect();
        // A kind that a group has just named has no state of its own yet.
        if awaited && checks.iter().all(Check::is_ready) {
            checks.push(Check::pending("templates", FIRST_TEMPLATES));
        }
        checks
    }
}
