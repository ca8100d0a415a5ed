//! The provider without its listeners: informers, indexes, writes and gRPC service, joined. It reaches everything outside
//! through the clients, tasks and registry that it is given, and must never open a socket or read a file: the simulation
//! runs it on a network of its own.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use kube::Client;
use prometheus_client::registry::Registry;
use rules::capi::Keys;
use shared_informer::Spawner;

use super::callers::{AdmitBy, Callers, FleetMetrics, Parts, TrustDomain};
use cluster::{Fleet, FleetOptions, InformerMetrics, Management, Serve};
use connect::Clients;
use index::{GroupMetrics, GroupSeries, Index, MemoryMetrics};
use scale::traces::Traces;
use scale::{Api, EventRecorder, MemoryKeeper, Scale, ScaleMetrics, ScaleOptions, WriteBudget};
use service::{CallLogOptions, RpcMetrics, Service, Session};

/// The options of a provider.
#[derive(Clone, Debug)]
pub struct ProviderOptions {
    /// Which workload clusters are served.
    pub serve: Serve,
    /// The options for reading the clusters.
    pub reading: FleetOptions,
    /// The trust domain in the identities of callers; `None` asks for no identity, if there is one workload cluster.
    pub trust_domain: Option<TrustDomain>,
    /// The choice between series for each node group and sums only; a fleet has no sums either.
    pub group_series: GroupSeries,
    /// The name of this replica in its Kubernetes Events; with `None` it posts no Events.
    pub events: Option<String>,
    /// The duration above which reads are logged.
    pub slow_rpc: Duration,
    /// The operator's options for writes. In read-only mode no client can write.
    pub scale: ScaleOptions,
}

/// A running provider.
#[derive(Clone)]
pub struct Provider {
    /// The management cluster.
    pub management: Management,
    /// The workload clusters.
    pub fleet: Fleet,
    pub(super) callers: Arc<Callers>,
    /// Writes what is remembered of Nodes, unless nothing is or may be written.
    keeper: Option<MemoryKeeper>,
    /// The answers to Cluster Autoscaler.
    pub service: Service,
}

impl Provider {
    /// Starts everything in the background, adds its metrics to `registry`, and returns at once.
    pub fn start(
        management: Clients,
        options: ProviderOptions,
        traces: Traces,
        registry: &mut Registry,
        tasks: &Spawner,
    ) -> Self {
        let ProviderOptions { serve, reading, trust_domain, group_series, events, slow_rpc, scale } = options;
        let management = if scale.read_only { management.read_only() } else { management };
        let management = Management::start(management, reading.management(), tasks);
        let (scale_metrics, rpc_metrics) = (ScaleMetrics::register(registry), RpcMetrics::register(registry));
        let log = CallLogOptions { slow: slow_rpc, traces };
        let events = events.map_or_else(EventRecorder::off, |instance| {
            let (client, resources) = (management.clients().writes.clone(), management.resources());
            EventRecorder::start(client, resources, &instance, scale_metrics.clone(), tasks)
        });
        let kept = (!scale.read_only).then(|| (management.clients().writes.clone(), scale_metrics.clone()));
        let parts = Parts {
            options: scale,
            scale_metrics,
            events,
            budget: WriteBudget::default(),
            log: log.clone(),
            tasks: tasks.clone(),
        };
        let admit_by = trust_domain.map_or(AdmitBy::Connection, AdmitBy::Certificate);
        let callers = Arc::new(Callers::new(admit_by, parts));
        let fleet = Fleet::start(management.clone(), serve, reading, Arc::clone(&callers) as _, tasks);
        callers.answer_for(fleet.clone());
        let keeper = kept.zip(fleet.memory()).map(|((client, metrics), memory)| {
            let groups = fleet.clone();
            MemoryKeeper::start(memory, &client, move || groups.used_templates(), &metrics, tasks)
        });
        registry.register_collector(Box::new(MemoryMetrics::new(fleet.memory().cloned())));
        registry.register_collector(Box::new(InformerMetrics::new(fleet.clone())));
        if let Some(only) = fleet.only() {
            registry.register_collector(Box::new(GroupMetrics::new(Arc::clone(only.index()), group_series)));
        } else {
            let metrics = FleetMetrics::new(fleet.clone(), Arc::clone(&callers) as _, group_series);
            registry.register_collector(Box::new(metrics));
        }
        let service = Service::new(Arc::clone(&callers) as _, rpc_metrics, log);
        Self { management, fleet, callers, keeper, service }
    }

    /// Lets the running commands of all workload clusters finish, for at most `limit`.
    ///
    /// # Errors
    /// The number of commands that were still running.
    pub async fn drain(&self, limit: Duration) -> Result<(), usize> {
        self.callers.drain(limit).await
    }

    /// Returns the number of groups with a command under way or waiting: zero at rest.
    pub fn busy_groups(&self) -> usize {
        self.callers.busy_groups()
    }

    /// Stops all tasks, and waits for them.
    pub async fn shutdown(&self) {
        if let Some(keeper) = &self.keeper {
            keeper.end().await;
        }
        self.fleet.shutdown().await;
    }
}

/// Returns the service over an index that was filled by hand, for benches and fuzz targets. The index always counts as
/// fresh. `client` writes nothing, since the kinds of Cluster API aren't discovered.
pub fn service_of_index(index: Index, client: Client, tasks: &Spawner) -> Service {
    let (index, registry) = (Arc::new(index), &mut Registry::default());
    let api = Api::new(client, Arc::new(ArcSwapOption::empty()), Keys::default());
    let metrics = ScaleMetrics::register(registry);
    let scale = Scale::new(Arc::clone(&index), api, ScaleOptions::default(), metrics, EventRecorder::off(), tasks);
    let (metrics, log) = (RpcMetrics::register(registry), CallLogOptions::default());
    let session = Session::new(index, scale, || Ok(()), log.clone());
    Service::new(Arc::new(Arc::new(session)), metrics, log)
}
