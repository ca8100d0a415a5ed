//! A copy of the program: its informers, index, writes and gRPC service, as `serve` joins them, on a host of its own.

use std::sync::Arc;

use bytes::Bytes;
use capi_autoscaler_provider::{
    capi::Keys,
    cluster::{Management, ManagementOptions, Workload, WorkloadOptions},
    connect::{Clients, WorkloadSource},
    grpc::{RpcMetrics, Service},
    index::Index,
    informer::Settings,
    nodegroup::{ErrorRules, Rules, Scope, TemplateRules},
    proto::cloud_provider_server::CloudProviderServer,
    scale::{Api, EventRecorder, Scale, ScaleMetrics, ScaleOptions},
};
use http::Request;
use http_body_util::{BodyExt as _, Full};
use prometheus_client::registry::Registry;
use tokio::runtime::Handle;
use tower::{BoxError, ServiceExt as _};

use crate::{
    host::Host,
    network::{Message, Port, RpcResult},
};

/// Cluster Autoscaler's own limit for a call: beyond it the handler is dropped.
const DEADLINE: std::time::Duration = std::time::Duration::from_secs(5);

/// A running copy.
pub(crate) struct Copy {
    pub(crate) host: Host,
    port: Port,
    server: CloudProviderServer<Service>,
    /// What must live as long as the copy.
    pub(crate) workload: Workload,
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
    pub(crate) fn start(host: Host, port: Port, name: &str) -> Self {
        let (management, workload, scale, server) = host.enter(async {
            let runtime = Handle::current();
            let clients = Clients { watches: port.client(), writes: port.client() };
            let options = ManagementOptions {
                group: "cluster.x-k8s.io".to_owned(),
                version: None,
                informers: Settings::default(),
            };
            let management = Management::start(clients, options, &runtime);
            let options = WorkloadOptions {
                rules: rules(),
                source: WorkloadSource::Management,
                max_staleness: std::time::Duration::from_secs(60),
                informers: Settings::default(),
            };
            let workload = Workload::start(management.clone(), options, &runtime);
            let mut registry = Registry::default();
            let client = management.clients().writes.clone();
            let metrics = ScaleMetrics::register(&mut registry);
            let events = EventRecorder::start(client.clone(), management.resources(), name, metrics.clone(), &runtime);
            let api = Api::new(client, management.resources(), management.context().keys.clone());
            let index: Arc<Index> = Arc::clone(workload.index());
            let machines = Arc::new(workload.clone());
            let options = ScaleOptions::default();
            let scale = Scale::new(Arc::clone(&index), api, machines, options, metrics, events, runtime);
            let metrics = RpcMetrics::register(&mut registry);
            let service = Service::new(index, scale.clone(), Arc::new(workload.clone()), metrics);
            (management, workload, scale, CloudProviderServer::new(service))
        });
        Self { host, port, server, workload, _management: management, _scale: scale }
    }

    /// Answers a call on its host.
    pub(crate) fn answer(&self, number: u64, parts: http::request::Parts, body: Bytes) {
        let (server, port) = (self.server.clone(), self.port.clone());
        self.host.spawn(async move {
            let request = Request::from_parts(parts, tonic::body::Body::new(Full::new(body)));
            let answered = tokio::time::timeout(DEADLINE, server.oneshot(request)).await;
            let result: RpcResult = match answered {
                Ok(Ok(response)) => {
                    let (parts, body) = response.into_parts();
                    match body.collect().await {
                        Ok(body) => Ok(http::Response::from_parts(parts, body)),
                        Err(error) => Err(BoxError::from(error)),
                    }
                }
                Ok(Err(never)) => match never {},
                Err(_) => Err(BoxError::from("the deadline is over")),
            };
            port.send(Message::Reply(number, result));
        });
    }
}
