//! A copy of the program without its listeners, on a host of its own.

use std::{collections::BTreeSet, time::Duration};

use app::{ClusterOptions, DRAIN, Provider, ProviderOptions};
use bytes::Bytes;
use connect::{Clients, Policy, WorkloadSource};
use grpc::Service;
use http::Request;
use http_body_util::Full;
use index::GroupSeries;
use nodegroup::{Grace, Rules, Scope};
use prometheus_client::registry::Registry;
use proto::{
    ExternalGrpcNode, NodeGroupAutoscalingOptions, NodeGroupAutoscalingOptionsRequest, NodeGroupForNodeRequest,
    NodeGroupNodesRequest, NodeGroupTargetSizeRequest, NodeGroupTemplateNodeInfoRequest, NodeGroupsRequest,
    RefreshRequest, cloud_provider_client::CloudProviderClient, cloud_provider_server::CloudProviderServer,
};
use scale::ScaleOptions;
use tokio::{runtime::Handle, time::timeout};
use tokio_util::task::TaskTracker;
use tower::{BoxError, ServiceExt as _};
use traces::Traces;

use crate::{
    host::Host,
    ledger,
    network::{Answer, Message, Port, RpcResult},
    tasks::Scheduler,
    witness::Witness,
};

/// Cluster Autoscaler's own limit for a call, beyond which the handler is dropped.
const DEADLINE: Duration = Duration::from_secs(5);

/// A running copy.
pub(crate) struct Copy {
    pub(crate) host: Host,
    port: Port,
    scheduler: Scheduler,
    server: CloudProviderServer<Service>,
    pub(crate) witness: Witness,
    provider: Provider,
    /// The calls under way.
    calls: TaskTracker,
}

fn provider(name: &str, scale: ScaleOptions) -> ProviderOptions {
    let rules = Rules { errors: scale.error_rules(Grace::default()), ..Rules::new(Scope::All) };
    ProviderOptions {
        clusters: ClusterOptions {
            rules,
            workload: WorkloadSource::Management,
            capi_version: None,
            max_staleness: Duration::from_secs(60),
        },
        group_series: GroupSeries::Each,
        events: Some(name.to_owned()),
        slow_rpc: Duration::from_millis(100),
        scale,
    }
}

impl Copy {
    /// Starts a copy on a host.
    pub(crate) fn start(host: Host, port: Port, name: &str, scheduler: Scheduler, options: ScaleOptions) -> Self {
        let (provider, witness) = host.enter(async {
            let tasks = scheduler.spawner(&Handle::current());
            let clients = Clients { watches: port.client(Policy::WATCHES), writes: port.client(Policy::WRITES) };
            let (options, traces) = (provider(name, options), Traces::default());
            let provider = Provider::start(clients, options, traces, &mut Registry::default(), &tasks);
            let witness = Witness::start(provider.clusters.management.factory());
            (provider, witness)
        });
        let server = CloudProviderServer::new(provider.service.clone());
        Self { host, port, scheduler, server, witness, provider, calls: TaskTracker::new() }
    }

    /// Answers a call on the copy's host.
    pub(crate) fn answer(&self, number: u64, parts: http::request::Parts, body: Bytes) {
        let (server, port, scheduler) = (self.server.clone(), self.port.clone(), self.scheduler.clone());
        self.host.spawn(self.calls.track_future(async move {
            let request = Request::from_parts(parts, tonic::body::Body::new(Full::new(body)));
            let answered = timeout(DEADLINE, scheduler.schedule(Box::pin(server.oneshot(request)))).await;
            let result: RpcResult = match answered {
                Ok(Ok(response)) => Answer::read(response).await.map_err(BoxError::from),
                Ok(Err(never)) => match never {},
                Err(_) => Err(BoxError::from("the deadline is over")),
            };
            port.send(Message::Reply(number, result));
        }));
    }

    /// Drains the copy as `serve` does, and reports to the world whether everything ended in time.
    pub(crate) fn drain(&self) {
        let (scale, calls, port) = (self.provider.scale.clone(), self.calls.clone(), self.port.clone());
        self.host.spawn(async move {
            calls.close();
            let (commands, calls) = tokio::join!(scale.drain(DRAIN), timeout(DRAIN, calls.wait()));
            port.send(Message::Drained(commands.is_ok() && calls.is_ok()));
        });
    }

    /// Returns the number of groups with commands under way or with remembered state.
    pub(crate) fn lanes(&self) -> usize {
        self.provider.scale.remembered()
    }

    /// Returns true if the copy answers the size of a group, without a Refresh before.
    pub(crate) fn has_group(&self, id: &str) -> bool {
        let mut client = CloudProviderClient::new(self.server.clone());
        let request = NodeGroupTargetSizeRequest { id: id.to_owned() };
        self.host.enter(async move { client.node_group_target_size(request).await.is_ok() })
    }

    /// Returns the copy's answers to reads after a Refresh: one line for each group's bounds and size, for its options,
    /// for its template if one of the `ready` Nodes (by providerID) belongs to it, and for each instance with the group
    /// of its Node. A read-only copy sends no errors and has options of its own, so both are left out unless
    /// `of_writer`. The template of a group without a ready Node is left out, since it follows the Nodes that a copy
    /// has seen.
    pub(crate) fn answers(&self, of_writer: bool, ready: &BTreeSet<String>) -> Result<Vec<String>, tonic::Status> {
        let mut client = CloudProviderClient::new(self.server.clone());
        let ready = ready.clone();
        self.host.enter(async move {
            client.refresh(RefreshRequest {}).await?;
            let mut lines = Vec::new();
            for group in client.node_groups(NodeGroupsRequest {}).await?.into_inner().node_groups {
                let id = group.id;
                let size = client.node_group_target_size(NodeGroupTargetSizeRequest { id: id.clone() }).await?;
                let size = size.into_inner().target_size;
                lines.push(format!("{id} {}..{} {size}", group.min_size, group.max_size));
                if of_writer {
                    let defaults = Some(NodeGroupAutoscalingOptions::default());
                    let request = NodeGroupAutoscalingOptionsRequest { id: id.clone(), defaults };
                    lines.push(format!("{id} options {}", text_of(client.node_group_get_options(request).await)));
                }
                let instances = client.node_group_nodes(NodeGroupNodesRequest { id: id.clone() }).await?.into_inner();
                if instances.instances.iter().any(|instance| ready.contains(&instance.id)) {
                    let request = NodeGroupTemplateNodeInfoRequest { id: id.clone() };
                    let template = text_of(client.node_group_template_node_info(request).await);
                    lines.push(format!("{id} template {template}"));
                }
                for mut instance in instances.instances {
                    if let Some(status) = instance.status.as_mut().filter(|_| !of_writer) {
                        status.error_info = None;
                    }
                    let provider_id = instance.id.clone();
                    let node = ExternalGrpcNode { provider_id, ..ExternalGrpcNode::default() };
                    let request = NodeGroupForNodeRequest { node: Some(node) };
                    let group = client.node_group_for_node(request).await?.into_inner().node_group;
                    let group = group.map(|group| group.id).unwrap_or_default();
                    lines.push(format!("{id} {} {:?} of {group:?}", ledger::lasting(&instance.id), instance.status));
                }
            }
            Ok(lines)
        })
    }
}

/// Returns an answer as text: its message, or the code of its error.
fn text_of<T: std::fmt::Debug>(answer: Result<tonic::Response<T>, tonic::Status>) -> String {
    match answer {
        Ok(answer) => format!("{:?}", answer.into_inner()),
        Err(status) => format!("{:?}", status.code()),
    }
}
