//! The service behind a real server on loopback, called by a real client: each answer on the wire, and the rules of the
//! protocol.
mod clients;
mod commands;
mod groups;
mod membership;
mod options;
mod prices;
mod replies;
mod wire;

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use prometheus_client::{encoding::text::encode, registry::Registry};
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{
    Code, Response, Status,
    service::Routes,
    transport::{Channel, Endpoint},
};

use super::{CallLogOptions, RpcMetrics, Service, Session};
use crate::listen::{bind, cloud_provider, serve_on_own_thread};
use index::{Change, objects};
use proto::cloud_provider_client::CloudProviderClient;
use scale::fake::World;

/// The group of [`World`], with the bounds 1 and 10 and without a template.
const WORKERS: &str = "MachineDeployment/team-a/workers";
const UNKNOWN: &str = "MachineDeployment/team-a/other";
/// The timeout of each wait, which only a defect reaches.
const LIMIT: Duration = Duration::from_secs(30);

/// The reason why the index isn't fresh; `None` if it is.
type Staleness = Arc<Mutex<Option<String>>>;

struct Provider {
    world: World,
    client: CloudProviderClient<Channel>,
    channel: Channel,
    endpoint: Endpoint,
    staleness: Staleness,
    registry: Registry,
    _ends: DropGuard,
}

impl Provider {
    /// Serves a MachineDeployment `team-a/workers` of this size with these running Machines; nothing is pinned yet.
    async fn new(replicas: i32, machines: &[&str]) -> Self {
        let world = World::new(replicas, machines);
        let staleness = Staleness::default();
        let why = Arc::clone(&staleness);
        let mut registry = Registry::default();
        let metrics = RpcMetrics::register(&mut registry);
        let check_fresh = move || why.lock().clone().map_or(Ok(()), Err);
        let log = CallLogOptions::default();
        let session = Session::new(Arc::clone(&world.index), world.scale.clone(), check_fresh, log.clone());
        let service = Service::new(Arc::new(Arc::new(session)), metrics, log);
        let mut routes = Routes::builder();
        routes.add_service(cloud_provider(service));
        let shutdown = CancellationToken::new();
        let listener = bind("127.0.0.1:0".parse().unwrap(), "--listen").unwrap();
        let grpc = serve_on_own_thread(listener, None, routes.routes(), shutdown.clone(), Duration::ZERO).unwrap();
        let endpoint = Channel::from_shared(format!("http://{}", grpc.address())).unwrap();
        let endpoint = endpoint.timeout(LIMIT);
        let channel = endpoint.connect().await.unwrap();
        let client = CloudProviderClient::new(channel.clone());
        Self { world, client, channel, endpoint, staleness, registry, _ends: shutdown.drop_guard() }
    }

    /// Serves the same as [`Provider::new`], with pins.
    async fn pinned(replicas: i32, machines: &[&str]) -> Self {
        let mut provider = Self::new(replicas, machines).await;
        provider.refresh().await.unwrap();
        provider
    }

    /// Serves `team-a/workers` with 2 Machines, applies these changes, and pins the result.
    async fn with(changes: impl IntoIterator<Item = Change>) -> Self {
        let mut provider = Self::new(2, &["a", "b"]).await;
        provider.apply(changes);
        provider.refresh().await.unwrap();
        provider
    }

    /// Moves to another connection. The previous one is closed when the returned values are dropped.
    async fn move_over(&mut self) -> (CloudProviderClient<Channel>, Channel) {
        let channel = self.endpoint.connect().await.unwrap();
        let client = std::mem::replace(&mut self.client, CloudProviderClient::new(channel.clone()));
        (client, std::mem::replace(&mut self.channel, channel))
    }

    fn apply(&self, changes: impl IntoIterator<Item = Change>) {
        for change in changes {
            self.world.index.apply_and_take_notices(change);
        }
    }

    fn stale(&self, why: &str) {
        *self.staleness.lock() = Some(why.to_owned());
    }

    fn fresh(&self) {
        *self.staleness.lock() = None;
    }

    async fn refresh(&mut self) -> Result<(), Status> {
        self.client.refresh(proto::RefreshRequest {}).await.map(drop)
    }

    /// Returns the ids in the answer of NodeGroups.
    async fn group_ids(&mut self) -> Result<Vec<String>, Status> {
        let answer = inner(self.client.node_groups(proto::NodeGroupsRequest {}).await)?;
        Ok(answer.node_groups.into_iter().map(|group| group.id).collect())
    }

    /// Returns the answer of NodeGroupForNode, which is never an error and always has a group, even if an empty one.
    async fn group_of(&mut self, node: proto::ExternalGrpcNode) -> proto::NodeGroup {
        let request = proto::NodeGroupForNodeRequest { node: Some(node) };
        inner(self.client.node_group_for_node(request).await).unwrap().node_group.unwrap()
    }

    async fn target_size(&mut self, id: &str) -> Result<i32, Status> {
        let request = proto::NodeGroupTargetSizeRequest { id: id.to_owned() };
        inner(self.client.node_group_target_size(request).await).map(|answer| answer.target_size)
    }

    async fn instances(&mut self, id: &str) -> Result<Vec<proto::Instance>, Status> {
        let request = proto::NodeGroupNodesRequest { id: id.to_owned() };
        inner(self.client.node_group_nodes(request).await).map(|answer| answer.instances)
    }

    async fn template(&mut self, id: &str) -> Result<proto::NodeGroupTemplateNodeInfoResponse, Status> {
        let request = proto::NodeGroupTemplateNodeInfoRequest { id: id.to_owned() };
        inner(self.client.node_group_template_node_info(request).await)
    }

    async fn options(
        &mut self,
        id: &str,
        defaults: Option<proto::NodeGroupAutoscalingOptions>,
    ) -> Result<Option<proto::NodeGroupAutoscalingOptions>, Status> {
        let request = proto::NodeGroupAutoscalingOptionsRequest { id: id.to_owned(), defaults };
        inner(self.client.node_group_get_options(request).await).map(|answer| answer.node_group_autoscaling_options)
    }

    async fn increase(&mut self, id: &str, delta: i32) -> Result<(), Status> {
        let request = proto::NodeGroupIncreaseSizeRequest { delta, id: id.to_owned() };
        self.client.node_group_increase_size(request).await.map(drop)
    }

    async fn decrease(&mut self, id: &str, delta: i32) -> Result<(), Status> {
        let request = proto::NodeGroupDecreaseTargetSizeRequest { delta, id: id.to_owned() };
        self.client.node_group_decrease_target_size(request).await.map(drop)
    }

    async fn delete(&mut self, id: &str, nodes: Vec<proto::ExternalGrpcNode>) -> Result<(), Status> {
        let request = proto::NodeGroupDeleteNodesRequest { nodes, id: id.to_owned() };
        self.client.node_group_delete_nodes(request).await.map(drop)
    }

    /// Returns all metrics as text.
    fn metrics(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        text
    }
}

fn inner<T>(answer: Result<Response<T>, Status>) -> Result<T, Status> {
    answer.map(Response::into_inner)
}

#[track_caller]
fn assert_fails<T: std::fmt::Debug>(result: Result<T, Status>, code: Code, parts: &[&str]) {
    let status = result.unwrap_err();
    assert_eq!(status.code(), code, "{status}");
    for part in parts {
        assert!(status.message().contains(part), "{part:?} isn't in {:?}", status.message());
    }
}

/// Returns a Node by name and providerID.
fn node(name: &str, provider_id: &str) -> proto::ExternalGrpcNode {
    proto::ExternalGrpcNode { name: name.to_owned(), provider_id: provider_id.to_owned(), ..Default::default() }
}

/// Returns an instance without a Node, as Cluster Autoscaler represents it.
fn unregistered(id: &str) -> proto::ExternalGrpcNode {
    node(id, id)
}

fn annotations(pairs: &[(&str, &str)]) -> HashMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// Returns a MachineDeployment with the bounds 1 and 10 and these annotations.
fn annotated(name: &str, pairs: &[(&str, &str)]) -> Change {
    let annotations: Value = pairs.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
    objects::deployment(name, 2, ("1", "10"), &json!({"metadata": {"annotations": annotations}}))
}
