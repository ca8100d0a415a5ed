//! The program under test, called as Cluster Autoscaler calls it.

use std::{ops::Deref, time::Duration};

use anyhow::{Context, Result, ensure};
use kube::{Client, Config, client::Body};
use tonic::{
    Code, Request, Status,
    transport::{Channel, Endpoint},
};

use crate::{
    control_plane::http_get,
    process::Process,
    proto::{
        CleanupRequest, ExternalGrpcNode, GetAvailableGpuTypesRequest, GpuLabelRequest, Instance, NodeGroup,
        NodeGroupAutoscalingOptions, NodeGroupAutoscalingOptionsRequest, NodeGroupDecreaseTargetSizeRequest,
        NodeGroupDeleteNodesRequest, NodeGroupForNodeRequest, NodeGroupIncreaseSizeRequest, NodeGroupNodesRequest,
        NodeGroupTargetSizeRequest, NodeGroupTemplateNodeInfoRequest, NodeGroupTemplateNodeInfoResponse,
        NodeGroupsRequest, PricingNodePriceRequest, PricingPodPriceRequest, RefreshRequest,
        cloud_provider_client::CloudProviderClient,
    },
    wait::{Hopeless, SOON, eventually},
};

/// Cluster Autoscaler's own deadline. A call that takes longer fails the scenario, so none can hang.
const DEADLINE: Duration = Duration::from_secs(5);

/// A running program, which can be called. Dropping it kills it.
pub struct Provider {
    /// The process, for signals.
    pub process: Process,
    grpc: u16,
    caller: Caller,
    http: Client,
}

/// A connection to a provider.
#[derive(Clone, Debug)]
pub struct Caller(Channel);

impl Deref for Provider {
    type Target = Caller;

    fn deref(&self) -> &Caller {
        &self.caller
    }
}

impl Provider {
    /// For a program that listens on these ports, or will soon.
    pub(crate) fn new(process: Process, grpc: u16, http: u16) -> Result<Self> {
        let caller = Caller::to(&format!("127.0.0.1:{grpc}"))?;
        let mut config = Config::new(format!("http://127.0.0.1:{http}").parse()?);
        config.default_retry = false;
        config.connect_timeout = Some(DEADLINE);
        config.read_timeout = Some(DEADLINE);
        Ok(Self { process, grpc, caller, http: Client::try_from(config)? })
    }

    /// The same, called by another way to its gRPC port.
    #[must_use]
    pub fn called_by(self, channel: impl FnOnce(u16) -> Channel) -> Self {
        Self { caller: Caller(channel(self.grpc)), ..self }
    }

    /// Another connection to it.
    pub fn another(&self) -> Result<Caller> {
        Caller::to(&format!("127.0.0.1:{}", self.grpc))
    }

    /// Waits until `/readyz` says that it is ready.
    pub async fn ready(&mut self) -> Result<()> {
        eventually("program ready", SOON, async || {
            self.process.still_running()?;
            let (status, body) = self.http("/readyz?verbose").await?;
            ensure!(status == 200, "/readyz answers {status}:\n{body}");
            Ok(())
        })
        .await
    }

    /// Status code and body of one of its pages.
    pub async fn http(&self, path: &str) -> Result<(u16, String)> {
        let request = http_get(path)?.map(Body::from);
        let answer = self.http.send(request).await?;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect_bytes().await?;
        Ok((status, String::from_utf8(body.to_vec())?))
    }
}

impl Caller {
    /// To an address, as `127.0.0.1:1234`; it is connected to when it is called.
    pub fn to(address: &str) -> Result<Self> {
        Ok(Self(Endpoint::from_shared(format!("http://{address}"))?.timeout(DEADLINE).connect_lazy()))
    }

    /// The connection itself.
    #[must_use]
    pub fn channel(&self) -> Channel {
        self.0.clone()
    }

    /// A client for what the methods here do not cover.
    #[must_use]
    pub fn client(&self) -> CloudProviderClient<Channel> {
        CloudProviderClient::new(self.channel())
    }

    /// Refresh
    pub async fn refresh(&self) -> Result<(), Status> {
        self.client().refresh(ask(RefreshRequest {})).await?;
        Ok(())
    }

    /// `NodeGroups`, by id
    pub async fn groups(&self) -> Result<Vec<NodeGroup>, Status> {
        let answer = self.client().node_groups(ask(NodeGroupsRequest {})).await?;
        let mut groups = answer.into_inner().node_groups;
        groups.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(groups)
    }

    /// Refresh, then the ids of `NodeGroups` in order
    pub async fn refreshed_ids(&self) -> Result<Vec<String>, Status> {
        self.refresh().await?;
        let groups = self.groups().await?;
        Ok(groups.into_iter().map(|group| group.id).collect())
    }

    /// Waits until Refresh leads to exactly these groups. What was written just before takes a moment to be seen.
    pub async fn shows(&self, ids: &[&str]) -> Result<()> {
        let mut expected: Vec<&str> = ids.to_vec();
        expected.sort_unstable();
        eventually("groups", SOON, async || {
            let ids = self.refreshed_ids().await?;
            ensure!(ids == expected, "groups are {ids:?}, expected {expected:?}");
            Ok(())
        })
        .await
    }

    /// `NodeGroupForNode`; None for a Node of no group
    pub async fn group_of(&self, node: &ExternalGrpcNode) -> Result<Option<NodeGroup>, Status> {
        let request = NodeGroupForNodeRequest { node: Some(node.clone()) };
        let answer = self.client().node_group_for_node(ask(request)).await?;
        let group = answer.into_inner().node_group;
        Ok(group.filter(|group| !group.id.is_empty()))
    }

    /// `NodeGroupNodes`
    pub async fn instances(&self, id: &str) -> Result<Vec<Instance>, Status> {
        let request = NodeGroupNodesRequest { id: id.to_owned() };
        let answer = self.client().node_group_nodes(ask(request)).await?;
        Ok(answer.into_inner().instances)
    }

    /// `NodeGroupTargetSize`
    pub async fn target_size(&self, id: &str) -> Result<i32, Status> {
        let request = NodeGroupTargetSizeRequest { id: id.to_owned() };
        let answer = self.client().node_group_target_size(ask(request)).await?;
        Ok(answer.into_inner().target_size)
    }

    /// `NodeGroupIncreaseSize`
    pub async fn increase(&self, id: &str, delta: i32) -> Result<(), Status> {
        let id = id.to_owned();
        let request = NodeGroupIncreaseSizeRequest { delta, id };
        self.client().node_group_increase_size(ask(request)).await?;
        Ok(())
    }

    /// `NodeGroupDecreaseTargetSize`
    pub async fn decrease(&self, id: &str, delta: i32) -> Result<(), Status> {
        let id = id.to_owned();
        let request = NodeGroupDecreaseTargetSizeRequest { delta, id };
        self.client().node_group_decrease_target_size(ask(request)).await?;
        Ok(())
    }

    /// `NodeGroupDeleteNodes`
    pub async fn delete(&self, id: &str, nodes: &[ExternalGrpcNode]) -> Result<(), Status> {
        let request = NodeGroupDeleteNodesRequest { nodes: nodes.to_vec(), id: id.to_owned() };
        self.client().node_group_delete_nodes(ask(request)).await?;
        Ok(())
    }

    /// `NodeGroupDeleteNodes` as it is asked for over several loops: a call that ran out of time, or says come again, is repeated.
    pub async fn delete_at_last(&self, id: &str, nodes: &[ExternalGrpcNode]) -> Result<()> {
        eventually(&format!("delete in {id}"), 2 * SOON, async || {
            self.delete(id, nodes).await.map_err(|status| match status.code() {
                Code::Cancelled | Code::DeadlineExceeded | Code::Aborted | Code::Unavailable => status.into(),
                _ => Hopeless(status.to_string()).into(),
            })
        })
        .await
    }

    /// `NodeGroupGetOptions`; None where the defaults stand
    pub async fn options(
        &self,
        id: &str,
        defaults: NodeGroupAutoscalingOptions,
    ) -> Result<Option<NodeGroupAutoscalingOptions>, Status> {
        let request = NodeGroupAutoscalingOptionsRequest { id: id.to_owned(), defaults: Some(defaults) };
        let answer = self.client().node_group_get_options(ask(request)).await?;
        Ok(answer.into_inner().node_group_autoscaling_options)
    }

    /// `PricingNodePrice`
    pub async fn node_price(&self, request: PricingNodePriceRequest) -> Result<f64, Status> {
        Ok(self.client().pricing_node_price(ask(request)).await?.into_inner().price)
    }

    /// `PricingPodPrice`
    pub async fn pod_price(&self, request: PricingPodPriceRequest) -> Result<f64, Status> {
        Ok(self.client().pricing_pod_price(ask(request)).await?.into_inner().price)
    }

    /// `GPULabel`
    pub async fn gpu_label(&self) -> Result<String, Status> {
        Ok(self.client().gpu_label(ask(GpuLabelRequest {})).await?.into_inner().label)
    }

    /// `GetAvailableGPUTypes`, by name
    pub async fn gpu_types(&self) -> Result<Vec<String>, Status> {
        let answer = self.client().get_available_gpu_types(ask(GetAvailableGpuTypesRequest {})).await?;
        Ok(answer.into_inner().gpu_types.into_keys().collect())
    }

    /// `Cleanup`
    pub async fn cleanup(&self) -> Result<(), Status> {
        self.client().cleanup(ask(CleanupRequest {})).await?;
        Ok(())
    }

    /// `NodeGroupTemplateNodeInfo`
    pub async fn template(&self, id: &str) -> Result<NodeGroupTemplateNodeInfoResponse, Status> {
        let request = NodeGroupTemplateNodeInfoRequest { id: id.to_owned() };
        let answer = self.client().node_group_template_node_info(ask(request)).await?;
        Ok(answer.into_inner())
    }
}

/// A request with Cluster Autoscaler's deadline in it.
pub fn ask<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(DEADLINE);
    request
}

/// A Node as Cluster Autoscaler makes one up for an instance that has none: both name and providerID are the instance's id.
#[must_use]
pub fn made_up_node(instance: &str) -> ExternalGrpcNode {
    ExternalGrpcNode { provider_id: instance.to_owned(), name: instance.to_owned(), ..ExternalGrpcNode::default() }
}

/// Fails unless the call was refused with this code, and with a message that says each of these.
pub fn assert_refused<T>(answer: Result<T, Status>, code: Code, says: &[&str]) -> Result<()> {
    let status = answer.err().context("the call was not refused")?;
    ensure!(status.code() == code, "refused with {:?} ({}), expected {code:?}", status.code(), status.message());
    for word in says {
        ensure!(status.message().contains(word), "the refusal does not say {word:?}: {}", status.message());
    }
    Ok(())
}
