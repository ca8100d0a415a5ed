//! A scripted provider, and a workload cluster in memory.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use fastrand::Rng;
use http_body_util::BodyExt as _;
use k8s_pb::{api::core::v1::NodeStatus, apimachinery::pkg::api::resource::Quantity};
use parking_lot::Mutex;
use prost::{Message as _, bytes::Bytes};
use proto::{
    CleanupRequest, CleanupResponse, ExternalGrpcNode, GetAvailableGpuTypesRequest, GetAvailableGpuTypesResponse,
    GpuLabelRequest, GpuLabelResponse, Instance, InstanceErrorInfo, InstanceStatus, NodeGroup,
    NodeGroupAutoscalingOptions, NodeGroupAutoscalingOptionsRequest, NodeGroupAutoscalingOptionsResponse,
    NodeGroupDecreaseTargetSizeRequest, NodeGroupDecreaseTargetSizeResponse, NodeGroupDeleteNodesRequest,
    NodeGroupDeleteNodesResponse, NodeGroupForNodeRequest, NodeGroupForNodeResponse, NodeGroupIncreaseSizeRequest,
    NodeGroupIncreaseSizeResponse, NodeGroupNodesRequest, NodeGroupNodesResponse, NodeGroupTargetSizeRequest,
    NodeGroupTargetSizeResponse, NodeGroupTemplateNodeInfoRequest, NodeGroupTemplateNodeInfoResponse,
    NodeGroupsRequest, NodeGroupsResponse, PricingNodePriceRequest, PricingNodePriceResponse, PricingPodPriceRequest,
    PricingPodPriceResponse, RefreshRequest, RefreshResponse,
    cloud_provider_server::{CloudProvider, CloudProviderServer},
    instance_status::InstanceState,
};
use serde_json::{Value, json};
use tokio::{task::JoinHandle, time::Instant};
use tonic::{Request, Response, Status};

use crate::{
    api::{Api, Resource, Selection},
    autoscaler::{Caller, Driver, Settings, TO_BE_DELETED, Version, Workload},
    clock::Clock,
    http::{InProcess, ServerSettings},
};

/// A group of the scripted provider: its state, and the outcome of commands to it.
#[derive(Clone, Default)]
pub(super) struct Group {
    pub(super) min: i32,
    pub(super) max: i32,
    pub(super) size: i32,
    pub(super) instances: Vec<Instance>,
    /// True if increases fail.
    pub(super) refuses: bool,
    /// The instance that an increase creates at once.
    pub(super) shows: Option<&'static str>,
    /// True if a delete removes its instances at once.
    pub(super) deletes: bool,
    /// The utilization threshold in its options, if they have one.
    pub(super) threshold: Option<f64>,
    /// True if a decrease succeeds and changes nothing.
    pub(super) keeps_size: bool,
}

/// A recorded call: the seconds since the start, and its text.
pub(super) type Asked = (u64, String);

pub(super) struct State {
    pub(super) groups: BTreeMap<String, Group>,
    pub(super) asked: Vec<Asked>,
    start: Instant,
}

/// The world of a test.
#[derive(Clone)]
pub(super) struct World {
    pub(super) state: Arc<Mutex<State>>,
    pub(super) workload: Api,
}

/// Returns an instance in state Creating.
pub(super) fn creating(id: &str, error: Option<&str>) -> Instance {
    let error_info = error.map(|code| InstanceErrorInfo {
        error_code: code.to_owned(),
        error_message: code.to_owned(),
        instance_error_class: 1,
    });
    let status = InstanceStatus { instance_state: InstanceState::InstanceCreating.into(), error_info };
    Instance { id: id.to_owned(), status: Some(status) }
}

/// Returns a Node of a group, old enough for every age limit.
pub(super) fn node(group: &str, name: &str, ready: bool) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name, "labels": { "group": group }, "creationTimestamp": "2020-01-01T00:00:00Z" },
        "spec": { "providerID": format!("fake:///{name}") },
        "status": {
            "allocatable": { "cpu": "4" },
            "conditions": [{ "type": "Ready", "status": if ready { "True" } else { "False" } }],
        },
    })
}

/// Returns a Pod that is pending, or on a Node. It may be evicted unless its name contains "stays".
pub(super) fn pod(name: &str, cpu: &str, node: Option<&str>) -> Value {
    let condition = json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable" });
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "apps", "creationTimestamp": "2020-01-01T00:00:00Z",
            "annotations": { "cluster-autoscaler.kubernetes.io/safe-to-evict": (!name.contains("stays")).to_string() },
        },
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "containers": [{ "name": "app", "image": "app", "resources": { "requests": { "cpu": cpu } } }],
        },
        "status": { "conditions": if node.is_none() { vec![condition] } else { Vec::new() } },
    })
}

impl World {
    pub(super) fn new(groups: impl IntoIterator<Item = (&'static str, Group)>) -> Self {
        let groups = groups.into_iter().map(|(id, group)| (id.to_owned(), group)).collect();
        let workload = Api::new(Clock::real());
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "apps" } });
        workload.load_values(vec![namespace]).unwrap();
        let state = State { groups, asked: Vec::new(), start: Instant::now() };
        Self { state: Arc::new(Mutex::new(state)), workload }
    }

    pub(super) fn has(&self, objects: impl IntoIterator<Item = Value>) {
        self.workload.load_values(objects.into_iter().collect()).unwrap();
    }

    /// Starts a Cluster Autoscaler of version 1.`minor`.
    pub(super) fn start(&self, minor: u32, settings: Settings) -> JoinHandle<()> {
        let caller = Caller::new(CloudProviderServer::new(self.clone()));
        let workload = Workload::new(self.client());
        let driver = Driver::new(caller, workload, Version::new(minor, 2), settings, Rng::with_seed(1), |_| {});
        tokio::spawn(driver.run())
    }

    fn client(&self) -> kube::Client {
        let api = InProcess::new(self.workload.clone(), ServerSettings::default());
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let api = api.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect_bytes().await?;
                let answer = api.answer(parts, body).map(|body| body.map_err(tower::BoxError::from));
                Ok::<_, tower::BoxError>(answer)
            }
        });
        kube::Client::new(service, "default")
    }

    /// Returns the recorded calls that begin with one of these names.
    pub(super) fn asked(&self, names: &[&str]) -> Vec<Asked> {
        let asked = self.state.lock().asked.clone();
        asked.into_iter().filter(|(_, what)| names.iter().any(|name| what.starts_with(name))).collect()
    }

    /// Returns the recorded commands in order, without times.
    pub(super) fn commands(&self) -> Vec<String> {
        self.asked(&["increase", "decrease", "delete"]).into_iter().map(|(_, what)| what).collect()
    }

    pub(super) fn change(&self, group: &str, change: impl FnOnce(&mut Group)) {
        self.state.lock().groups.get_mut(group).map(change).unwrap();
    }

    pub(super) fn names(&self, kind: &'static str) -> Vec<String> {
        let objects = self.workload.list(&Resource::core(kind), &Selection::default()).unwrap();
        objects.iter().map(|object| object["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Returns the Nodes with the deletion taint.
    pub(super) fn tainted(&self) -> Vec<String> {
        let nodes = self.workload.list(&Resource::core("nodes"), &Selection::default()).unwrap();
        let is_tainted = |node: &Value| {
            let taints = node["spec"]["taints"].as_array();
            taints.is_some_and(|taints| taints.iter().any(|taint| taint["key"] == TO_BE_DELETED))
        };
        let tainted = nodes.iter().filter(|node| is_tainted(node));
        tainted.map(|node| node["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }

    fn note(&self, what: impl Into<String>) {
        let mut state = self.state.lock();
        let at = state.start.elapsed().as_secs();
        state.asked.push((at, what.into()));
    }

    fn of(&self, id: &str) -> Result<Group, Status> {
        self.state.lock().groups.get(id).cloned().ok_or_else(|| Status::not_found(id.to_owned()))
    }

    /// Finds the group by the Node's label, or by an instance with its providerID.
    fn group_of(&self, node: &ExternalGrpcNode) -> Option<NodeGroup> {
        let state = self.state.lock();
        let has = |group: &Group| group.instances.iter().any(|instance| instance.id == node.provider_id);
        let (id, group) = state.groups.iter().find(|(id, group)| node.labels.get("group") == Some(id) || has(group))?;
        Some(listed(id, group))
    }
}

fn listed(id: &str, group: &Group) -> NodeGroup {
    NodeGroup { id: id.to_owned(), min_size: group.min, max_size: group.max, debug: String::new() }
}

/// Returns settings whose times are easy to distinguish.
pub(super) fn settings() -> Settings {
    let seconds = Duration::from_secs;
    Settings {
        unneeded: seconds(60),
        unready: seconds(120),
        provision: seconds(100),
        delay_after_add: seconds(200),
        delay_after_taint: seconds(1),
        recheck: seconds(30),
        drain: seconds(50),
        ..Settings::default()
    }
}

#[tonic::async_trait]
impl CloudProvider for World {
    async fn node_groups(&self, _: Request<NodeGroupsRequest>) -> Result<Response<NodeGroupsResponse>, Status> {
        let state = self.state.lock();
        let node_groups = state.groups.iter().map(|(id, group)| listed(id, group)).collect();
        Ok(Response::new(NodeGroupsResponse { node_groups }))
    }

    async fn node_group_for_node(
        &self,
        request: Request<NodeGroupForNodeRequest>,
    ) -> Result<Response<NodeGroupForNodeResponse>, Status> {
        let node = request.into_inner().node.unwrap_or_default();
        Ok(Response::new(NodeGroupForNodeResponse { node_group: self.group_of(&node) }))
    }

    async fn pricing_node_price(
        &self,
        _: Request<PricingNodePriceRequest>,
    ) -> Result<Response<PricingNodePriceResponse>, Status> {
        Err(Status::unimplemented("prices"))
    }

    async fn pricing_pod_price(
        &self,
        _: Request<PricingPodPriceRequest>,
    ) -> Result<Response<PricingPodPriceResponse>, Status> {
        Err(Status::unimplemented("prices"))
    }

    async fn gpu_label(&self, _: Request<GpuLabelRequest>) -> Result<Response<GpuLabelResponse>, Status> {
        Ok(Response::new(GpuLabelResponse::default()))
    }

    async fn get_available_gpu_types(
        &self,
        _: Request<GetAvailableGpuTypesRequest>,
    ) -> Result<Response<GetAvailableGpuTypesResponse>, Status> {
        Ok(Response::new(GetAvailableGpuTypesResponse::default()))
    }

    async fn cleanup(&self, _: Request<CleanupRequest>) -> Result<Response<CleanupResponse>, Status> {
        Ok(Response::new(CleanupResponse {}))
    }

    async fn refresh(&self, _: Request<RefreshRequest>) -> Result<Response<RefreshResponse>, Status> {
        self.note("refresh");
        Ok(Response::new(RefreshResponse {}))
    }

    async fn node_group_target_size(
        &self,
        request: Request<NodeGroupTargetSizeRequest>,
    ) -> Result<Response<NodeGroupTargetSizeResponse>, Status> {
        let target_size = self.of(&request.into_inner().id)?.size;
        Ok(Response::new(NodeGroupTargetSizeResponse { target_size }))
    }

    async fn node_group_increase_size(
        &self,
        request: Request<NodeGroupIncreaseSizeRequest>,
    ) -> Result<Response<NodeGroupIncreaseSizeResponse>, Status> {
        let NodeGroupIncreaseSizeRequest { delta, id } = request.into_inner();
        self.note(format!("increase {id} by {delta}"));
        if self.of(&id)?.refuses {
            return Err(Status::internal("refused"));
        }
        self.change(&id, |group| {
            group.size += delta;
            group.instances.extend(group.shows.map(|id| creating(id, None)));
        });
        Ok(Response::new(NodeGroupIncreaseSizeResponse {}))
    }

    async fn node_group_delete_nodes(
        &self,
        request: Request<NodeGroupDeleteNodesRequest>,
    ) -> Result<Response<NodeGroupDeleteNodesResponse>, Status> {
        let NodeGroupDeleteNodesRequest { nodes, id } = request.into_inner();
        let mut names: Vec<_> = nodes.into_iter().map(|node| node.name).collect();
        names.sort_unstable();
        self.note(format!("delete {} of {id}", names.join(" ")));
        if self.of(&id)?.deletes {
            self.change(&id, |group| {
                group.size -= i32::try_from(names.len()).unwrap();
                group.instances.retain(|instance| !names.contains(&instance.id));
            });
            Ok(Response::new(NodeGroupDeleteNodesResponse {}))
        } else {
            Err(Status::failed_precondition("refused"))
        }
    }

    async fn node_group_decrease_target_size(
        &self,
        request: Request<NodeGroupDecreaseTargetSizeRequest>,
    ) -> Result<Response<NodeGroupDecreaseTargetSizeResponse>, Status> {
        let NodeGroupDecreaseTargetSizeRequest { delta, id } = request.into_inner();
        self.note(format!("decrease {id} by {delta}"));
        self.change(&id, |group| {
            if !group.keeps_size {
                group.size += delta;
                group.instances.clear();
            }
        });
        Ok(Response::new(NodeGroupDecreaseTargetSizeResponse {}))
    }

    async fn node_group_nodes(
        &self,
        request: Request<NodeGroupNodesRequest>,
    ) -> Result<Response<NodeGroupNodesResponse>, Status> {
        let instances = self.of(&request.into_inner().id)?.instances;
        Ok(Response::new(NodeGroupNodesResponse { instances }))
    }

    async fn node_group_template_node_info(
        &self,
        _: Request<NodeGroupTemplateNodeInfoRequest>,
    ) -> Result<Response<NodeGroupTemplateNodeInfoResponse>, Status> {
        let cpu = Quantity { string: Some("4".to_owned()) };
        let status =
            NodeStatus { allocatable: [("cpu".to_owned(), cpu)].into_iter().collect(), ..NodeStatus::default() };
        let node = k8s_pb::api::core::v1::Node { status: Some(status), ..k8s_pb::api::core::v1::Node::default() };
        let node = Bytes::from(node.encode_to_vec());
        Ok(Response::new(NodeGroupTemplateNodeInfoResponse { node_info: node.clone(), node_bytes: node }))
    }

    async fn node_group_get_options(
        &self,
        request: Request<NodeGroupAutoscalingOptionsRequest>,
    ) -> Result<Response<NodeGroupAutoscalingOptionsResponse>, Status> {
        let NodeGroupAutoscalingOptionsRequest { id, defaults } = request.into_inner();
        self.note(format!("options of {id}"));
        let own = |threshold| NodeGroupAutoscalingOptions {
            scale_down_utilization_threshold: threshold,
            ..defaults.unwrap_or_default()
        };
        let node_group_autoscaling_options = self.of(&id)?.threshold.map(own);
        Ok(Response::new(NodeGroupAutoscalingOptionsResponse { node_group_autoscaling_options }))
    }
}
