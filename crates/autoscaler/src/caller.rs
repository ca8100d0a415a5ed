//! A client that calls the provider as Cluster Autoscaler does, over any service that carries gRPC.

use std::{fmt, future::Future, time::Duration};

use http_body::Body as HttpBody;
use k8s_openapi::api::core::v1::Node as CoreNode;
use prost::bytes::Bytes;
use proto::{
    CleanupRequest, ExternalGrpcNode, GetAvailableGpuTypesRequest, GpuLabelRequest, Instance, NodeGroup,
    NodeGroupAutoscalingOptions, NodeGroupAutoscalingOptionsRequest, NodeGroupDecreaseTargetSizeRequest,
    NodeGroupDeleteNodesRequest, NodeGroupForNodeRequest, NodeGroupIncreaseSizeRequest, NodeGroupNodesRequest,
    NodeGroupTargetSizeRequest, NodeGroupTemplateNodeInfoRequest, NodeGroupTemplateNodeInfoResponse, NodeGroupsRequest,
    PricingNodePriceRequest, PricingPodPriceRequest, RefreshRequest, cloud_provider_client::CloudProviderClient,
};
use tokio::time::timeout;
use tonic::{Request, Response, Status, body::Body};
use tower::{BoxError, Service, ServiceExt as _, util::BoxCloneSyncService};

/// Cluster Autoscaler's own deadline.
pub const DEADLINE: Duration = Duration::from_secs(5);

/// Any service that carries gRPC calls.
pub type GrpcService = BoxCloneSyncService<http::Request<Body>, http::Response<Body>, Status>;

/// A connection to a provider.
#[derive(Clone)]
pub struct Caller(GrpcService);

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Caller")
    }
}

impl Caller {
    /// Creates a caller that uses a service.
    pub fn new<S, B>(service: S) -> Self
    where
        S: Service<http::Request<Body>, Response = http::Response<B>> + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
        S::Error: Into<BoxError>,
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let service = service.map_err(|error: S::Error| Status::from_error(error.into()));
        let service = service.map_response(|answer: http::Response<B>| answer.map(Body::new));
        Self(GrpcService::new(service))
    }

    /// Returns a client for calls that no method here covers.
    #[must_use]
    pub fn client(&self) -> CloudProviderClient<GrpcService> {
        CloudProviderClient::new(self.0.clone())
    }

    /// Calls `Refresh`.
    pub async fn refresh(&self) -> Result<(), Status> {
        within(self.client().refresh(ask(RefreshRequest {}))).await.map(drop)
    }

    /// Calls `NodeGroups` and sorts the groups by id.
    pub async fn groups(&self) -> Result<Vec<NodeGroup>, Status> {
        let mut groups = within(self.client().node_groups(ask(NodeGroupsRequest {}))).await?.node_groups;
        groups.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(groups)
    }

    /// Calls `NodeGroupForNode`. Returns `None` for a Node that belongs to no group.
    pub async fn group_of(&self, node: &ExternalGrpcNode) -> Result<Option<NodeGroup>, Status> {
        let request = NodeGroupForNodeRequest { node: Some(node.clone()) };
        let group = within(self.client().node_group_for_node(ask(request))).await?.node_group;
        Ok(group.filter(|group| !group.id.is_empty()))
    }

    /// Calls `NodeGroupNodes`.
    pub async fn instances(&self, id: &str) -> Result<Vec<Instance>, Status> {
        let request = NodeGroupNodesRequest { id: id.to_owned() };
        Ok(within(self.client().node_group_nodes(ask(request))).await?.instances)
    }

    /// Calls `NodeGroupTargetSize`.
    pub async fn target_size(&self, id: &str) -> Result<i32, Status> {
        let request = NodeGroupTargetSizeRequest { id: id.to_owned() };
        Ok(within(self.client().node_group_target_size(ask(request))).await?.target_size)
    }

    /// Calls `NodeGroupIncreaseSize`.
    pub async fn increase(&self, id: &str, delta: i32) -> Result<(), Status> {
        let request = NodeGroupIncreaseSizeRequest { delta, id: id.to_owned() };
        within(self.client().node_group_increase_size(ask(request))).await.map(drop)
    }

    /// Calls `NodeGroupDecreaseTargetSize`.
    pub async fn decrease(&self, id: &str, delta: i32) -> Result<(), Status> {
        let request = NodeGroupDecreaseTargetSizeRequest { delta, id: id.to_owned() };
        within(self.client().node_group_decrease_target_size(ask(request))).await.map(drop)
    }

    /// Calls `NodeGroupDeleteNodes`.
    pub async fn delete(&self, id: &str, nodes: &[ExternalGrpcNode]) -> Result<(), Status> {
        let request = NodeGroupDeleteNodesRequest { nodes: nodes.to_vec(), id: id.to_owned() };
        within(self.client().node_group_delete_nodes(ask(request))).await.map(drop)
    }

    /// Calls `NodeGroupGetOptions`. Returns `None` if the defaults apply.
    pub async fn options(
        &self,
        id: &str,
        defaults: NodeGroupAutoscalingOptions,
    ) -> Result<Option<NodeGroupAutoscalingOptions>, Status> {
        let request = NodeGroupAutoscalingOptionsRequest { id: id.to_owned(), defaults: Some(defaults) };
        Ok(within(self.client().node_group_get_options(ask(request))).await?.node_group_autoscaling_options)
    }

    /// Calls `PricingNodePrice`.
    pub async fn node_price(&self, request: PricingNodePriceRequest) -> Result<f64, Status> {
        Ok(within(self.client().pricing_node_price(ask(request))).await?.price)
    }

    /// Calls `PricingPodPrice`.
    pub async fn pod_price(&self, request: PricingPodPriceRequest) -> Result<f64, Status> {
        Ok(within(self.client().pricing_pod_price(ask(request))).await?.price)
    }

    /// Calls `GPULabel`.
    pub async fn gpu_label(&self) -> Result<String, Status> {
        Ok(within(self.client().gpu_label(ask(GpuLabelRequest {}))).await?.label)
    }

    /// Calls `GetAvailableGPUTypes` and sorts the types by name.
    pub async fn gpu_types(&self) -> Result<Vec<String>, Status> {
        let answer = within(self.client().get_available_gpu_types(ask(GetAvailableGpuTypesRequest {}))).await?;
        let mut types: Vec<String> = answer.gpu_types.into_keys().collect();
        types.sort_unstable();
        Ok(types)
    }

    /// Calls `Cleanup`.
    pub async fn cleanup(&self) -> Result<(), Status> {
        within(self.client().cleanup(ask(CleanupRequest {}))).await.map(drop)
    }

    /// Calls `NodeGroupTemplateNodeInfo`.
    pub async fn template(&self, id: &str) -> Result<NodeGroupTemplateNodeInfoResponse, Status> {
        let request = NodeGroupTemplateNodeInfoRequest { id: id.to_owned() };
        within(self.client().node_group_template_node_info(ask(request))).await
    }
}

/// Fails a call that outlasts Cluster Autoscaler's deadline.
async fn within<T>(call: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, Status> {
    match timeout(DEADLINE, call).await {
        Ok(answer) => answer.map(Response::into_inner),
        Err(_) => Err(Status::deadline_exceeded("no answer within Cluster Autoscaler's deadline")),
    }
}

/// Wraps a message in a request that carries Cluster Autoscaler's deadline.
pub fn ask<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(DEADLINE);
    request
}

/// Returns the placeholder Node that Cluster Autoscaler sends for an instance without one: its name and providerID are
/// the instance's id.
#[must_use]
pub fn made_up_node(instance: &str) -> ExternalGrpcNode {
    ExternalGrpcNode { provider_id: instance.to_owned(), name: instance.to_owned(), ..ExternalGrpcNode::default() }
}

/// Converts a Node to the message that Cluster Autoscaler sends.
pub(crate) fn grpc_node(node: &CoreNode) -> ExternalGrpcNode {
    let metadata = node.metadata.clone();
    ExternalGrpcNode {
        provider_id: provider_id(node).unwrap_or_default(),
        name: metadata.name.unwrap_or_default(),
        labels: metadata.labels.unwrap_or_default().into_iter().collect(),
        annotations: metadata.annotations.unwrap_or_default().into_iter().collect(),
    }
}

pub(crate) fn provider_id(node: &CoreNode) -> Option<String> {
    node.spec.as_ref()?.provider_id.clone()
}
