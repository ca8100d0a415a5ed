//! The provider of one workload cluster without its listeners: informers, index, writes and gRPC service, joined. It
//! reaches everything outside through the clients, tasks and registry that it is given, and must never open a socket or
//! read a file: the simulation runs it on a network of its own.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use capi::Keys;
use kube::Client;
use prometheus_client::registry::Registry;
use shared_informer::Spawner;

use super::{ClusterOptions, Clusters};
use cluster::InformerMetrics;
use connect::Clients;
use discovery::CoreResources;
use grpc::{CallLogOptions, RpcMetrics, Service};
use index::{Freshness, GroupMetrics, GroupSeries, Index};
use scale::traces::Traces;
use scale::{Api, EventRecorder, Scale, ScaleMetrics, ScaleOptions};

/// The options of a provider.
#[derive(Clone, Debug)]
pub struct ProviderOptions {
    /// The options for reading the clusters.
    pub clusters: ClusterOptions,
    /// The choice between series for each node group and sums only.
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
    /// The clusters, with the index.
    pub clusters: Clusters,
    /// The writes.
    pub scale: Scale,
    /// The answers to Cluster Autoscaler.
    pub service: Service,
}

impl Provider {
    /// Starts everything in the background, adds its metrics to `registry`, and returns at once.
    #[must_use]
    pub fn start(
        management: Clients,
        options: ProviderOptions,
        traces: Traces,
        registry: &mut Registry,
        tasks: &Spawner,
    ) -> Self {
        let management = if options.scale.read_only { management.read_only() } else { management };
        let clusters = Clusters::start(management, options.clusters, tasks);
        registry.register_collector(Box::new(InformerMetrics::new(clusters.workload.clone())));
        let groups = GroupMetrics::new(Arc::clone(clusters.workload.index()), options.group_series);
        registry.register_collector(Box::new(groups));
        let metrics = ScaleMetrics::register(registry);
        let log = CallLogOptions { slow: options.slow_rpc, traces };
        let events = match &options.events {
            Some(instance) => {
                let (client, resources) =
                    (clusters.management.clients().writes.clone(), clusters.management.resources());
                EventRecorder::start(client, resources, instance, metrics.clone(), tasks)
            }
            None => EventRecorder::off(),
        };
        let (scale, service) = Backend::of(&clusters).answer(options.scale, (metrics, events), log, registry, tasks);
        Self { clusters, scale, service }
    }
}

/// Returns the service over an index that was filled by hand, for benches and fuzz targets. The index always counts as
/// fresh. `client` writes nothing, since the kinds of Cluster API aren't discovered.
#[must_use]
pub fn service_of_index(index: Index, client: Client, tasks: &Spawner) -> Service {
    let backend = Backend {
        index: Arc::new(index),
        freshness: Arc::new(StaticIndex),
        client,
        resources: Arc::new(ArcSwapOption::empty()),
        keys: Keys::default(),
    };
    let registry = &mut Registry::default();
    let writes = (ScaleMetrics::register(registry), EventRecorder::off());
    backend.answer(ScaleOptions::default(), writes, CallLogOptions::default(), registry, tasks).1
}

/// The source of an index that was filled by hand: always fresh.
struct StaticIndex;

impl Freshness for StaticIndex {
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

/// An index, the source that fills it, and the client that carries out its commands.
struct Backend {
    /// The index that is read.
    index: Arc<Index>,
    /// The check that the index is fresh.
    freshness: Arc<dyn Freshness>,
    /// The client for writes.
    client: Client,
    /// The kinds of Cluster API as they are served; without them nothing can be written.
    resources: Arc<ArcSwapOption<CoreResources>>,
    /// The annotation keys in force.
    keys: Keys,
}

impl Backend {
    /// Returns the backend of clusters that informers watch.
    fn of(clusters: &Clusters) -> Self {
        let Clusters { management, workload } = clusters;
        Self {
            index: Arc::clone(workload.index()),
            freshness: Arc::new(workload.clone()),
            client: management.clients().writes.clone(),
            resources: management.resources(),
            keys: management.context().keys.clone(),
        }
    }

    /// Returns the writes and the gRPC service of the backend, and adds the metrics of the service to `registry`.
    fn answer(
        self,
        options: ScaleOptions,
        (metrics, events): (ScaleMetrics, EventRecorder),
        log: CallLogOptions,
        registry: &mut Registry,
        tasks: &Spawner,
    ) -> (Scale, Service) {
        let api = Api::new(self.client, self.resources, self.keys).traced(log.traces.clone());
        let index = Arc::clone(&self.index);
        let scale = Scale::new(index, api, options, metrics, events, tasks);
        let metrics = RpcMetrics::register(registry);
        let service = Service::new(self.index, scale.clone(), self.freshness, metrics, log);
        (scale, service)
    }
}
