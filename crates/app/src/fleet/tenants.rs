//! The tenants of a fleet: the writes and the service of each Cluster, and the choice of a caller's. A caller is denied
//! unless its certificate names a Cluster that is served now.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use capi::{CLIENT_NOT_BEFORE, ObjectKey};
use parking_lot::RwLock;
use shared_informer::Spawner;
use tokio::task::JoinSet;
use tonic::Status;

use super::{
    denied::Denied,
    identity::TrustDomain,
    unexpected::{Counts, ForeignGroups, Unexpected},
};
use cluster::{Fleet, Left, Management, Member};
use grpc::{Access, CallLogOptions, RpcMetrics, Service, Services};
use page::state::{DeniedCallers, ServedCluster, ServedClusters};
use scale::{Api, EventRecorder, Scale, ScaleMetrics, ScaleOptions, WriteBudget};
use server::Client;

/// The parts that the tenants share.
pub(super) struct Parts {
    pub(super) management: Management,
    pub(super) options: ScaleOptions,
    pub(super) scale_metrics: ScaleMetrics,
    pub(super) events: EventRecorder,
    pub(super) budget: WriteBudget,
    pub(super) rpc_metrics: RpcMetrics,
    pub(super) log: CallLogOptions,
    pub(super) tasks: Spawner,
}

/// The tenants of a fleet.
pub(super) struct Tenants {
    trust_domain: TrustDomain,
    parts: Parts,
    /// The Clusters behind the tenants; none is known before it is set.
    fleet: OnceLock<Fleet>,
    by_cluster: RwLock<HashMap<ObjectKey, Tenant>>,
    denied: Denied,
}

/// A Cluster with its writes and its service.
struct Tenant {
    member: Member,
    scale: Scale,
    service: Service,
    unexpected: Arc<Unexpected>,
}

impl Parts {
    fn tenant(&self, member: &Member) -> Tenant {
        let Self { management, options, scale_metrics, events, budget, rpc_metrics, log, tasks } = self;
        let (client, keys) = (management.clients().writes.clone(), management.context().keys.clone());
        let (index, watched) = (member.index(), Arc::new(member.clone()));
        let api = Api::new(client, management.resources(), keys).traced(log.traces.clone());
        let api = api.of_tenant(Arc::clone(&watched) as _, budget);
        let (metrics, events) = (scale_metrics.clone(), events.of_one_of_many());
        let scale = Scale::new(Arc::clone(index), api, *options, metrics, events, tasks);
        let service = Service::new(Arc::clone(index), scale.clone(), watched, rpc_metrics.clone(), log.clone());
        let unexpected = Arc::<Unexpected>::default();
        let foreign = ForeignGroups { member: member.clone(), unexpected: Arc::clone(&unexpected) };
        let service = service.of_one_of_many().reporting_unknown_groups(Arc::new(foreign));
        Tenant { member: member.clone(), scale, service, unexpected }
    }
}

impl Tenant {
    /// Returns the Cluster as it is shown.
    fn shown(&self) -> ServedCluster {
        let Counts { denied, foreign, last: last_unexpected, .. } = self.unexpected.counts();
        ServedCluster {
            member: self.member.clone(),
            calls: self.service.calls().clone(),
            history: self.scale.history().clone(),
            denied,
            foreign,
            last_unexpected,
        }
    }
}

impl Tenants {
    pub(super) fn new(trust_domain: TrustDomain, parts: Parts) -> Self {
        let (by_cluster, denied) = (RwLock::default(), Denied::default());
        Self { trust_domain, parts, fleet: OnceLock::new(), by_cluster, denied }
    }

    /// Answers for the Clusters of a fleet, the first one that is given.
    pub(super) fn answer_for(&self, fleet: Fleet) {
        // The fleet is set once, by the provider.
        let _ = self.fleet.set(fleet);
    }

    /// Lets the running commands of all tenants finish, for at most `limit`; then lets their Events be posted, for a
    /// second at most.
    ///
    /// # Errors
    /// The number of commands that were still running.
    pub(super) async fn drain(&self, limit: Duration) -> Result<(), usize> {
        let mut draining = JoinSet::new();
        for scale in self.by_cluster.read().values().map(|tenant| tenant.scale.clone()) {
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

    /// Returns the number of groups of all tenants with a command under way or waiting.
    pub(super) fn remembered(&self) -> usize {
        self.by_cluster.read().values().map(|tenant| tenant.scale.remembered()).sum()
    }

    /// Returns the history of a tenant.
    #[cfg(test)]
    pub(super) fn history(&self, cluster: &ObjectKey) -> Option<scale::History> {
        self.by_cluster.read().get(cluster).map(|tenant| tenant.scale.history().clone())
    }

    /// Returns the Cluster that a caller's certificate names.
    fn cluster_of(&self, caller: Option<&Client>) -> Result<ObjectKey, Status> {
        let form = || format!("spiffe://{}/ns/<namespace>/cluster/<name>", self.trust_domain);
        let denied = |why: &str| Status::permission_denied(format!("{why}: it has to have one URI, {}", form()));
        let client = caller.ok_or_else(|| denied("the caller has no client certificate"))?;
        let name = &client.name;
        let Some(uri) = &client.uri else {
            return Err(denied(&format!("the client certificate of {name} has no URI, or several")));
        };
        let cluster = self.trust_domain.cluster_of(uri);
        cluster.ok_or_else(|| denied(&format!("the URI of the client certificate of {name} names no Cluster")))
    }
}

impl Services for Tenants {
    fn of(&self, caller: Option<&Client>, access: Access) -> Result<Service, Status> {
        let cluster = self.cluster_of(caller)?;
        let starting = || Status::unavailable("not ready: the first list of Clusters isn't complete yet");
        let fleet = self.fleet.get().filter(|fleet| fleet.knows_clusters()).ok_or_else(starting)?;
        let by_cluster = self.by_cluster.read();
        let tenant = by_cluster.get(&cluster);
        if let (Some(client), Some(tenant)) = (caller, tenant)
            && tenant.member.client_not_before().is_some_and(|not_before| not_before.excludes(client.valid_from))
        {
            return Err(Status::permission_denied(format!(
                "the client certificate of {} is excluded by the annotation {CLIENT_NOT_BEFORE} of Cluster {cluster}: \
                 issue a new one",
                client.name
            )));
        }
        let standing = tenant.map(|tenant| (tenant, tenant.member.left()));
        match (standing, access) {
            (Some((tenant, None)), _) => {
                tenant.member.called();
                Ok(tenant.service.clone())
            }
            (Some((tenant, Some(_))), Access::Read) => Ok(tenant.service.clone()),
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

impl ServedClusters for Tenants {
    fn clusters(&self) -> Vec<ServedCluster> {
        let mut clusters: Vec<_> = self.by_cluster.read().values().map(Tenant::shown).collect();
        clusters.sort_by(|a, b| a.member.cluster().cmp(b.member.cluster()));
        clusters
    }

    fn cluster(&self, cluster: &ObjectKey) -> Option<ServedCluster> {
        self.by_cluster.read().get(cluster).map(Tenant::shown)
    }

    fn denied_callers(&self) -> DeniedCallers {
        self.denied.callers()
    }
}

impl cluster::Tenants for Tenants {
    fn joined(&self, member: &Member) {
        let tenant = self.parts.tenant(member);
        let replaced = self.by_cluster.write().insert(member.cluster().clone(), tenant);
        // It is dropped without the lock.
        drop(replaced);
    }

    fn left(&self, member: &Member) {
        if let Some(tenant) = self.by_cluster.read().get(member.cluster())
            && tenant.member.uid() == member.uid()
        {
            match member.left() {
                // Its last state is kept for the commands under way.
                Some(Left::OptedOut) => tenant.scale.leave(),
                Some(Left::Deleted | Left::Replaced) | None => tenant.scale.stop(),
            }
        }
    }

    fn dropped(&self, member: &Member) {
        let mut by_cluster = self.by_cluster.write();
        if by_cluster.get(member.cluster()).is_some_and(|tenant| tenant.member.left().is_some()) {
            by_cluster.remove(member.cluster());
        }
    }
}
