//! Converts Cluster Autoscaler's requests to queries of the index and commands of `scale`, and their results to
//! answers. This crate must hold no rule, except rules on an answer's effect on the caller. Read RPCs answer inline
//! from memory, without an API call. An unknown Node or group must never cause an error if that error would stop the
//! caller's whole loop. [`listen`] has the listeners.

mod call_log;
mod calls;
pub mod listen;
mod metrics;
mod options;
mod pace;
mod pins;
mod pricing;
mod reads;
mod session;
#[cfg(test)]
mod tests;
mod wire;

use std::{sync::Arc, time::Instant};

use opentelemetry::context::FutureExt as _;
use rules::{GPU_LABEL, GroupId};
use tonic::{Code, Request, Response, Status};

pub use self::{
    call_log::CallLogOptions,
    calls::{Calls, Refreshed},
    metrics::RpcMetrics,
    session::Session,
};
use self::{
    call_log::{Answered, CallLog},
    metrics::Rpc,
    wire::{Subject, code_of, cut, may_only_read, unknown},
};
use crate::listen::{Client, Connection};
use proto::cloud_provider_server::CloudProvider;
use scale::{NamedNode, Scale, ScaleError, code_name};

/// The access that a call needs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Access {
    /// Refresh, which begins a loop.
    Begin,
    /// A call that changes nothing.
    Read,
    /// A change of a size.
    Write,
}

/// The choice of the workload cluster that answers a caller.
pub trait Admission: Send + Sync + 'static {
    /// Returns what answers the caller. It is called for each call, so that a Cluster that leaves is refused at once, and
    /// must answer from memory. A caller must never learn anything of another Cluster: what answers it has none of that.
    ///
    /// # Errors
    /// A caller without a Cluster, or whose Cluster doesn't allow this access now.
    fn admit(&self, caller: Option<&Client>, access: Access) -> Result<Arc<Session>, Status>;

    /// A call of this client was denied for this reason.
    fn denied(&self, caller: Option<&Client>, reason: &str);
}

/// The only one answers everybody.
impl Admission for Arc<Session> {
    fn admit(&self, _: Option<&Client>, _: Access) -> Result<Arc<Session>, Status> {
        Ok(Arc::clone(self))
    }

    fn denied(&self, _: Option<&Client>, _: &str) {}
}

/// The cloud provider.
#[derive(Clone)]
pub struct Service {
    admission: Arc<dyn Admission>,
    metrics: RpcMetrics,
    /// The log of the calls that are refused.
    refused: Arc<CallLog>,
}

impl Service {
    /// Returns a service that answers by `admission`, and counts and logs the calls that it refuses.
    pub fn new(admission: Arc<dyn Admission>, metrics: RpcMetrics, log: CallLogOptions) -> Self {
        Self { admission, metrics, refused: Arc::new(CallLog::new(log)) }
    }

    fn admit<Q: Subject>(&self, rpc: Rpc, request: &Request<Q>) -> Result<Arc<Session>, Status> {
        let client = caller_of(request).map(Connection::client);
        let found = self.admission.admit(client, access(rpc));
        if let Err(status) = &found {
            let took = self.metrics.begin(rpc).answered(status.code());
            let (subject, metadata) = (request.get_ref().subject(), request.metadata());
            let (code, message) = (status.code(), status.message());
            if code == Code::PermissionDenied {
                self.admission.denied(client, message);
            }
            let caller = &client.map(Client::identity).unwrap_or_default();
            self.refused.record(Answered { rpc, code, caller, took, subject, message, metadata }, Instant::now());
        }
        found
    }

    /// Answers a read, and logs it if it is slow or fails.
    async fn read<Q: Subject, T>(
        &self,
        rpc: Rpc,
        request: Request<Q>,
        answer: impl FnOnce(&Session, &Q, Option<&Connection>) -> Result<T, Status>,
    ) -> Result<Response<T>, Status> {
        let session = self.admit(rpc, &request)?;
        session.pace.keep().await;
        let call = self.metrics.begin(rpc);
        let result = answer(&session, request.get_ref(), caller_of(&request)).map_err(cut);
        let code = code_of(&result);
        let took = call.answered(code);
        if session.call_log.must_record(rpc, code, took) {
            session.record(rpc, &request, &result, took);
        }
        result.map(Response::new)
    }

    /// Answers a write of a group. Its command is logged by the scale module.
    async fn write<Q: Subject, T: Default, W: Future<Output = Result<(), ScaleError>>>(
        &self,
        rpc: Rpc,
        request: Request<Q>,
        work: impl FnOnce(Scale, GroupId, Q) -> W,
    ) -> Result<Response<T>, Status> {
        let session = self.admit(rpc, &request)?;
        session.pace.keep().await;
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
                session.record(rpc, &request, &result, took);
                return result;
            }
        };
        let span = session.call_log.traces().call(rpc.as_str(), request.metadata());
        span.set("group", id.to_string());
        let scale = session.scale_for(client.as_ref());
        let group = id.clone();
        let result = work(scale, id, request.into_inner()).with_context(span.context()).await;
        let result = result.map_err(|error| cut(Status::new(error.grpc_code(), error.to_string())));
        let code = code_of(&result);
        call.answered(code);
        if code == Code::NotFound {
            session.report_unknown(&group, client.as_ref());
        }
        span.end(code_name(code), result.as_ref().err().map(|status| status.message().to_owned()));
        result.map(|()| Response::new(T::default()))
    }
}

/// Returns the access that an RPC needs.
fn access(rpc: Rpc) -> Access {
    match rpc {
        Rpc::Refresh => Access::Begin,
        Rpc::NodeGroupIncreaseSize | Rpc::NodeGroupDeleteNodes | Rpc::NodeGroupDecreaseTargetSize => Access::Write,
        Rpc::NodeGroups
        | Rpc::NodeGroupForNode
        | Rpc::PricingNodePrice
        | Rpc::PricingPodPrice
        | Rpc::GpuLabel
        | Rpc::GetAvailableGpuTypes
        | Rpc::Cleanup
        | Rpc::NodeGroupTargetSize
        | Rpc::NodeGroupNodes
        | Rpc::NodeGroupTemplateNodeInfo
        | Rpc::NodeGroupGetOptions => Access::Read,
    }
}

#[tonic::async_trait]
impl CloudProvider for Service {
    async fn node_groups(
        &self,
        request: Request<proto::NodeGroupsRequest>,
    ) -> Result<Response<proto::NodeGroupsResponse>, Status> {
        self.read(Rpc::NodeGroups, request, |session, _, caller| session.groups(caller)).await
    }

    async fn node_group_for_node(
        &self,
        request: Request<proto::NodeGroupForNodeRequest>,
    ) -> Result<Response<proto::NodeGroupForNodeResponse>, Status> {
        self.read(Rpc::NodeGroupForNode, request, |session, message, caller| {
            Ok(session.group_for_node(message.node.as_ref(), caller))
        })
        .await
    }

    async fn pricing_node_price(
        &self,
        request: Request<proto::PricingNodePriceRequest>,
    ) -> Result<Response<proto::PricingNodePriceResponse>, Status> {
        self.read(Rpc::PricingNodePrice, request, |session, message, _| session.node_price(message)).await
    }

    async fn pricing_pod_price(
        &self,
        request: Request<proto::PricingPodPriceRequest>,
    ) -> Result<Response<proto::PricingPodPriceResponse>, Status> {
        self.read(Rpc::PricingPodPrice, request, |session, message, _| session.pod_price(message)).await
    }

    async fn gpu_label(
        &self,
        request: Request<proto::GpuLabelRequest>,
    ) -> Result<Response<proto::GpuLabelResponse>, Status> {
        self.read(Rpc::GpuLabel, request, |_, _, _| Ok(proto::GpuLabelResponse { label: GPU_LABEL.to_owned() })).await
    }

    async fn get_available_gpu_types(
        &self,
        request: Request<proto::GetAvailableGpuTypesRequest>,
    ) -> Result<Response<proto::GetAvailableGpuTypesResponse>, Status> {
        self.read(Rpc::GetAvailableGpuTypes, request, |session, _, _| Ok(session.gpu_types())).await
    }

    async fn cleanup(
        &self,
        request: Request<proto::CleanupRequest>,
    ) -> Result<Response<proto::CleanupResponse>, Status> {
        // Cluster Autoscaler calls Cleanup on every exit, even of a standby, so the call stops nothing.
        self.read(Rpc::Cleanup, request, |_, _, _| Ok(proto::CleanupResponse {})).await
    }

    async fn refresh(
        &self,
        request: Request<proto::RefreshRequest>,
    ) -> Result<Response<proto::RefreshResponse>, Status> {
        // Refresh begins each loop of the caller.
        self.refused.sum_up(Instant::now());
        self.read(Rpc::Refresh, request, |session, _, caller| session.begin_loop(caller)).await
    }

    async fn node_group_target_size(
        &self,
        request: Request<proto::NodeGroupTargetSizeRequest>,
    ) -> Result<Response<proto::NodeGroupTargetSizeResponse>, Status> {
        self.read(Rpc::NodeGroupTargetSize, request, |session, message, _| session.target_size(&message.id)).await
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
            let named = |node: proto::ExternalGrpcNode| NamedNode {
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
        self.read(Rpc::NodeGroupNodes, request, |session, message, _| session.instances(&message.id)).await
    }

    async fn node_group_template_node_info(
        &self,
        request: Request<proto::NodeGroupTemplateNodeInfoRequest>,
    ) -> Result<Response<proto::NodeGroupTemplateNodeInfoResponse>, Status> {
        self.read(Rpc::NodeGroupTemplateNodeInfo, request, |session, message, _| session.template(&message.id)).await
    }

    async fn node_group_get_options(
        &self,
        request: Request<proto::NodeGroupAutoscalingOptionsRequest>,
    ) -> Result<Response<proto::NodeGroupAutoscalingOptionsResponse>, Status> {
        self.read(Rpc::NodeGroupGetOptions, request, |session, message, _| session.options(message)).await
    }
}

/// Returns the connection of a request.
fn caller_of<Q>(request: &Request<Q>) -> Option<&Connection> {
    request.extensions().get()
}
