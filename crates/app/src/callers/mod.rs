//! The callers: which workload cluster answers a call, and the writes and the service of each. One workload cluster answers
//! whoever may connect. Of many, each is the tenant of its own autoscaler: a caller is denied unless its certificate names
//! a Cluster that is served now.

mod identity;
mod metrics;
#[cfg(test)]
mod tests;
mod unexpected;

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use parking_lot::RwLock;
use rules::capi::{CLIENT_NOT_BEFORE, ObjectKey};
use shared_informer::Spawner;
use tokio::task::JoinSet;
use tonic::Status;

pub use self::identity::{TrustDomain, TrustDomainError};
pub(super) use self::metrics::FleetMetrics;
use self::unexpected::{Counts, Denied, Unexpected};
use cluster::{Fleet, Left, WorkloadCluster};
use page::state::{DeniedCallers, ServedCluster, ServedClusters};
use scale::{Api, EventRecorder, Scale, ScaleMetrics, ScaleOptions, WriteBudget};
use service::listen::Client;
use service::{Access, CallLogOptions, Session};

/// The parts that all services share.
pub(super) struct Parts {
    pub(super) options: ScaleOptions,
    pub(super) scale_metrics: ScaleMetrics,
    pub(super) events: EventRecorder,
    pub(super) budget: WriteBudget,
    pub(super) log: CallLogOptions,
    pub(super) tasks: Spawner,
}

/// What a caller is admitted by.
pub(super) enum AdmitBy {
    /// Whoever may connect is answered by the only workload cluster.
    Connection,
    /// A certificate names the Cluster of its holder.
    Certificate(TrustDomain),
}

/// The callers, and the workload clusters that answer them.
pub(super) struct Callers {
    admit_by: AdmitBy,
    parts: Parts,
    /// The workload clusters; none is known before it is set.
    fleet: OnceLock<Fleet>,
    by_cluster: RwLock<HashMap<Option<ObjectKey>, Tenant>>,
    denied: Denied,
}

/// A workload cluster with what answers its autoscaler.
struct Tenant {
    cluster: WorkloadCluster,
    session: Arc<Session>,
    unexpected: Arc<Unexpected>,
}

impl Parts {
    fn tenant(&self, cluster: &WorkloadCluster) -> Tenant {
        let Self { options, scale_metrics, events, budget, log, tasks } = self;
        let (index, management, is_one_of_many) = (cluster.index(), cluster.management(), cluster.cluster().is_some());
        let (client, resources) = (management.clients().writes.clone(), management.resources());
        let api = Api::new(client, resources, cluster.keys().clone()).traced(log.traces.clone());
        let (api, events) = if is_one_of_many {
            (api.of_tenant(Arc::new(cluster.clone()), budget), events.of_one_of_many())
        } else {
            (api, events.clone())
        };
        let scale = Scale::new(Arc::clone(index), api, *options, scale_metrics.clone(), events, tasks);
        let watched = cluster.clone();
        let session = Session::new(Arc::clone(index), scale, move || watched.check_fresh(), log.clone());
        let unexpected = Arc::<Unexpected>::default();
        let session = if is_one_of_many {
            let (asked, counts) = (cluster.clone(), Arc::clone(&unexpected));
            session.of_one_of_many(move |group, client| unexpected::asked_for(&asked, &counts, group, client))
        } else {
            session
        };
        Tenant { cluster: cluster.clone(), session: Arc::new(session), unexpected }
    }
}

impl Tenant {
    fn shown(&self) -> ServedCluster {
        let Counts { denied, foreign, last: last_unexpected, .. } = self.unexpected.counts();
        ServedCluster {
            cluster: self.cluster.clone(),
            calls: self.session.calls().clone(),
            history: self.session.scale().history().clone(),
            denied,
            foreign,
            last_unexpected,
        }
    }
}

impl Callers {
    pub(super) fn new(admit_by: AdmitBy, parts: Parts) -> Self {
        let (by_cluster, denied) = (RwLock::default(), Denied::default());
        Self { admit_by, parts, fleet: OnceLock::new(), by_cluster, denied }
    }

    /// Answers for these workload clusters, the first ones that are given.
    pub(super) fn answer_for(&self, fleet: Fleet) {
        // They are set once, by the provider.
        let _ = self.fleet.set(fleet);
    }

    /// Lets the running commands of all workload clusters finish, for at most `limit`; then lets their Events be posted, for a
    /// second at most.
    ///
    /// # Errors
    /// The number of commands that were still running.
    pub(super) async fn drain(&self, limit: Duration) -> Result<(), usize> {
        let mut draining = JoinSet::new();
        for scale in self.by_cluster.read().values().map(|tenant| tenant.session.scale().clone()) {
            draining.spawn(async move { scale.drain(limit).await });
        }
        let mut running = 0;
        while let Some(drained) = draining.join_next().await {
            // A panicked task has no commands left.
            running += drained.ok().and_then(Result::err).unwrap_or_default();
        }
        self.parts.events.end().await;
        if running == 0 { Ok(()) } else { Err(running) }
    }

    /// Returns the number of groups of all workload clusters with a command under way or waiting.
    pub(super) fn busy_groups(&self) -> usize {
        self.by_cluster.read().values().map(|tenant| tenant.session.scale().busy_groups()).sum()
    }

    /// Returns the Cluster that a caller's certificate names; `None` stands for the only workload cluster.
    fn cluster_of(&self, caller: Option<&Client>) -> Result<Option<ObjectKey>, Status> {
        let AdmitBy::Certificate(trust_domain) = &self.admit_by else { return Ok(None) };
        let form = || format!("spiffe://{trust_domain}/ns/<namespace>/cluster/<name>");
        let denied = |why: &str| Status::permission_denied(format!("{why}: it has to have one URI, {}", form()));
        let client = caller.ok_or_else(|| denied("the caller has no client certificate"))?;
        let name = &client.name;
        let Some(uri) = &client.uri else {
            return Err(denied(&format!("the client certificate of {name} has no URI, or several")));
        };
        let cluster = trust_domain.cluster_of(uri).map(Some);
        cluster.ok_or_else(|| denied(&format!("the URI of the client certificate of {name} names no Cluster")))
    }
}

impl service::Admission for Callers {
    fn admit(&self, caller: Option<&Client>, access: Access) -> Result<Arc<Session>, Status> {
        let named = self.cluster_of(caller)?;
        let by_cluster = self.by_cluster.read();
        let tenant = by_cluster.get(&named);
        let Some(cluster) = named else {
            // The only one has joined before anybody could call.
            return tenant.map(|tenant| Arc::clone(&tenant.session)).ok_or_else(|| Status::unavailable("not ready"));
        };
        let starting = || Status::unavailable("not ready: the first list of Clusters isn't complete yet");
        let fleet = self.fleet.get().filter(|fleet| fleet.knows_clusters()).ok_or_else(starting)?;
        if let (Some(client), Some(tenant)) = (caller, tenant)
            && tenant.cluster.client_not_before().is_some_and(|not_before| not_before.excludes(client.valid_from))
        {
            return Err(Status::permission_denied(format!(
                "the client certificate of {} is excluded by the annotation {CLIENT_NOT_BEFORE} of Cluster {cluster}: \
                 issue a new one",
                client.name
            )));
        }
        let standing = tenant.map(|tenant| (tenant, tenant.cluster.left()));
        match (standing, access) {
            (Some((tenant, None)), _) => {
                tenant.cluster.called();
                Ok(Arc::clone(&tenant.session))
            }
            (Some((tenant, Some(_))), Access::Read) => Ok(Arc::clone(&tenant.session)),
            // The selector matches it, so its tenant is about to come.
            _ if fleet.is_selected(&cluster) => {
                Err(Status::unavailable(format!("not ready: Cluster {cluster} has just been opted in")))
            }
            (Some((_, Some(why))), Access::Begin | Access::Write) => {
                Err(Status::permission_denied(format!("Cluster {cluster} isn't served any more: {why}")))
            }
            (None, _) => Err(Status::permission_denied(format!(
                "Cluster {cluster} isn't served: it has to exist, and its labels have to match --fleet-selector"
            ))),
        }
    }

    fn denied(&self, caller: Option<&Client>, reason: &str) {
        let now = Instant::now();
        self.denied.add(caller, reason, now);
        let Ok(cluster) = self.cluster_of(caller) else { return };
        if let Some(tenant) = self.by_cluster.read().get(&cluster) {
            tenant.unexpected.denied(now);
        }
    }
}

impl ServedClusters for Callers {
    fn clusters(&self) -> Vec<ServedCluster> {
        let mut clusters: Vec<_> = self.by_cluster.read().values().map(Tenant::shown).collect();
        clusters.sort_by(|a, b| a.cluster.cluster().cmp(&b.cluster.cluster()));
        clusters
    }

    fn cluster(&self, cluster: Option<&ObjectKey>) -> Option<ServedCluster> {
        self.by_cluster.read().get(&cluster.cloned()).map(Tenant::shown)
    }

    fn denied_callers(&self) -> DeniedCallers {
        self.denied.callers()
    }
}

impl cluster::Tenants for Callers {
    fn joined(&self, cluster: &WorkloadCluster) {
        let tenant = self.parts.tenant(cluster);
        let replaced = self.by_cluster.write().insert(cluster.cluster().cloned(), tenant);
        // It is dropped without the lock.
        drop(replaced);
    }

    fn left(&self, cluster: &WorkloadCluster) {
        if let Some(tenant) = self.by_cluster.read().get(&cluster.cluster().cloned())
            && tenant.cluster.uid() == cluster.uid()
        {
            match cluster.left() {
                // Its last state is kept for the commands under way.
                Some(Left::OptedOut) => tenant.session.scale().leave(),
                Some(Left::Deleted | Left::Replaced) | None => tenant.session.scale().stop(),
            }
        }
    }

    fn dropped(&self, cluster: &WorkloadCluster) {
        let (name, mut by_cluster) = (cluster.cluster().cloned(), self.by_cluster.write());
        if by_cluster.get(&name).is_some_and(|tenant| tenant.cluster.left().is_some()) {
            by_cluster.remove(&name);
        }
    }
}
