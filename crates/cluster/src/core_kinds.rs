//! Cluster API's core kinds on the management cluster: one list and watch per kind, whatever the number of
//! workload clusters behind it. Nothing here may reach a workload cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use arcstr::ArcStr;
use kube::core::ApiResource;
use parking_lot::Mutex;
use rules::capi::{Cluster, Machine, ObjectKey, ScalableKind, ScalableResource};
use shared_informer::{Namespaces, Projection};

use super::{
    dispatch::{ByCluster, CoreObject, Dispatch},
    follow::{Followed, KindHealth, Outage, cause},
    management::Management,
    reach::{self, LeftOutNamespaces, Patience, out_of_reach},
};
use connect::discovery::CoreResources;
use service::listen::{Check, CheckState};

/// The name of the check of all kinds together, while one cause stops them all.
pub(super) const API_SERVER: &str = "management/api-server";
const CLUSTERS: &str = "management/clusters";
const MACHINE_DEPLOYMENTS: &str = "management/machinedeployments";
const MACHINE_POOLS: &str = "management/machinepools";

/// The log target of the lines about a single workload cluster, whichever of its parts they are about.
pub(super) const LOG: &str = "cluster::workload";

/// The interval at which the readability of namespaces is evaluated; each check evaluates it as well.
const LOOK: Duration = Duration::from_secs(5);

/// The health of a kind by name, or the reason for which it isn't followed yet.
pub(super) type NamedHealth = (&'static str, Result<KindHealth, String>);

/// The core kinds, followed into the indexes.
pub(super) struct CoreKinds {
    management: Management,
    sink: Arc<Dispatch>,
    namespaces: Namespaces,
    max_staleness: Duration,
    followed: Mutex<FollowedKinds>,
    /// The namespaces of the scope that can't be read, with the reason.
    out_of_reach: Mutex<BTreeMap<String, String>>,
    /// The names of these namespaces, shared with the task that follows templates.
    left_out: LeftOutNamespaces,
    started: tokio::time::Instant,
    /// The number of walks through the objects of a namespace for new Clusters.
    #[cfg(test)]
    pub(super) walks: std::sync::atomic::AtomicUsize,
}

/// The kinds, once discovery has found them.
#[derive(Default)]
struct FollowedKinds {
    clusters: Option<Followed<Cluster, Dispatch>>,
    machine_deployments: Option<Followed<ScalableResource, Dispatch>>,
    machine_sets: Option<Followed<ScalableResource, Dispatch>>,
    machine_pools: Option<Followed<ScalableResource, Dispatch>>,
    machines: Option<Followed<Machine, Dispatch>>,
}

impl CoreKinds {
    /// Returns the core kinds of these namespaces, which [`CoreKinds::follow`] follows into `sink`.
    pub(super) fn new(
        management: Management,
        sink: Arc<Dispatch>,
        namespaces: Namespaces,
        max_staleness: Duration,
    ) -> Self {
        Self {
            management,
            sink,
            namespaces,
            max_staleness,
            followed: Mutex::default(),
            out_of_reach: Mutex::default(),
            left_out: LeftOutNamespaces::default(),
            started: tokio::time::Instant::now(),
            #[cfg(test)]
            walks: std::sync::atomic::AtomicUsize::new(0),
        }
    }

    pub(super) fn sink(&self) -> &Dispatch {
        &self.sink
    }

    pub(super) fn management(&self) -> &Management {
        &self.management
    }

    pub(super) fn namespaces(&self) -> &Namespaces {
        &self.namespaces
    }

    pub(super) fn left_out(&self) -> &LeftOutNamespaces {
        &self.left_out
    }

    /// Follows the kinds once discovery has found them, and again when they are served differently.
    pub(super) async fn follow(&self) {
        let mut announced = self.management.announced();
        loop {
            let resources = announced.borrow_and_update().clone();
            if let Some(resources) = resources {
                self.set_all(&resources);
            }
            if announced.changed().await.is_err() {
                return;
            }
        }
    }

    fn set_all(&self, resources: &CoreResources) {
        let management = &self.management;
        let mut followed = self.followed.lock();
        let followed = &mut *followed;
        let scalable = |kind: ScalableKind| ScalableResource::projection(kind, management.context());
        self.set(&mut followed.clusters, resources.cluster.as_ref(), (), || self.sink.cluster_projection());
        for (slot, kind) in [
            (&mut followed.machine_deployments, ScalableKind::MachineDeployment),
            (&mut followed.machine_sets, ScalableKind::MachineSet),
            (&mut followed.machine_pools, ScalableKind::MachinePool),
        ] {
            self.set(slot, resources.scalable(kind), kind, || scalable(kind));
        }
        self.set(&mut followed.machines, Some(&resources.machine), (), || Machine::projection(management.context()));
    }

    /// Follows a kind as it is served now. A `resource` of `None` means that it isn't served any more.
    fn set<T: CoreObject>(
        &self,
        slot: &mut Option<Followed<T, Dispatch>>,
        resource: Option<&ApiResource>,
        kind: T::Kind,
        projection: impl Fn() -> Projection<T>,
    ) {
        match (slot.take(), resource) {
            (Some(followed), Some(resource)) if followed.resource() == resource => *slot = Some(followed),
            (previous, Some(resource)) => {
                *slot = Some(Followed::start(
                    self.management.factory(),
                    resource.clone(),
                    self.namespaces.clone(),
                    projection(),
                    (&self.sink, kind),
                    previous,
                ));
            }
            (Some(followed), None) => followed.remove(),
            (None, None) => {}
        }
    }

    /// Returns each kind that must be in sync by name, with the reason if it isn't: the core kinds, and those of
    /// `others`.
    pub(super) fn problems(&self, others: impl FnOnce() -> Vec<NamedHealth>) -> Vec<(&'static str, Option<String>)> {
        let problem = |check: Check| check.reason.filter(|_| check.state == CheckState::Pending);
        self.named_checks(others).into_iter().map(|(name, check)| (name, problem(check))).collect()
    }

    /// Returns a check of each kind that must be in sync: the core kinds, and those of `others`.
    pub(super) fn checks(&self, others: impl FnOnce() -> Vec<NamedHealth>) -> Vec<Check> {
        self.named_checks(others).into_iter().map(|(_, check)| check).collect()
    }

    /// Returns the checks by name. If one cause stops all kinds of the management cluster, it is one check, and other kinds
    /// that the same cause stops have none.
    fn named_checks(&self, others: impl FnOnce() -> Vec<NamedHealth>) -> Vec<(&'static str, Check)> {
        let left_out = self.look_at_namespaces();
        let (now, max_staleness) = (Instant::now(), self.max_staleness);
        let (kinds, mut others) = (self.healths(), others());
        let check = |(name, health): NamedHealth| {
            let check = match health {
                Err(why) => Check::pending(name, why),
                Ok(health) => match health.problem(&left_out, max_staleness, now) {
                    Some(why) => Check::pending(name, why),
                    None => match health.outage(&left_out, max_staleness, now) {
                        Some(why) => Check::ready_but(name, why),
                        None => Check::ready(name),
                    },
                },
            };
            (name, check)
        };
        let Some(outage) = Outage::of(&kinds, &left_out) else {
            return kinds.into_iter().chain(others).map(check).collect();
        };
        others.retain(|(_, health)| cause(health, &left_out) != Some(&outage.cause));
        let all = (API_SERVER, outage.check(API_SERVER, max_staleness, now));
        std::iter::once(all).chain(others.into_iter().map(check)).collect()
    }

    /// Returns the reason for which another kind than the core kinds isn't in sync.
    pub(super) fn problem(&self, health: Result<KindHealth, String>) -> Option<String> {
        match health {
            Err(why) => Some(why),
            Ok(health) => health.problem(&self.left_out.load(), self.max_staleness, Instant::now()),
        }
    }

    fn healths(&self) -> Vec<NamedHealth> {
        let undiscovered = || self.management.discovery_problem().unwrap_or_else(|| "not started yet".to_owned());
        // A kind that isn't served, according to discovery, must not block readiness.
        let resources = self.management.resources().load_full();
        let is_served =
            |name| name != MACHINE_POOLS && resources.as_deref().is_none_or(|resources| is_served(resources, name));
        let found = self.followed.lock().healths();
        let found = found.into_iter().filter(|(name, health)| health.is_some() || is_served(name));
        found.map(|(name, health)| (name, health.ok_or_else(undiscovered))).collect()
    }

    pub(super) async fn follow_namespaces(&self) {
        loop {
            tokio::time::sleep(LOOK).await;
            self.look_at_namespaces();
        }
    }

    /// Returns true if namespaces can be left out, since the scope names several.
    pub(super) fn has_several_namespaces(&self) -> bool {
        match &self.namespaces {
            Namespaces::All => false,
            Namespaces::Only(names) => names.len() > 1,
        }
    }

    /// Determines which namespaces of the scope can't be read, leaves their groups out, and returns them.
    pub(super) fn look_at_namespaces(&self) -> Arc<BTreeSet<String>> {
        let Namespaces::Only(names) = &self.namespaces else { return self.left_out.load_full() };
        let patience = Patience { starts: self.started.elapsed() < reach::AT_START, max_staleness: self.max_staleness };
        // The lock is held to the end, so that the sink and the log see results in the same order.
        let mut known = self.out_of_reach.lock();
        let kinds: Vec<_> = self.followed.lock().healths().into_iter().filter_map(|(_, health)| health).collect();
        let found = out_of_reach(names, &known, &kinds, patience, Instant::now());
        if !found.keys().eq(known.keys()) {
            let left_out: BTreeSet<_> = found.keys().cloned().collect();
            self.sink.set_forbidden_namespaces(&left_out);
            self.left_out.store(Arc::new(left_out));
            for (namespace, why) in found.iter().filter(|(namespace, _)| !known.contains_key(*namespace)) {
                tracing::warn!(
                    target: LOG,
                    namespace,
                    "a namespace of the scope can't be read, its node groups aren't served: {why}"
                );
            }
            for namespace in known.keys().filter(|namespace| !found.contains_key(*namespace)) {
                tracing::info!(target: LOG, namespace, "the namespace can be read again");
            }
            *known = found;
        }
        let left_out = self.left_out.load_full();
        // An informer may have been started since the last call.
        self.followed.lock().stop_waiting_for(&left_out);
        left_out
    }

    pub(super) fn has_clusters(&self) -> bool {
        self.followed.lock().clusters.as_ref().is_some_and(Followed::has_synced)
    }

    /// Fills the indexes of these Clusters, which have just been added to `sink`, with the objects that have arrived before.
    /// The objects of a namespace are walked through once, however many Clusters it has.
    pub(super) fn fill(&self, sink: &ByCluster, clusters: impl IntoIterator<Item = ObjectKey>) {
        // Locked to the end, so that no kind begins or ends meanwhile.
        let followed = self.followed.lock();
        let mut by_namespace = BTreeMap::<_, BTreeSet<_>>::new();
        for ObjectKey { namespace, name } in clusters {
            by_namespace.entry(namespace).or_default().insert(name);
        }
        for (namespace, names) in &by_namespace {
            #[cfg(test)]
            self.walks.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            followed.fill(sink, namespace, names);
        }
    }

    pub(super) fn unread_namespaces(&self) -> Vec<Check> {
        let unread = self.out_of_reach.lock();
        let unread = unread.iter().map(|(namespace, why)| {
            let why = format!("its node groups aren't served until it can be read: {why}");
            Check::informational(format!("management/namespaces/{namespace}"), why)
        });
        unread.collect()
    }

    /// Stops following the kinds. The shared informers of the management cluster continue.
    pub(super) fn end(&self) {
        *self.followed.lock() = FollowedKinds::default();
    }
}

impl FollowedKinds {
    /// Returns the health of each kind by name; `None` if it isn't followed.
    fn healths(&self) -> [(&'static str, Option<KindHealth>); 5] {
        [
            (CLUSTERS, health(self.clusters.as_ref())),
            (MACHINE_DEPLOYMENTS, health(self.machine_deployments.as_ref())),
            ("management/machinesets", health(self.machine_sets.as_ref())),
            ("management/machines", health(self.machines.as_ref())),
            (MACHINE_POOLS, health(self.machine_pools.as_ref())),
        ]
    }

    /// Fills the indexes of these Clusters of a namespace, kind by kind: owners come before what they own.
    fn fill(&self, sink: &ByCluster, namespace: &ArcStr, clusters: &BTreeSet<ArcStr>) {
        fn of<T: CoreObject>(
            followed: Option<&Followed<T, Dispatch>>,
            sink: &ByCluster,
            namespace: &ArcStr,
            clusters: &BTreeSet<ArcStr>,
        ) {
            if let Some(followed) = followed {
                let (kind, keys, store) = followed.objects_in(namespace);
                sink.fill(kind, clusters, &keys, |key| store.get(key));
            }
        }
        of(self.clusters.as_ref(), sink, namespace, clusters);
        of(self.machine_deployments.as_ref(), sink, namespace, clusters);
        of(self.machine_sets.as_ref(), sink, namespace, clusters);
        of(self.machine_pools.as_ref(), sink, namespace, clusters);
        of(self.machines.as_ref(), sink, namespace, clusters);
    }

    fn stop_waiting_for(&self, namespaces: &BTreeSet<String>) {
        fn of<T: CoreObject>(followed: Option<&Followed<T, Dispatch>>, namespaces: &BTreeSet<String>) {
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

fn health<T: CoreObject>(followed: Option<&Followed<T, Dispatch>>) -> Option<KindHealth> {
    followed.map(Followed::health)
}
