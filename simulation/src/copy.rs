//! A copy of the program: its informers, index, writes and gRPC service, as `serve` joins them, on a host of its own.

use std::sync::Arc;

use bytes::Bytes;
use capi_autoscaler_provider::{
    capi::Keys,
    cluster::{Management, ManagementOptions, Workload, WorkloadOptions},
    connect::{Clients, Policy, WorkloadSource},
    grpc::{RpcMetrics, Service},
    index::Index,
    informer::Settings,
    nodegroup::{ErrorRules, Rules, Scope, TemplateRules},
    proto::{
        NodeGroupNodesRequest, NodeGroupTargetSizeRequest, NodeGroupsRequest, RefreshRequest,
        cloud_provider_client::CloudProviderClient, cloud_provider_server::CloudProviderServer,
    },
    scale::{Api, EventRecorder, Scale, ScaleMetrics, ScaleOptions},
};
use http::Request;
use http_body_util::Full;
use prometheus_client::registry::Registry;
use tokio::runtime::Handle;
use tower::{BoxError, ServiceExt as _};

use crate::{
    host::Host,
    network::{Answer, Message, Port, RpcResult},
    tasks::Scheduler,
    witness::Witness,
};

/// Cluster Autoscaler's own limit for a call: beyond it the handler is dropped.
const DEADLINE: std::time::Duration = std::time::Duration::from_secs(5);

/// A running copy.
pub(crate) struct Copy {
    pub(crate) host: Host,
    port: Port,
    scheduler: Scheduler,
    server: CloudProviderServer<Service>,
    pub(crate) witness: Witness,
    /// Parts that must live as long as the copy.
    _workload: Workload,
    _management: Management,
    _scale: Scale,
}

fn rules() -> Rules {
    Rules {
        keys: Keys::new("cluster.x-k8s.io"),
        scope: Scope::All,
        template: TemplateRules::default(),
        prices: Arc::default(),
        errors: ErrorRules::default(),
    }
}

impl Copy {
    /// Starts a copy on a host.
    pub(crate) fn start(host: Host, port: Port, name: &str, scheduler: Scheduler) -> Self {
        let (management, workload, scale, witness, server) = host.enter(async {
            let tasks = scheduler.spawner(&Handle::current());
            let clients = Clients { watches: port.client(Policy::WATCHES), writes: port.client(Policy::WRITES) };
            let options = ManagementOptions {
                group: "cluster.x-k8s.io".to_owned(),
                version: None,
                informers: Settings::default(),
            };
            let management = Management::start(clients, options, &tasks);
            let options = WorkloadOptions {
                rules: rules(),
                source: WorkloadSource::Management,
                max_staleness: std::time::Duration::from_secs(60),
                informers: Settings::default(),
            };
            let workload = Workload::start(management.clone(), options, &tasks);
            let mut registry = Registry::default();
            let client = management.clients().writes.clone();
            let metrics = ScaleMetrics::register(&mut registry);
            let events = EventRecorder::start(client.clone(), management.resources(), name, metrics.clone(), &tasks);
            let api = Api::new(client, management.resources(), management.context().keys.clone());
            let index: Arc<Index> = Arc::clone(workload.index());
            let machines = Arc::new(workload.clone());
            let options = ScaleOptions::default();
            let scale = Scale::new(Arc::clone(&index), api, machines, options, metrics, events, tasks);
            let metrics = RpcMetrics::register(&mut registry);
            let service = Service::new(index, scale.clone(), Arc::new(workload.clone()), metrics);
            let witness = Witness::start(management.factory());
            (management, workload, scale, witness, CloudProviderServer::new(service))
        });
        Self { host, port, scheduler, server, witness, _workload: workload, _management: management, _scale: scale }
    }

    /// Answers a call on its host.
    pub(crate) fn answer(&self, number: u64, parts: http::request::Parts, body: Bytes) {
        let (server, port, scheduler) = (self.server.clone(), self.port.clone(), self.scheduler.clone());
        self.host.spawn(async move {
            let request = Request::from_parts(parts, tonic::body::Body::new(Full::new(body)));
            let answered = tokio::time::timeout(DEADLINE, scheduler.schedule(Box::pin(server.oneshot(request)))).await;
            let result: RpcResult = match answered {
                Ok(Ok(response)) => Answer::read(response).await.map_err(BoxError::from),
                Ok(Err(never)) => match never {},
                Err(_) => Err(BoxError::from("the deadline is over")),
            };
            port.send(Message::Reply(number, result));
        });
    }

    /// Its answers to reads, after a Refresh: a line for each group's bounds and size, and for each instance.
    pub(crate) fn answers(&self) -> Result<Vec<String>, tonic::Status> {
        let mut client = CloudProviderClient::new(self.server.clone());
        self.host.enter(async move {
            client.refresh(RefreshRequest {}).await?;
            let mut lines = Vec::new();
            for group in client.node_groups(NodeGroupsRequest {}).await?.into_inner().node_groups {
                let id = group.id;
                let size = client.node_group_target_size(NodeGroupTargetSizeRequest { id: id.clone() }).await?;
                let size = size.into_inner().target_size;
                lines.push(format!("{id} {}..{} {size}", group.min_size, group.max_size));
                let instances = client.node_group_nodes(NodeGroupNodesRequest { id: id.clone() }).await?.into_inner();
                for instance in instances.instances {
                    lines.push(format!("{id} {} {:?}", instance.id, instance.status));
                }
            }
            Ok(lines)
        })
    }
}
