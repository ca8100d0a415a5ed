//! Converts Cluster Autoscaler's requests to queries of the index and commands of `scale`, and their results to
//! answers. This crate must hold no rule, except rules on an answer's effect on the caller. Read RPCs answer inline
//! from memory, without an await or an API call. An unknown Node or group must never cause an error if that error would
//! stop the caller's whole loop.

mod by_caller;
mod call_log;
mod calls;
mod metrics;
mod options;
mod pace;
mod pins;
mod pricing;
mod status;
mod subject;
mod template;
#[cfg(test)]
mod tests;
mod unknown_groups;
mod wire;
mod wire_pod;

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use nodegroup::{GPU_LABEL, GroupId, rollout};
use opentelemetry::context::FutureExt as _;
use prost_types::Any;
use tonic::{Code, Request, Response, Status};

pub use self::{
    by_caller::{Access, ByCaller, Services},
    call_log::CallLogOptions,
    calls::{Calls, Refreshed},
    metrics::RpcMetrics,
    unknown_groups::UnknownGroups,
};
use self::{
    call_log::{Answered, CallLog},
    metrics::{Rpc, code_name},
    pace::Pace,
    pins::Pins,
    pricing::Moment,
    status::{code_of, cut, may_only_read, status_of, unknown},
    subject::Subject,
    wire::{group_to_wire, instance_to_wire},
};
use index::{Freshness, Index, NodeQuery};
use proto::cloud_provider_server::CloudProvider;
use scale::{NodeName, Scale, ScaleError};
use server::{Client, Connection};

/// The cloud provider of one workload cluster.
#[derive(Clone)]
pub struct Service {
    index: Arc<Index>,
    scale: Scale,
    freshness: Arc<dyn Freshness>,
    metrics: RpcMetrics,
    call_log: Arc<CallLog>,
    calls: Calls,
    pins: Arc<Pins>,
    /// True if clients are called by their certificate, not by the name that let them in.
    names_certificates: bool,
    /// The receiver of calls for groups that the index doesn't have.
    unknown_groups: Option<Arc<dyn UnknownGroups>>,
    pace: Pace,
}

impl Service {
    /// Returns a service that reads from `index` and writes through `scale`, and logs and traces its calls.
    #[must_use]
    pub fn new(
        index: Arc<Index>,
        scale: Scale,
        freshness: Arc<dyn Freshness>,
        metrics: RpcMetrics,
        log: CallLogOptions,
    ) -> Self {
        let call_log = Arc::new(CallLog::new(log));
        let (calls, pins) = (Calls::default(), Arc::default());
        Self {
            index,
            scale,
            freshness,
            metrics,
            call_log,
            calls,
            pins,
            names_certificates: false,
            pace: Pace::default(),
            unknown_groups: None,
        }
    }

    /// Returns the service of one of many Clusters: calls that come too fast wait. Writes are recorded with the URI of
    /// the client's certificate, which is its identity, its serial number and the client's address.
    #[must_use]
    pub fn of_one_of_many(self) -> Self {
        Self { names_certificates: true, pace: Pace::of_one_of_many(), ..self }
    }

    /// Returns the last calls of Cluster Autoscaler.
    #[must_use]
    pub fn calls(&self) -> &Calls {
        &self.calls
    }

    /// Answers a read, and logs it if it is slow or fails.
    fn read<Q: Subject, T>(
        &self,
        rpc: Rpc,
        request: &Request<Q>,
        answer: impl FnOnce(&Q) -> Result<T, Status>,
    ) -> Result<Response<T>, Status> {
        let call = self.metrics.begin(rpc);
        let result = answer(request.get_ref()).map_err(cut);
        let code = code_of(&result);
        let took = call.answered(code);
        if self.call_log.must_record(rpc, code, took) {
            self.record(rpc, request, &result, took);
        }
        result.map(Response::new)
    }

    #[cold]
    fn record<Q: Subject, T>(&self, rpc: Rpc, request: &Request<Q>, result: &Result<T, Status>, took: Duration) {
        let answered = Answered {
            rpc,
            code: code_of(result),
            caller: "",
            took,
            subject: request.get_ref().subject(),
            message: result.as_ref().err().map(Status::message).unwrap_or_default(),
            metadata: request.metadata(),
        };
        self.call_log.record(answered, Instant::now());
        if code_of(result) == Code::NotFound
            && let Some(group) = GroupId::parse(request.get_ref().subject())
        {
            self.report_unknown(&group, caller_of(request).map(Connection::client));
        }
    }

    /// Answers a write of a group. Its command is logged by the scale module.
    async fn write<Q: Subject, T: Default, W: Future<Output = Result<(), ScaleError>>>(
        &self,
        rpc: Rpc,
        request: Request<Q>,
        work: impl FnOnce(Scale, GroupId, Q) -> W,
    ) -> Result<Response<T>, Status> {
        let call = self.metrics.begin(rpc);
        let subject = request.get_ref().subject();
        let client = caller_of(&request).map(Connection::client).cloned();
        let id = match &client {
            Some(client) if client.is_read_only => Err(may_only_read(client)),
            _ => GroupId::parse(subject).ok_or_else(|| unknown(subject)),
        };
        let id = match id {
            Ok(id) => id,
            Err(status) => {
                let result = Err(cut(status));
                let took = call.answered(code_of(&result));
                self.record(rpc, &request, &result, took);
                return result;
            }
        };
        let span = self.call_log.traces().call(rpc.as_str(), request.metadata());
        span.set("group", id.to_string());
        let name = |client: &Client| if self.names_certificates { client.certified() } else { client.name.clone() };
        let scale = self.scale.requested_by(client.as_ref().map(name));
        let group = id.clone();
        let result = work(scale, id, request.into_inner()).with_context(span.context()).await;
        let result = result.map_err(|error| cut(status_of(&error)));
        let code = code_of(&result);
        call.answered(code);
        if code == Code::NotFound {
            self.report_unknown(&group, client.as_ref());
        }
        span.end(code_name(code), result.as_ref().err().map(|status| status.message().to_owned()));
        result.map(|()| Response::new(T::default()))
    }

    fn check_freshness(&self) -> Result<(), Status> {
        self.freshness.check().map_err(|why| Status::unavailable(format!("not ready: {why}")))
    }

    fn refresh_now(&self, caller: Option<&Connection>) -> Result<proto::RefreshResponse, Status> {
        self.check_freshness()?;
        if self.may_pin(caller) {
            let _turn = self.pins.turn();
            self.pin(caller);
        }
        Ok(proto::RefreshResponse {})
    }

    /// Returns false for a read-only client, whose calls must change nothing during another caller's loop.
    fn may_pin(&self, caller: Option<&Connection>) -> bool {
        let is_read_only = caller.is_some_and(|caller| caller.client().is_read_only);
        !is_read_only || !self.index.is_pinned()
    }

    fn pin(&self, caller: Option<&Connection>) {
        self.index.refresh();
        self.pins.record(caller, Instant::now());
    }

    /// Pins for a caller in the middle of a loop if nothing is pinned, or if no caller in a loop relies on the pins.
    ///
    /// # Errors
    /// If nothing is pinned, and the index isn't fresh. Old pins are better than none.
    fn pin_if_unused(&self, caller: Option<&Connection>) -> Result<(), Status> {
        let must_pin =
            || !self.index.is_pinned() || (self.may_pin(caller) && self.pins.must_pin(caller, Instant::now()));
        if !must_pin() {
            return Ok(());
        }
        // Another caller may have pinned meanwhile, on another thread.
        let _turn = self.pins.turn();
        if !must_pin() {
            return Ok(());
        }
        match self.check_freshness() {
            Ok(()) => self.pin(caller),
            Err(_) if self.index.is_pinned() => {}
            Err(status) => return Err(status),
        }
        Ok(())
    }

    fn groups_now(&self, caller: Option<&Connection>) -> Result<proto::NodeGroupsResponse, Status> {
        // Cluster Autoscaler takes an error for an empty list, which is right only before anything was pinned.
        self.pin_if_unused(caller)?;
        Ok(proto::NodeGroupsResponse { node_groups: self.index.groups().iter().map(group_to_wire).collect() })
    }

    fn group_for_node_now(
        &self,
        node: Option<&proto::ExternalGrpcNode>,
        caller: Option<&Connection>,
    ) -> proto::NodeGroupForNodeResponse {
        // Before its first Refresh, Cluster Autoscaler asks for the groups of Nodes with its taints. While nothing can
        // be pinned, no Node belongs to a group.
        let _ = self.pin_if_unused(caller);
        let pinned = node.and_then(|node| {
            self.index.group_of_node(NodeQuery {
                name: &node.name,
                provider_id: &node.provider_id,
                annotations: &node.annotations,
            })
        });
        // An empty id makes the caller ignore the Node; an error would stop the caller's whole loop.
        proto::NodeGroupForNodeResponse {
            node_group: Some(pinned.map_or_else(proto::NodeGroup::default, |group| group_to_wire(&group))),
        }
    }

    fn target_size_now(&self, id: &str) -> Result<proto::NodeGroupTargetSizeResponse, Status> {
        let target_size = GroupId::parse(id).and_then(|id| self.index.target_size(&id)).ok_or_else(|| unknown(id))?;
        Ok(proto::NodeGroupTargetSizeResponse { target_size })
    }

    fn instances_now(&self, id: &str) -> Result<proto::NodeGroupNodesResponse, Status> {
        let instances = GroupId::parse(id).and_then(|id| self.index.instances(&id)).ok_or_else(|| unknown(id))?;
        Ok(proto::NodeGroupNodesResponse { instances: instances.into_iter().map(instance_to_wire).collect() })
    }

    fn template_now(&self, id: &str) -> Result<proto::NodeGroupTemplateNodeInfoResponse, Status> {
        let served = GroupId::parse(id).and_then(|id| self.index.served(&id)).ok_or_else(|| unknown(id))?;
        template::answer(&served).ok_or_else(|| {
            Status::unimplemented(format!(
                "node group {id} has no template: set its cpu and memory capacity annotations, or use an \
                 infrastructure template with status.capacity"
            ))
        })
    }

    fn options_now(
        &self,
        request: &proto::NodeGroupAutoscalingOptionsRequest,
    ) -> Result<proto::NodeGroupAutoscalingOptionsResponse, Status> {
        let id = &request.id;
        let options = GroupId::parse(id).and_then(|id| self.index.options(&id)).ok_or_else(|| unknown(id))?;
        // Cluster Autoscaler drains a Node before it requests the deletion. These options keep it from choosing a Node
        // that can't be deleted.
        let held = self.scale.is_read_only().then(|| rollout::hold(&options));
        let (defaults, overrides) = (request.defaults.as_ref(), held.as_ref().unwrap_or(&options));
        Ok(proto::NodeGroupAutoscalingOptionsResponse {
            // Options replace all of the caller's defaults, and reset those that the protocol can't carry to zero, so
            // the answer has none if nothing is overridden.
            node_group_autoscaling_options: options::overrides_anything(defaults, overrides)
                .then(|| options::override_defaults(defaults, overrides)),
        })
    }

    fn node_price_now(
        &self,
        request: &proto::PricingNodePriceRequest,
    ) -> Result<proto::PricingNodePriceResponse, Status> {
        let unset = proto::ExternalGrpcNode::default();
        let node = request.node.as_ref().unwrap_or(&unset);
        let query = NodeQuery { name: &node.name, provider_id: &node.provider_id, annotations: &node.annotations };
        let price = self.index.node_price(query, &node.labels).map_err(|error| pricing::status_of(&error))?;
        let start = Moment { new: request.start_timestamp.as_ref(), old: request.start_time.as_ref() };
        let end = Moment { new: request.end_timestamp.as_ref(), old: request.end_time.as_ref() };
        Ok(proto::PricingNodePriceResponse { price: price.per_hour() * pricing::hours(start, end)? })
    }

    fn pod_price_now(&self, request: &proto::PricingPodPriceRequest) -> Result<proto::PricingPodPriceResponse, Status> {
        let prices = self.index.unit_prices().map_err(|error| pricing::status_of(&error))?;
        let start = Moment { new: request.start_timestamp.as_ref(), old: request.start_time.as_ref() };
        let end = Moment { new: request.end_timestamp.as_ref(), old: request.end_time.as_ref() };
        let hours = pricing::hours(start, end)?;
        let requests = pricing::requests(&request.pod_bytes, &request.pod)?;
        Ok(proto::PricingPodPriceResponse { price: prices.per_hour(&requests) * hours })
    }

    fn gpu_types_now(&self) -> proto::GetAvailableGpuTypesResponse {
        let gpu_types: HashMap<_, _> =
            self.index.gpu_types().into_iter().map(|gpu_type| (gpu_type, Any::default())).collect();
        proto::GetAvailableGpuTypesResponse { gpu_types }
    }
}

#[tonic::async_trait]
impl CloudProvider for Service {
    async fn node_groups(
        &self,
        request: Request<proto::NodeGroupsRequest>,
    ) -> Result<Response<proto::NodeGroupsResponse>, Status> {
        self.read(Rpc::NodeGroups, &request, |_| self.groups_now(caller_of(&request)))
    }

    async fn node_group_for_node(
        &self,
        request: Request<proto::NodeGroupForNodeRequest>,
    ) -> Result<Response<proto::NodeGroupForNodeResponse>, Status> {
        self.read(Rpc::NodeGroupForNode, &request, |message| {
            Ok(self.group_for_node_now(message.node.as_ref(), caller_of(&request)))
        })
    }

    async fn pricing_node_price(
        &self,
        request: Request<proto::PricingNodePriceRequest>,
    ) -> Result<Response<proto::PricingNodePriceResponse>, Status> {
        self.read(Rpc::PricingNodePrice, &request, |request| self.node_price_now(request))
    }

    async fn pricing_pod_price(
        &self,
        request: Request<proto::PricingPodPriceRequest>,
    ) -> Result<Response<proto::PricingPodPriceResponse>, Status> {
        self.read(Rpc::PricingPodPrice, &request, |request| self.pod_price_now(request))
    }

    async fn gpu_label(
        &self,
        request: Request<proto::GpuLabelRequest>,
    ) -> Result<Response<proto::GpuLabelResponse>, Status> {
        self.read(Rpc::GpuLabel, &request, |_| Ok(proto::GpuLabelResponse { label: GPU_LABEL.to_owned() }))
    }

    async fn get_available_gpu_types(
        &self,
        request: Request<proto::GetAvailableGpuTypesRequest>,
    ) -> Result<Response<proto::GetAvailableGpuTypesResponse>, Status> {
        self.read(Rpc::GetAvailableGpuTypes, &request, |_| Ok(self.gpu_types_now()))
    }

    async fn cleanup(
        &self,
        request: Request<proto::CleanupRequest>,
    ) -> Result<Response<proto::CleanupResponse>, Status> {
        // Cluster Autoscaler calls Cleanup on every exit, even of a standby, so the call stops nothing.
        self.read(Rpc::Cleanup, &request, |_| Ok(proto::CleanupResponse {}))
    }

    async fn refresh(
        &self,
        request: Request<proto::RefreshRequest>,
    ) -> Result<Response<proto::RefreshResponse>, Status> {
        // Refresh begins each loop of the caller.
        self.call_log.sum_up(Instant::now());
        self.scale.sum_up_refusals();
        self.read(Rpc::Refresh, &request, |_| {
            let caller = caller_of(&request);
            let result = self.refresh_now(caller);
            self.calls.refreshed(result.as_ref().err().map(|status| status.message().to_owned()), caller);
            result
        })
    }

    async fn node_group_target_size(
        &self,
        request: Request<proto::NodeGroupTargetSizeRequest>,
    ) -> Result<Response<proto::NodeGroupTargetSizeResponse>, Status> {
        self.read(Rpc::NodeGroupTargetSize, &request, |request| self.target_size_now(&request.id))
    }

    async fn node_group_increase_size(
        &self,
        request: Request<proto::NodeGroupIncreaseSizeRequest>,
    ) -> Result<Response<proto::NodeGroupIncreaseSizeResponse>, Status> {
        self.write(Rpc::NodeGroupIncreaseSize, request, |scale, id, request| async move {
            scale.increase(id, request.delta).await
        })
        .await
    }

    async fn node_group_delete_nodes(
        &self,
        request: Request<proto::NodeGroupDeleteNodesRequest>,
    ) -> Result<Response<proto::NodeGroupDeleteNodesResponse>, Status> {
        self.write(Rpc::NodeGroupDeleteNodes, request, |scale, id, request| async move {
            let named = |node: proto::ExternalGrpcNode| NodeName {
                name: node.name,
                provider_id: node.provider_id,
                annotations: node.annotations,
            };
            scale.delete(id, request.nodes.into_iter().map(named).collect()).await
        })
        .await
    }

    async fn node_group_decrease_target_size(
        &self,
        request: Request<proto::NodeGroupDecreaseTargetSizeRequest>,
    ) -> Result<Response<proto::NodeGroupDecreaseTargetSizeResponse>, Status> {
        self.write(Rpc::NodeGroupDecreaseTargetSize, request, |scale, id, request| async move {
            scale.decrease(id, request.delta).await
        })
        .await
    }

    async fn node_group_nodes(
        &self,
        request: Request<proto::NodeGroupNodesRequest>,
    ) -> Result<Response<proto::NodeGroupNodesResponse>, Status> {
        self.read(Rpc::NodeGroupNodes, &request, |request| self.instances_now(&request.id))
    }

    async fn node_group_template_node_info(
        &self,
        request: Request<proto::NodeGroupTemplateNodeInfoRequest>,
    ) -> Result<Response<proto::NodeGroupTemplateNodeInfoResponse>, Status> {
        self.read(Rpc::NodeGroupTemplateNodeInfo, &request, |request| self.template_now(&request.id))
    }

    async fn node_group_get_options(
        &self,
        request: Request<proto::NodeGroupAutoscalingOptionsRequest>,
    ) -> Result<Response<proto::NodeGroupAutoscalingOptionsResponse>, Status> {
        self.read(Rpc::NodeGroupGetOptions, &request, |request| self.options_now(request))
    }
}

/// Returns the connection of a request.
fn caller_of<Q>(request: &Request<Q>) -> Option<&Connection> {
    request.extensions().get()
}
