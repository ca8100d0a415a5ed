//! The provider of many workload clusters without its listeners: each Cluster that is served has an index, writes and a
//! service of its own, and each call is answered by those of its caller's Cluster. As the provider of one cluster, it
//! must never open a socket or read a file.

mod denied;
mod identity;
mod metrics;
mod tenants;
#[cfg(test)]
mod tests;
mod unexpected;

use std::{sync::Arc, time::Duration};

use prometheus_client::registry::Registry;
use shared_informer::Spawner;

pub use self::identity::{TrustDomain, TrustDomainError};
pub(super) use self::metrics::FleetGroupMetrics;
use self::{
    metrics::FleetMetrics,
    tenants::{Parts, Tenants},
};
use cluster::{Fleet, FleetOptions, InformerMetrics, Management, ManagementOptions};
use connect::Clients;
use grpc::{ByCaller, CallLogOptions, RpcMetrics};
use page::state::ServedClusters;
use scale::traces::Traces;
use scale::{EventRecorder, ScaleMetrics, ScaleOptions, WriteBudget};

/// The options of a fleet's provider.
#[derive(Clone, Debug)]
pub struct FleetProviderOptions {
    /// The options for reading the Clusters.
    pub fleet: FleetOptions,
    /// The trust domain in the identities of the callers.
    pub trust_domain: TrustDomain,
    /// The version of Cluster API; `None` is the one that the API server prefers.
    pub capi_version: Option<String>,
    /// The name of this replica in its Kubernetes Events; with `None` it posts no Events.
    pub events: Option<String>,
    /// The duration above which reads are logged.
    pub slow_rpc: Duration,
    /// The operator's options for writes. In read-only mode no client can write.
    pub scale: ScaleOptions,
}

/// A running provider of many workload clusters.
#[derive(Clone)]
pub struct FleetProvider {
    management: Management,
    /// The Clusters.
    pub fleet: Fleet,
    tenants: Arc<Tenants>,
    /// The answers to the autoscalers.
    pub service: ByCaller,
}

impl FleetProvider {
    /// Starts everything in the background, adds its metrics to `registry`, and returns at once.
    #[must_use]
    pub fn start(
        management: Clients,
        options: FleetProviderOptions,
        traces: Traces,
        registry: &mut Registry,
        tasks: &Spawner,
    ) -> Self {
        let FleetProviderOptions { fleet, trust_domain, capi_version, events, slow_rpc, scale } = options;
        let management = if scale.read_only { management.read_only() } else { management };
        let group = fleet.rules.keys.group.clone();
        let of_management = ManagementOptions { group, version: capi_version, informers: fleet.informers.clone() };
        let management = Management::start(management, of_management, tasks);
        let (scale_metrics, rpc_metrics) = (ScaleMetrics::register(registry), RpcMetrics::register(registry));
        let log = CallLogOptions { slow: slow_rpc, traces };
        let events = events.map_or_else(EventRecorder::off, |instance| {
            let (client, resources) = (management.clients().writes.clone(), management.resources());
            EventRecorder::start(client, resources, &instance, scale_metrics.clone(), tasks)
        });
        let tenants = Arc::new(Tenants::new(
            trust_domain,
            Parts {
                management: management.clone(),
                options: scale,
                scale_metrics,
                events,
                budget: WriteBudget::default(),
                rpc_metrics: rpc_metrics.clone(),
                log: log.clone(),
                tasks: tasks.clone(),
            },
        ));
        let fleet = Fleet::start(management.clone(), fleet, Arc::clone(&tenants) as _, tasks);
        tenants.answer_for(fleet.clone());
        registry.register_collector(Box::new(InformerMetrics::of_fleet(fleet.clone())));
        registry.register_collector(Box::new(FleetMetrics::new(fleet.clone(), Arc::clone(&tenants) as _)));
        let service = ByCaller::new(Arc::clone(&tenants) as _, rpc_metrics, log);
        Self { management, fleet, tenants, service }
    }

    /// Returns the Clusters that are served, or were until lately, as they are shown.
    #[must_use]
    pub fn served(&self) -> Arc<dyn ServedClusters> {
        Arc::clone(&self.tenants) as _
    }

    /// Lets the running commands of all Clusters finish, for at most `limit`.
    ///
    /// # Errors
    /// The number of commands that were still running.
    pub async fn drain(&self, limit: Duration) -> Result<(), usize> {
        self.tenants.drain(limit).await
    }

    /// Returns the number of groups of all Clusters with a command under way or waiting: zero at rest.
    #[must_use]
    pub fn remembered(&self) -> usize {
        self.tenants.remembered()
    }

    /// Stops all tasks, and waits for them.
    pub async fn shutdown(&self) {
        self.fleet.shutdown().await;
        self.management.shutdown().await;
    }
}
