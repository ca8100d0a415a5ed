//! The service of many workload clusters: each call is answered by the service of its caller's Cluster, which is found
//! anew for each call, so that a Cluster that leaves is refused at once. A caller must never learn anything of another
//! Cluster: the service of its own has none of that.

use std::{sync::Arc, time::Instant};

use tonic::{Code, Request, Response, Status};

use super::{
    CallLogOptions, RpcMetrics, Service,
    call_log::{Answered, CallLog},
    caller_of,
    metrics::Rpc,
    subject::Subject,
};
use proto::cloud_provider_server::CloudProvider;
use server::{Client, Connection};

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

/// The services of the Clusters.
pub trait Services: Send + Sync + 'static {
    /// Returns the service of the caller's Cluster. It is called for each call, so it must answer from memory.
    ///
    /// # Errors
    /// A caller without a Cluster, or whose Cluster doesn't allow this access now.
    fn of(&self, caller: Option<&Client>, access: Access) -> Result<Service, Status>;

    /// A call of this client was denied for this reason.
    fn denied(&self, caller: Option<&Client>, reason: &str);
}

/// The service of many workload clusters.
#[derive(Clone)]
pub struct ByCaller {
    services: Arc<dyn Services>,
    metrics: RpcMetrics,
    call_log: Arc<CallLog>,
}

impl ByCaller {
    /// Returns a service that answers by `services`, and counts and logs the calls that it refuses.
    #[must_use]
    pub fn new(services: Arc<dyn Services>, metrics: RpcMetrics, log: CallLogOptions) -> Self {
        Self { services, metrics, call_log: Arc::new(CallLog::new(log)) }
    }

    fn service<Q: Subject>(&self, rpc: Rpc, request: &Request<Q>) -> Result<Service, Status> {
        let client = caller_of(request).map(Connection::client);
        let found = self.services.of(client, access(rpc));
        if let Err(status) = &found {
            let took = self.metrics.begin(rpc).answered(status.code());
            let (subject, metadata) = (request.get_ref().subject(), request.metadata());
            let (code, message) = (status.code(), status.message());
            if code == Code::PermissionDenied {
                self.services.denied(client, message);
            }
            let caller = &client.map(Client::identity).unwrap_or_default();
            self.call_log.record(Answered { rpc, code, caller, took, subject, message, metadata }, Instant::now());
        }
        found
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

macro_rules! answered_by_the_callers_service {
    ($($method:ident $rpc:ident $request:ident $response:ident)*) => {
        #[tonic::async_trait]
        impl CloudProvider for ByCaller {
            $(async fn $method(
                &self,
                request: Request<proto::$request>,
            ) -> Result<Response<proto::$response>, Status> {
                if Rpc::$rpc == Rpc::Refresh {
                    self.call_log.sum_up(Instant::now());
                }
                let service = self.service(Rpc::$rpc, &request)?;
                service.pace.keep().await;
                service.$method(request).await
            })*
        }
    };
}

answered_by_the_callers_service! {
    node_groups NodeGroups NodeGroupsRequest NodeGroupsResponse
    node_group_for_node NodeGroupForNode NodeGroupForNodeRequest NodeGroupForNodeResponse
    pricing_node_price PricingNodePrice PricingNodePriceRequest PricingNodePriceResponse
    pricing_pod_price PricingPodPrice PricingPodPriceRequest PricingPodPriceResponse
    gpu_label GpuLabel GpuLabelRequest GpuLabelResponse
    get_available_gpu_types GetAvailableGpuTypes GetAvailableGpuTypesRequest GetAvailableGpuTypesResponse
    cleanup Cleanup CleanupRequest CleanupResponse
    refresh Refresh RefreshRequest RefreshResponse
    node_group_target_size NodeGroupTargetSize NodeGroupTargetSizeRequest NodeGroupTargetSizeResponse
    node_group_increase_size NodeGroupIncreaseSize NodeGroupIncreaseSizeRequest NodeGroupIncreaseSizeResponse
    node_group_delete_nodes NodeGroupDeleteNodes NodeGroupDeleteNodesRequest NodeGroupDeleteNodesResponse
    node_group_decrease_target_size NodeGroupDecreaseTargetSize NodeGroupDecreaseTargetSizeRequest
        NodeGroupDecreaseTargetSizeResponse
    node_group_nodes NodeGroupNodes NodeGroupNodesRequest NodeGroupNodesResponse
    node_group_template_node_info NodeGroupTemplateNodeInfo NodeGroupTemplateNodeInfoRequest
        NodeGroupTemplateNodeInfoResponse
    node_group_get_options NodeGroupGetOptions NodeGroupAutoscalingOptionsRequest NodeGroupAutoscalingOptionsResponse
}
