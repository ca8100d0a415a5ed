//! The calls of one loop, in the order and number in which an idle Cluster Autoscaler makes them, sequentially on one
//! connection. Each block of them is followed by as many empty calls, so that any other load on the machine affects
//! both alike.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    future::Future,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use clap::ValueEnum;
use proto::{
    ExternalGrpcNode, GpuLabelRequest, Instance, MetaDuration, NodeGroup, NodeGroupAutoscalingOptions,
    NodeGroupAutoscalingOptionsRequest, NodeGroupForNodeRequest, NodeGroupNodesRequest, NodeGroupTargetSizeRequest,
    NodeGroupTemplateNodeInfoRequest, NodeGroupsRequest, RefreshRequest, cloud_provider_client::CloudProviderClient,
};
use serde::Serialize;
use tonic::{Code, Request, Response, Status, transport::Channel};

/// The deadline of each of Cluster Autoscaler's calls.
const DEADLINE: Duration = Duration::from_secs(5);
/// Cluster Autoscaler doesn't cache the answer that a Node has no group, and asks again in each step of its loop.
const QUESTIONS_ABOUT_OTHERS: usize = 5;
const TARGET_SIZES: usize = 3;

/// Which Cluster Autoscaler is played.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, ValueEnum)]
pub(crate) enum CaVersion {
    #[value(name = "1.33")]
    #[serde(rename = "1.33")]
    V1_33,
    #[value(name = "1.34")]
    #[serde(rename = "1.34")]
    V1_34,
    #[value(name = "1.35")]
    #[serde(rename = "1.35")]
    V1_35,
    #[value(name = "1.36")]
    #[serde(rename = "1.36")]
    V1_36,
}

/// The empty call.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, ValueEnum)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Empty {
    Refresh,
    GpuLabel,
    /// First the one, then the other.
    Both,
}

/// The settings of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    pub(crate) version: CaVersion,
    pub(crate) empty: Empty,
    /// The number of the loop's calls before as many empty ones; more than 0.
    pub(crate) block: usize,
    /// The max number of empty calls after a block.
    pub(crate) empty_calls: usize,
}

/// The part of a run that a call belongs to.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Part {
    /// The loop.
    Loop,
    /// Outside the loop: Cluster Autoscaler fetches all instances every 2 minutes.
    Instances,
    /// The empty calls.
    Empty,
}

/// The calls of one RPC.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples {
    /// The duration of each call.
    pub(crate) took: Vec<Duration>,
    /// The answers that were errors, by code.
    pub(crate) errors: BTreeMap<String, usize>,
}

/// The calls by their part and RPC.
pub(crate) type AllSamples = BTreeMap<(Part, &'static str), Samples>;

/// The Nodes and groups to ask about.
#[derive(Debug)]
pub(crate) struct Fleet {
    pub(crate) nodes: Vec<ExternalGrpcNode>,
    /// The number of Nodes that belong to a group, according to the provider.
    pub(crate) grouped: usize,
    pub(crate) groups: usize,
}

/// One connection, and the samples of its calls.
#[derive(Debug)]
pub(crate) struct Caller {
    client: CloudProviderClient<Channel>,
    style: Style,
    samples: AllSamples,
    /// The number of the loop's calls since the last empty ones.
    in_block: usize,
}

impl CaVersion {
    /// Returns the number of `NodeGroupGetOptions` calls about each Node.
    fn options(self) -> usize {
        match self {
            Self::V1_33 | Self::V1_34 => 4,
            Self::V1_35 | Self::V1_36 => 6,
        }
    }

    /// Returns Cluster Autoscaler's own defaults, in the fields that the version sends.
    fn defaults(self) -> NodeGroupAutoscalingOptions {
        let (old, new) = match self {
            Self::V1_33 => (true, false),
            Self::V1_34 => (true, true),
            Self::V1_35 | Self::V1_36 => (false, true),
        };
        let old = |minutes: i64| old.then_some(MetaDuration { duration: minutes * 60_000_000_000 });
        let new = |minutes: i64| new.then_some(prost_types::Duration { seconds: minutes * 60, nanos: 0 });
        NodeGroupAutoscalingOptions {
            scale_down_utilization_threshold: 0.5,
            scale_down_gpu_utilization_threshold: 0.5,
            scale_down_unneeded_time: old(10),
            scale_down_unready_time: old(20),
            max_node_provision_time: old(15),
            scale_down_unneeded_duration: new(10),
            scale_down_unready_duration: new(20),
            max_node_provision_duration: new(15),
            ..NodeGroupAutoscalingOptions::default()
        }
    }
}

impl fmt::Display for CaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V1_33 => "1.33",
            Self::V1_34 => "1.34",
            Self::V1_35 => "1.35",
            Self::V1_36 => "1.36",
        })
    }
}

impl Caller {
    /// Connects to a provider.
    pub(crate) async fn connect(address: &str, style: Style) -> anyhow::Result<Self> {
        let authority = address.strip_prefix("http://").unwrap_or(address);
        let channel = Channel::from_shared(format!("http://{authority}"))?;
        let channel = channel.connect().await.with_context(|| format!("can't connect to the provider at {address}"))?;
        Ok(Self { client: CloudProviderClient::new(channel), style, samples: AllSamples::new(), in_block: 0 })
    }

    /// Returns the samples of the timed calls.
    pub(crate) fn samples(&self) -> &AllSamples {
        &self.samples
    }

    /// Returns the groups and the instances of each, untimed: the state that Cluster Autoscaler has before a loop.
    pub(crate) async fn look(&mut self) -> anyhow::Result<Vec<(NodeGroup, Vec<Instance>)>> {
        self.client.refresh(timed(RefreshRequest {})).await.context("Refresh")?;
        let groups = self.client.node_groups(timed(NodeGroupsRequest {})).await.context("NodeGroups")?;
        let mut known = Vec::new();
        for group in groups.into_inner().node_groups {
            let request = NodeGroupNodesRequest { id: group.id.clone() };
            let answer = self.client.node_group_nodes(timed(request)).await.context("NodeGroupNodes")?;
            known.push((group, answer.into_inner().instances));
        }
        Ok(known)
    }

    /// Returns the group of a Node, untimed, or `None` for a Node without one.
    pub(crate) async fn group_of(&mut self, node: &ExternalGrpcNode) -> anyhow::Result<Option<String>> {
        let request = NodeGroupForNodeRequest { node: Some(node.clone()) };
        let answer = self.client.node_group_for_node(timed(request)).await.context("NodeGroupForNode")?;
        Ok(answer.into_inner().node_group.map(|group| group.id).filter(|id| !id.is_empty()))
    }

    /// Makes the calls of one loop.
    pub(crate) async fn play(&mut self, fleet: &Fleet) -> anyhow::Result<()> {
        let client = self.client.clone();
        let mut asked = client.clone();
        self.call("Refresh", asked.refresh(timed(RefreshRequest {}))).await?;
        let groups = self.call("NodeGroups", asked.node_groups(timed(NodeGroupsRequest {}))).await?;
        let groups: Vec<_> = groups.unwrap_or_default().node_groups.into_iter().map(|group| group.id).collect();
        let mut empty = Vec::new();
        let mut group_of = HashMap::new();
        for pass in 0..TARGET_SIZES {
            for id in &groups {
                let request = timed(NodeGroupTargetSizeRequest { id: id.clone() });
                let answer = self.call("NodeGroupTargetSize", asked.node_group_target_size(request)).await?;
                if pass == 0 && answer.is_some_and(|answer| answer.target_size == 0) {
                    empty.push(id);
                }
            }
            if pass == 0 {
                group_of = self.ask_for_groups(&client, fleet).await?;
            }
        }
        for id in empty {
            let request = timed(NodeGroupTemplateNodeInfoRequest { id: id.clone() });
            self.call("NodeGroupTemplateNodeInfo", asked.node_group_template_node_info(request)).await?;
        }
        let defaults = self.style.version.defaults();
        for index in 0..fleet.nodes.len() {
            let Some(id) = group_of.get(&index) else { continue };
            for _ in 0..self.style.version.options() {
                let request = NodeGroupAutoscalingOptionsRequest { id: String::clone(id), defaults: Some(defaults) };
                self.call("NodeGroupGetOptions", asked.node_group_get_options(timed(request))).await?;
            }
        }
        self.empty_calls().await?;
        for id in &groups {
            let request = timed(NodeGroupNodesRequest { id: id.clone() });
            self.measure(Part::Instances, "NodeGroupNodes", asked.node_group_nodes(request)).await?;
        }
        Ok(())
    }

    /// Calls `NodeGroupForNode` for each Node. Returns the groups by the Nodes' positions.
    async fn ask_for_groups(
        &mut self,
        client: &CloudProviderClient<Channel>,
        fleet: &Fleet,
    ) -> anyhow::Result<HashMap<usize, String>> {
        let mut client = client.clone();
        let mut known = HashMap::new();
        for (index, node) in fleet.nodes.iter().enumerate() {
            for _ in 0..QUESTIONS_ABOUT_OTHERS {
                let request = timed(NodeGroupForNodeRequest { node: Some(node.clone()) });
                let answer = self.call("NodeGroupForNode", client.node_group_for_node(request)).await?;
                let group = answer.and_then(|answer| answer.node_group).map(|group| group.id);
                if let Some(id) = group.filter(|id| !id.is_empty()) {
                    known.insert(index, id);
                    break;
                }
            }
        }
        Ok(known)
    }

    /// Makes a call of the loop, and the empty ones that are due after it.
    async fn call<T>(
        &mut self,
        rpc: &'static str,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> anyhow::Result<Option<T>> {
        let answer = self.measure(Part::Loop, rpc, call).await?;
        self.in_block += 1;
        if self.in_block >= self.style.block {
            self.empty_calls().await?;
        }
        Ok(answer)
    }

    async fn empty_calls(&mut self) -> anyhow::Result<()> {
        let calls = std::mem::take(&mut self.in_block).min(self.style.empty_calls);
        let (refresh, gpu_label) = match self.style.empty {
            Empty::Refresh => (true, false),
            Empty::GpuLabel => (false, true),
            Empty::Both => (true, true),
        };
        let mut client = self.client.clone();
        for _ in 0..if refresh { calls } else { 0 } {
            self.measure(Part::Empty, "Refresh", client.refresh(timed(RefreshRequest {}))).await?;
        }
        for _ in 0..if gpu_label { calls } else { 0 } {
            self.measure(Part::Empty, "GPULabel", client.gpu_label(timed(GpuLabelRequest {}))).await?;
        }
        Ok(())
    }

    /// Times a call. An error counts as an answer, unless the connection is gone.
    async fn measure<T>(
        &mut self,
        part: Part,
        rpc: &'static str,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> anyhow::Result<Option<T>> {
        let began = Instant::now();
        let answer = call.await;
        let took = began.elapsed();
        let samples = self.samples.entry((part, rpc)).or_default();
        samples.took.push(took);
        match answer {
            Ok(answer) => Ok(Some(answer.into_inner())),
            Err(status) => {
                *samples.errors.entry(format!("{:?}", status.code())).or_default() += 1;
                let is_lost = status.code() == Code::Unavailable && std::error::Error::source(&status).is_some();
                if is_lost { Err(status).with_context(|| format!("the connection is gone ({rpc})")) } else { Ok(None) }
            }
        }
    }
}

fn timed<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(DEADLINE);
    request
}
