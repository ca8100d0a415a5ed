//! A client that calls the provider as Cluster Autoscaler does, over any service that carries gRPC; and the protocol
//! fields that the modelled version sends and reads.

use std::{
    fmt,
    future::Future,
    time::{Duration, SystemTime},
};

use anyhow::Context as _;
use http_body::Body as HttpBody;
use k8s_openapi::api::core::v1::Node as CoreNode;
use k8s_pb::{
    api::core::v1::{Container, Node, Pod, PodSpec, ResourceRequirements},
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta},
};
use prost::{Message as _, bytes::Bytes};
use prost_types::Timestamp;
use proto::{
    CleanupRequest, ExternalGrpcNode, GetAvailableGpuTypesRequest, GpuLabelRequest, Instance, MetaDuration, NodeGroup,
    NodeGroupAutoscalingOptions, NodeGroupAutoscalingOptionsRequest, NodeGroupDecreaseTargetSizeRequest,
    NodeGroupDeleteNodesRequest, NodeGroupForNodeRequest, NodeGroupIncreaseSizeRequest, NodeGroupNodesRequest,
    NodeGroupTargetSizeRequest, NodeGroupTemplateNodeInfoRequest, NodeGroupTemplateNodeInfoResponse, NodeGroupsRequest,
    PricingNodePriceRequest, PricingPodPriceRequest, RefreshRequest, cloud_provider_client::CloudProviderClient,
};
use tokio::time::timeout;
use tonic::{Request, Response, Status, body::Body};
use tower::{BoxError, Service, ServiceExt as _, util::BoxCloneSyncService};

use super::{
    Settings, Version,
    workload::{Cpu, Shape},
};

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
pub fn made_up_node(instance: &str) -> ExternalGrpcNode {
    ExternalGrpcNode { provider_id: instance.to_owned(), name: instance.to_owned(), ..ExternalGrpcNode::default() }
}

/// Converts a Node to the message that Cluster Autoscaler sends.
pub(super) fn grpc_node(node: &CoreNode) -> ExternalGrpcNode {
    let metadata = node.metadata.clone();
    ExternalGrpcNode {
        provider_id: provider_id(node).unwrap_or_default(),
        name: metadata.name.unwrap_or_default(),
        labels: metadata.labels.unwrap_or_default().into_iter().collect(),
        annotations: metadata.annotations.unwrap_or_default().into_iter().collect(),
    }
}

pub(super) fn provider_id(node: &CoreNode) -> Option<String> {
    node.spec.as_ref()?.provider_id.clone()
}

/// The field generations that a version knows: some fields were replaced by new ones, and some versions know both.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields {
    old: bool,
    new: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    /// The utilization below which a Node may be removed.
    pub(super) threshold: f64,
    /// The time that a Node must be unneeded before it is removed.
    pub(super) unneeded: Duration,
    /// The same for a Node that isn't ready.
    pub(super) unready: Duration,
    /// The time within which a Node must join.
    pub(super) provision: Duration,
    /// The age up to which a Node that isn't ready counts as starting.
    pub(super) startup: Duration,
}

impl Fields {
    pub(super) fn of(version: Version) -> Self {
        Self { old: version.knows_old_fields(), new: version.knows_new_fields() }
    }

    pub(super) fn template(self, answer: NodeGroupTemplateNodeInfoResponse) -> anyhow::Result<Node> {
        let bytes = if self.new { answer.node_bytes } else { answer.node_info };
        Node::decode(bytes).context("a template that is no Node")
    }

    pub(super) fn defaults(self, settings: Settings) -> NodeGroupAutoscalingOptions {
        let old = |time: Duration| {
            let duration = i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
            self.old.then_some(MetaDuration { duration })
        };
        let new = |time: Duration| prost_types::Duration::try_from(time).ok().filter(|_| self.new);
        let (unneeded, unready, provision) = (settings.unneeded, settings.unready, settings.provision);
        NodeGroupAutoscalingOptions {
            scale_down_utilization_threshold: 0.5,
            scale_down_gpu_utilization_threshold: 0.5,
            scale_down_unneeded_time: old(unneeded),
            scale_down_unready_time: old(unready),
            max_node_provision_time: old(provision),
            scale_down_unneeded_duration: new(unneeded),
            scale_down_unready_duration: new(unready),
            max_node_provision_duration: new(provision),
            ..NodeGroupAutoscalingOptions::default()
        }
    }

    /// Decodes the options of an answer. They replace all options of the request.
    pub(super) fn options(self, answer: &NodeGroupAutoscalingOptions, startup: Duration) -> anyhow::Result<Options> {
        let time = |old: Option<MetaDuration>, new: Option<prost_types::Duration>| -> anyhow::Result<Duration> {
            if self.new {
                return Ok(new.context("a new duration is missing")?.try_into()?);
            }
            Ok(Duration::from_nanos(old.context("an old duration is missing")?.duration.try_into()?))
        };
        Ok(Options {
            threshold: answer.scale_down_utilization_threshold,
            unneeded: time(answer.scale_down_unneeded_time, answer.scale_down_unneeded_duration)?,
            unready: time(answer.scale_down_unready_time, answer.scale_down_unready_duration)?,
            provision: time(answer.max_node_provision_time, answer.max_node_provision_duration)?,
            startup,
        })
    }

    pub(super) fn node_price(self, group: &str, shape: &Shape) -> PricingNodePriceRequest {
        let node = template_node(format!("template-node-for-{group}-1"), shape);
        let hour = TheNextHour::begin();
        PricingNodePriceRequest {
            node: Some(node),
            start_time: self.old_time(hour.start),
            end_time: self.old_time(hour.end),
            start_timestamp: self.new_time(hour.start),
            end_timestamp: self.new_time(hour.end),
        }
    }

    pub(super) fn pod_price(self, name: &str, cpu: Cpu) -> PricingPodPriceRequest {
        let quantity = |text: String| Quantity { string: Some(text) };
        let requests = [("cpu", format!("{cpu}m")), ("memory", "500Mi".to_owned())];
        let requests = requests.into_iter().map(|(resource, text)| (resource.to_owned(), quantity(text))).collect();
        let resources = ResourceRequirements { requests, ..ResourceRequirements::default() };
        let container = Container { resources: Some(resources), ..Container::default() };
        let pod = Pod {
            metadata: Some(ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }),
            spec: Some(PodSpec { containers: vec![container], ..PodSpec::default() }),
            ..Pod::default()
        };
        let pod = Bytes::from(pod.encode_to_vec());
        let hour = TheNextHour::begin();
        PricingPodPriceRequest {
            pod: if self.old { pod.clone() } else { Bytes::new() },
            start_time: self.old_time(hour.start),
            end_time: self.old_time(hour.end),
            pod_bytes: if self.new { pod } else { Bytes::new() },
            start_timestamp: self.new_time(hour.start),
            end_timestamp: self.new_time(hour.end),
        }
    }

    /// Returns the value of an old time field, which holds whole seconds.
    fn old_time(self, time: Timestamp) -> Option<Timestamp> {
        self.old.then_some(Timestamp { nanos: 0, ..time })
    }

    fn new_time(self, time: Timestamp) -> Option<Timestamp> {
        self.new.then_some(time)
    }
}

/// Returns the made-up Node that stands for an upcoming one.
pub(super) fn upcoming_node(group: &str, shape: &Shape, number: usize) -> ExternalGrpcNode {
    let annotations = [("cluster-autoscaler.k8s.io/upcoming-node".to_owned(), "true".to_owned())];
    let node = template_node(format!("template-node-for-{group}-1-upcoming-{number}"), shape);
    ExternalGrpcNode { annotations: annotations.into_iter().collect(), ..node }
}

/// Returns a made-up Node of a group. It has no providerID.
fn template_node(name: String, shape: &Shape) -> ExternalGrpcNode {
    let own = [("kubernetes.io/hostname", name.as_str()), ("cluster-autoscaler.kubernetes.io/template-node", "true")];
    let own = own.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let labels = shape.labels.clone().into_iter().chain(own).collect();
    ExternalGrpcNode { name, labels, ..ExternalGrpcNode::default() }
}

/// The hour from now, for which prices are requested.
struct TheNextHour {
    start: Timestamp,
    end: Timestamp,
}

impl TheNextHour {
    fn begin() -> Self {
        let now = SystemTime::now();
        Self { start: now.into(), end: (now + Duration::from_secs(3600)).into() }
    }
}
