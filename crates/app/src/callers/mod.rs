//! The callers: which workload cluster answers a call, and the writes and the service of each. One workload cluster answers
//! whoever may connect. Of many, each is the tenant of its own autoscaler: a caller is denied unless its certificate names
//! a Cluster that is served now.

mod metrics;

use std::{
    cmp::Reverse,
    collections::HashMap,
    fmt,
    net::IpAddr,
    str::FromStr,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use cluster::{Fleet, Left, WorkloadCluster};
use connect::ClusterRef;
use page::state::{DeniedCallers, DeniedClient, ServedCluster, ServedClusters};
use parking_lot::{Mutex, RwLock};
use rules::{
    GroupId,
    capi::{CLIENT_NOT_BEFORE, ObjectKey},
};
use scale::{Api, EventRecorder, Scale, ScaleMetrics, ScaleOptions, WriteBudget};
use service::{Access, Autoscaler, CallLogOptions, listen::Client};
use shared_informer::Spawner;
use thiserror::Error;
use tokio::task::JoinSet;
use tonic::Status;

pub(super) use crate::callers::metrics::{FleetGroupMetrics, FleetMetrics};

/// The parts that all services share.
pub(super) struct Parts {
    pub(super) options: ScaleOptions,
    pub(super) scale_metrics: ScaleMetrics,
    pub(super) events: EventRecorder,
    pub(super) budget: WriteBudget,
    pub(super) log: CallLogOptions,
    pub(super) tasks: Spawner,
}

/// The choice of the callers who are answered.
pub(super) enum Admission {
    /// Whoever may connect is answered by the only workload cluster.
    Anyone,
    /// A certificate names the Cluster of its holder.
    ByCertificate(TrustDomain),
}

/// The callers, and the workload clusters that answer them.
pub(super) struct Callers {
    admission: Admission,
    parts: Parts,
    /// The workload clusters; none is known before it is set.
    fleet: OnceLock<Fleet>,
    by_cluster: RwLock<HashMap<Option<ObjectKey>, Tenant>>,
    denied: Denied,
}

/// A workload cluster with what answers its autoscaler.
struct Tenant {
    cluster: WorkloadCluster,
    autoscaler: Arc<Autoscaler>,
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
        let autoscaler = Autoscaler::new(Arc::clone(index), scale, move || watched.check_fresh(), log.clone());
        let unexpected = Arc::<Unexpected>::default();
        let autoscaler = if is_one_of_many {
            let (asked, counts) = (cluster.clone(), Arc::clone(&unexpected));
            autoscaler.of_one_of_many(move |group, client| asked_for(&asked, &counts, group, client))
        } else {
            autoscaler
        };
        let autoscaler = Arc::new(autoscaler);
        Tenant { cluster: cluster.clone(), autoscaler, unexpected }
    }
}

impl Tenant {
    /// Returns it as it is shown.
    fn shown(&self) -> ServedCluster {
        let Counts { denied, foreign, last: last_unexpected, .. } = self.unexpected.counts();
        ServedCluster {
            cluster: self.cluster.clone(),
            calls: self.autoscaler.calls().clone(),
            history: self.autoscaler.scale().history().clone(),
            denied,
            foreign,
            last_unexpected,
        }
    }
}

impl Callers {
    pub(super) fn new(admission: Admission, parts: Parts) -> Self {
        let (by_cluster, denied) = (RwLock::default(), Denied::default());
        Self { admission, parts, fleet: OnceLock::new(), by_cluster, denied }
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
        for scale in self.by_cluster.read().values().map(|tenant| tenant.autoscaler.scale().clone()) {
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
    pub(super) fn remembered(&self) -> usize {
        self.by_cluster.read().values().map(|tenant| tenant.autoscaler.scale().remembered()).sum()
    }

    /// Returns the history of a Cluster.
    #[cfg(test)]
    pub(super) fn history(&self, cluster: &ObjectKey) -> Option<scale::History> {
        self.by_cluster.read().get(&Some(cluster.clone())).map(|tenant| tenant.autoscaler.scale().history().clone())
    }

    /// Returns the Cluster that a caller's certificate names; `None` stands for the only workload cluster.
    fn cluster_of(&self, caller: Option<&Client>) -> Result<Option<ObjectKey>, Status> {
        let Admission::ByCertificate(trust_domain) = &self.admission else { return Ok(None) };
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
    fn admit(&self, caller: Option<&Client>, access: Access) -> Result<Arc<Autoscaler>, Status> {
        let named = self.cluster_of(caller)?;
        let by_cluster = self.by_cluster.read();
        let tenant = by_cluster.get(&named);
        let Some(cluster) = named else {
            // The only one has joined before anybody could call.
            return tenant.map(|tenant| Arc::clone(&tenant.autoscaler)).ok_or_else(|| Status::unavailable("not ready"));
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
                Ok(Arc::clone(&tenant.autoscaler))
            }
            (Some((tenant, Some(_))), Access::Read) => Ok(Arc::clone(&tenant.autoscaler)),
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
                Some(Left::OptedOut) => tenant.autoscaler.scale().leave(),
                Some(Left::Deleted | Left::Replaced) | None => tenant.autoscaler.scale().stop(),
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

// The callers that were denied, also those of Clusters that aren't served: nobody else shows that a Cluster lacks its
// label, or that a certificate names none.

/// The maximum number of callers that are known. Of more, those are forgotten that were denied least lately.
const MOST: usize = 64;

/// The callers that were denied lately, and the number of their calls.
#[derive(Debug, Default)]
pub(super) struct Denied(Mutex<All>);

#[derive(Debug, Default)]
struct All {
    calls: u64,
    callers: HashMap<String, Caller>,
}

/// A caller that was denied.
#[derive(Debug)]
struct Caller {
    peer: Option<IpAddr>,
    reason: String,
    calls: u64,
    last: Instant,
}

impl Denied {
    /// Adds a call of this client.
    pub(super) fn add(&self, client: Option<&Client>, reason: &str, now: Instant) {
        let mut all = self.0.lock();
        all.calls += 1;
        let Some(client) = client else { return };
        let identity = client.identity();
        if let Some(caller) = all.callers.get_mut(&*identity) {
            (caller.peer, caller.last) = (client.peer, now);
            caller.calls += 1;
            if caller.reason != reason {
                reason.clone_into(&mut caller.reason);
            }
            return;
        }
        if all.callers.len() >= MOST {
            let first = all.callers.iter().min_by_key(|(_, caller)| caller.last).map(|(identity, _)| identity.clone());
            if let Some(first) = first {
                all.callers.remove(&first);
            }
        }
        let caller = Caller { peer: client.peer, reason: reason.to_owned(), calls: 1, last: now };
        all.callers.insert(identity.into_owned(), caller);
    }

    /// Returns the callers, the last one first, and the number of all calls.
    pub(super) fn callers(&self) -> DeniedCallers {
        let all = self.0.lock();
        let shown = |(identity, caller): (&String, &Caller)| DeniedClient {
            identity: identity.clone(),
            peer: caller.peer,
            reason: caller.reason.clone(),
            calls: caller.calls,
            last: caller.last,
        };
        let mut callers: Vec<_> = all.callers.iter().map(shown).collect();
        callers.sort_by_key(|caller| Reverse(caller.last));
        DeniedCallers { calls: all.calls, callers }
    }
}

// The identity of an autoscaler: the SPIFFE id of its Cluster, which is the only URI of its certificate. Nothing but
// the exact form is an identity: no other case, no percent-encoding, no further path.

/// The maximum length of a trust domain (SPIFFE-ID, section 2.3).
const LONGEST: usize = 255;

/// The trust domain of the autoscalers' identities, such as `example.org`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TrustDomain(String);

/// The error of a text that isn't a trust domain.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error(
    "it has to be a trust domain of SPIFFE, such as example.org: 1 to {LONGEST} lower-case letters, digits, '.', '-' and '_'"
)]
pub struct TrustDomainError;

impl FromStr for TrustDomain {
    type Err = TrustDomainError;

    fn from_str(text: &str) -> Result<Self, TrustDomainError> {
        let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-_".contains(&byte);
        let is_domain = (1..=LONGEST).contains(&text.len()) && text.bytes().all(is_allowed);
        if is_domain { Ok(Self(text.to_owned())) } else { Err(TrustDomainError) }
    }
}

impl fmt::Display for TrustDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TrustDomain {
    /// Returns the Cluster of `spiffe://<trust-domain>/ns/<namespace>/cluster/<name>`; `None` for any other text.
    pub(super) fn cluster_of(&self, uri: &str) -> Option<ObjectKey> {
        let path = uri.strip_prefix("spiffe://")?.strip_prefix(self.0.as_str())?;
        let (namespace, name) = path.strip_prefix("/ns/")?.split_once("/cluster/")?;
        let cluster = ClusterRef::new(namespace, name).ok()?;
        Some(ObjectKey::new(cluster.namespace(), cluster.name()))
    }
}

// The calls that no autoscaler of a Cluster should make: those that are denied, and those for node groups of other
// Clusters. The caller gets the same answer as for a group that doesn't exist, and the operator a count and a warning.

/// The time after a log line in which further calls of the same Cluster are only counted.
const PAUSE: Duration = Duration::from_secs(60);

/// The log target of the lines about callers.
const LOG: &str = "app::fleet";

/// The unexpected calls of the callers of one Cluster.
#[derive(Debug, Default)]
pub(super) struct Unexpected(Mutex<Counts>);

/// The numbers of unexpected calls.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// The number of calls that were denied.
    pub(super) denied: u64,
    /// The number of calls for node groups of other Clusters.
    pub(super) foreign: u64,
    /// The time of the last one.
    pub(super) last: Option<Instant>,
    logged: Option<Instant>,
    /// The number of calls for node groups of other Clusters since the last log line.
    more: u64,
}

impl Unexpected {
    pub(super) fn counts(&self) -> Counts {
        *self.0.lock()
    }

    /// Counts a call that was denied.
    pub(super) fn denied(&self, now: Instant) {
        let mut counts = self.0.lock();
        counts.denied += 1;
        counts.last = Some(now);
    }

    /// Counts a call for a node group of another Cluster. Returns the number of those since the last log line if this
    /// one has to be logged.
    fn foreign(&self, now: Instant) -> Option<u64> {
        let mut counts = self.0.lock();
        counts.foreign += 1;
        counts.last = Some(now);
        if counts.logged.is_some_and(|logged| now.saturating_duration_since(logged) < PAUSE) {
            counts.more += 1;
            return None;
        }
        counts.logged = Some(now);
        Some(std::mem::take(&mut counts.more))
    }
}

/// Counts and logs a call of one of a Cluster's callers, if it is for a node group of another Cluster.
pub(super) fn asked_for(cluster: &WorkloadCluster, unexpected: &Unexpected, group: &GroupId, client: Option<&Client>) {
    let Some(own) = cluster.cluster() else { return };
    let Some(other) = cluster.cluster_of(group).filter(|other| other != own) else { return };
    let Some(more) = unexpected.foreign(Instant::now()) else { return };
    let client = client.map(Client::certified).unwrap_or_default();
    tracing::warn!(
        target: LOG,
        cluster = %own,
        %group,
        of = %other,
        client = client.as_str(),
        more,
        "a client asks for a node group of another Cluster, which it isn't answered about: its certificate may be in use \
         by another cluster's autoscaler"
    );
}

#[cfg(test)]
mod tests;
