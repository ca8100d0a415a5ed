//! Makes the calls of an idle loop of Cluster Autoscaler 1.35 or later, in order and number, to any external gRPC cloud provider, and
//! times each call beside the same number of empty ones on the same connection.
//!
//! ```console
//! cargo run --release --example autoscaler_loop -- --address 127.0.0.1:8086 --nodes 5000
//! ```
//!
//! It only reads. The ratio is what counts: the machine, the runtime and the protocol cost both kinds of calls alike.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
    future::Future,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use clap::Parser;
use proto::{
    ExternalGrpcNode, InstanceStatus, NodeGroupAutoscalingOptions, NodeGroupAutoscalingOptionsRequest,
    NodeGroupForNodeRequest, NodeGroupNodesRequest, NodeGroupTargetSizeRequest, NodeGroupTemplateNodeInfoRequest,
    NodeGroupsRequest, RefreshRequest, cloud_provider_client::CloudProviderClient, instance_status::InstanceState,
};
use tonic::{Code, Request, Response, Status, transport::Channel};

/// The deadline of each of Cluster Autoscaler's calls.
const DEADLINE: Duration = Duration::from_secs(5);
/// Cluster Autoscaler doesn't cache the answer that a Node has no group, and asks again in each step of its loop.
const QUESTIONS_ABOUT_OTHERS: usize = 5;
const TARGET_SIZES: usize = 3;
/// The options that it asks for each Node. Versions before 1.35 ask for four.
const OPTIONS: usize = 6;

/// Play the loop of a Cluster Autoscaler that has nothing to do against a provider, and time each call
#[derive(Clone, Debug, Parser)]
#[command(name = "autoscaler_loop", max_term_width = 110)]
pub(crate) struct Args {
    /// Where the provider serves gRPC, without TLS
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8086")]
    pub(crate) address: String,

    /// Make up this many Nodes: first those of the groups' running instances, then some of no group. Default: as many
    /// as there are running instances
    #[arg(long, value_name = "N")]
    pub(crate) nodes: Option<usize>,

    /// How many loops to play
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) loops: usize,

    /// How many calls of the loop to make before as many calls of Refresh, which are empty
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) block: usize,
}

/// Returns Cluster Autoscaler's own defaults, as versions since 1.35 send them.
fn defaults() -> NodeGroupAutoscalingOptions {
    let minutes = |minutes: i64| Some(prost_types::Duration { seconds: minutes * 60, nanos: 0 });
    NodeGroupAutoscalingOptions {
        scale_down_utilization_threshold: 0.5,
        scale_down_gpu_utilization_threshold: 0.5,
        scale_down_unneeded_duration: minutes(10),
        scale_down_unready_duration: minutes(20),
        max_node_provision_duration: minutes(15),
        ..NodeGroupAutoscalingOptions::default()
    }
}

/// The calls of one RPC.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples {
    /// The duration of each call.
    pub(crate) took: Vec<Duration>,
    /// The answers that were errors, by code.
    pub(crate) errors: BTreeMap<String, usize>,
}

impl Samples {
    fn add(&mut self, more: &Self) {
        self.took.extend(&more.took);
        for (code, errors) in &more.errors {
            *self.errors.entry(code.clone()).or_default() += errors;
        }
    }

    /// Returns the duration in µs that this percentage of the calls doesn't exceed.
    pub(crate) fn quantile(&self, percent: usize) -> f64 {
        let mut took = self.took.clone();
        took.sort_unstable();
        let rank = (took.len() * percent).div_ceil(100);
        took.get(rank.saturating_sub(1)).copied().unwrap_or_default().as_secs_f64() * 1e6
    }

    /// Returns the mean duration of a call in seconds.
    fn mean(&self) -> f64 {
        let count = u32::try_from(self.took.len()).unwrap_or(u32::MAX).max(1);
        (self.took.iter().sum::<Duration>() / count).as_secs_f64()
    }
}

/// What was asked for, and the calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub(crate) groups: usize,
    pub(crate) nodes: usize,
    /// The number of Nodes that belong to a group.
    pub(crate) grouped_nodes: usize,
    /// The calls of the loops by RPC.
    pub(crate) rpcs: BTreeMap<&'static str, Samples>,
    /// As many calls of Refresh.
    pub(crate) empty: Samples,
    /// NodeGroupNodes of each group, which Cluster Autoscaler calls every 2 minutes and not in each loop.
    pub(crate) instances: Samples,
}

impl Report {
    /// Returns all calls of the loops together.
    pub(crate) fn whole(&self) -> Samples {
        let mut whole = Samples::default();
        self.rpcs.values().for_each(|samples| whole.add(samples));
        whole
    }

    /// Returns a table for people.
    pub(crate) fn table(&self, args: &Args) -> String {
        let mut text = format!(
            "{} groups, {} Nodes ({} of a group), {} loops\n\n{:<28}{:>9}{:>10}{:>10}{:>12}{:>12}\n",
            self.groups,
            self.nodes,
            self.grouped_nodes,
            args.loops,
            "RPC",
            "N",
            "P50 µs",
            "P99 µs",
            "TOTAL ms",
            "× Refresh"
        );
        let (whole, empty) = (self.whole(), self.empty.mean());
        let rows = self.rpcs.iter().map(|(rpc, samples)| (*rpc, samples)).chain([
            ("the whole loop", &whole),
            ("Refresh, empty", &self.empty),
            ("NodeGroupNodes, every 2 min", &self.instances),
        ]);
        for (name, samples) in rows {
            let total = samples.took.iter().sum::<Duration>().as_secs_f64() * 1e3;
            let (median, p99, ratio) = (samples.quantile(50), samples.quantile(99), samples.mean() / empty);
            let count = samples.took.len();
            let _ = write!(text, "{name:<28}{count:>9}{median:>10.1}{p99:>10.1}{total:>12.1}{ratio:>12.2}");
            for (code, errors) in &samples.errors {
                let _ = write!(text, "   {errors} × {code}");
            }
            text.push('\n');
        }
        text
    }
}

/// One connection, with the calls so far.
struct Caller<'a> {
    client: CloudProviderClient<Channel>,
    args: &'a Args,
    report: Report,
    /// The number of the loop's calls since the last empty ones.
    in_block: usize,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    println!("{}", play(&args).await?.table(&args));
    Ok(())
}

/// Plays the loops, sequentially on one connection. Each block of calls is followed by as many empty ones, so that any
/// other load on the machine affects both alike.
pub(crate) async fn play(args: &Args) -> anyhow::Result<Report> {
    let authority = args.address.strip_prefix("http://").unwrap_or(&args.address);
    let channel = Channel::from_shared(format!("http://{authority}"))?;
    let channel = channel.connect().await.with_context(|| format!("can't connect to the provider at {authority}"))?;
    let client = CloudProviderClient::new(channel);
    let mut caller = Caller { client, args, report: Report::default(), in_block: 0 };
    let nodes = caller.look().await?;
    for _ in 0..args.loops.max(1) {
        caller.play(&nodes).await?;
    }
    Ok(caller.report)
}

impl Caller<'_> {
    /// Returns the Nodes to ask about, from the groups and the instances of each: the state that Cluster Autoscaler has
    /// before a loop.
    async fn look(&mut self) -> anyhow::Result<Vec<ExternalGrpcNode>> {
        self.client.refresh(ask(RefreshRequest {})).await.context("Refresh")?;
        let groups = self.client.node_groups(ask(NodeGroupsRequest {})).await.context("NodeGroups")?;
        let mut nodes = Vec::new();
        for group in groups.into_inner().node_groups {
            self.report.groups += 1;
            let request = NodeGroupNodesRequest { id: group.id };
            let answer = self.client.node_group_nodes(ask(request)).await.context("NodeGroupNodes")?;
            let runs = InstanceState::InstanceRunning;
            let running = answer.into_inner().instances.into_iter();
            let running = running.filter(|it| it.status.as_ref().map(InstanceStatus::instance_state) == Some(runs));
            nodes.extend(running.map(|instance| made_up(&instance.id)));
        }
        if let Some(wanted) = self.args.nodes {
            nodes.truncate(wanted);
            let missing = wanted - nodes.len();
            nodes.extend((0..missing).map(|number| made_up(&format!("elsewhere:///zone-z/other-{number}"))));
        }
        ensure!(
            !nodes.is_empty() || self.report.groups > 0,
            "there are no Nodes and no groups: --nodes N makes some Nodes up"
        );
        for node in &nodes {
            let request = NodeGroupForNodeRequest { node: Some(node.clone()) };
            let answer = self.client.node_group_for_node(ask(request)).await.context("NodeGroupForNode")?;
            let is_grouped = answer.into_inner().node_group.is_some_and(|group| !group.id.is_empty());
            self.report.grouped_nodes += usize::from(is_grouped);
        }
        self.report.nodes = nodes.len();
        Ok(nodes)
    }

    /// Makes the calls of one loop.
    async fn play(&mut self, nodes: &[ExternalGrpcNode]) -> anyhow::Result<()> {
        let mut client = self.client.clone();
        self.call("Refresh", client.refresh(ask(RefreshRequest {}))).await?;
        let groups = self.call("NodeGroups", client.node_groups(ask(NodeGroupsRequest {}))).await?;
        let groups: Vec<_> = groups.unwrap_or_default().node_groups.into_iter().map(|group| group.id).collect();
        let (mut empty, mut group_of) = (Vec::new(), HashMap::new());
        for pass in 0..TARGET_SIZES {
            for id in &groups {
                let request = ask(NodeGroupTargetSizeRequest { id: id.clone() });
                let answer = self.call("NodeGroupTargetSize", client.node_group_target_size(request)).await?;
                if pass == 0 && answer.is_some_and(|answer| answer.target_size == 0) {
                    empty.push(id);
                }
            }
            if pass == 0 {
                group_of = self.ask_for_groups(nodes).await?;
            }
        }
        for id in empty {
            let request = ask(NodeGroupTemplateNodeInfoRequest { id: id.clone() });
            self.call("NodeGroupTemplateNodeInfo", client.node_group_template_node_info(request)).await?;
        }
        let defaults = defaults();
        for index in 0..nodes.len() {
            let Some(id) = group_of.get(&index) else { continue };
            for _ in 0..OPTIONS {
                let request = NodeGroupAutoscalingOptionsRequest { id: String::clone(id), defaults: Some(defaults) };
                self.call("NodeGroupGetOptions", client.node_group_get_options(ask(request))).await?;
            }
        }
        self.empty_calls().await?;
        for id in &groups {
            let request = ask(NodeGroupNodesRequest { id: id.clone() });
            measure(&mut self.report.instances, client.node_group_nodes(request)).await?;
        }
        Ok(())
    }

    /// Calls `NodeGroupForNode` for each Node. Returns the groups by the Nodes' positions.
    async fn ask_for_groups(&mut self, nodes: &[ExternalGrpcNode]) -> anyhow::Result<HashMap<usize, String>> {
        let (mut client, mut known) = (self.client.clone(), HashMap::new());
        for (index, node) in nodes.iter().enumerate() {
            for _ in 0..QUESTIONS_ABOUT_OTHERS {
                let request = ask(NodeGroupForNodeRequest { node: Some(node.clone()) });
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
        let answer = measure(self.report.rpcs.entry(rpc).or_default(), call).await?;
        self.in_block += 1;
        if self.in_block >= self.args.block.max(1) {
            self.empty_calls().await?;
        }
        Ok(answer)
    }

    async fn empty_calls(&mut self) -> anyhow::Result<()> {
        for _ in 0..std::mem::take(&mut self.in_block) {
            measure(&mut self.report.empty, self.client.refresh(ask(RefreshRequest {}))).await?;
        }
        Ok(())
    }
}

/// Times a call. An error counts as an answer, unless the connection is gone.
async fn measure<T>(
    samples: &mut Samples,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> anyhow::Result<Option<T>> {
    let began = Instant::now();
    let answer = call.await;
    samples.took.push(began.elapsed());
    match answer {
        Ok(answer) => Ok(Some(answer.into_inner())),
        Err(status) => {
            *samples.errors.entry(format!("{:?}", status.code())).or_default() += 1;
            let is_lost = status.code() == Code::Unavailable && std::error::Error::source(&status).is_some();
            if is_lost { Err(status).context("the connection is gone") } else { Ok(None) }
        }
    }
}

fn ask<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(DEADLINE);
    request
}

/// Returns a Node with as many labels and annotations as a real one, since each call sends them all.
fn made_up(provider_id: &str) -> ExternalGrpcNode {
    let name = provider_id.rsplit('/').next().unwrap_or(provider_id).to_owned();
    let texts = |pairs: &[(&str, &str)]| -> HashMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let labels = texts(&[
        ("beta.kubernetes.io/arch", "amd64"),
        ("beta.kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", "amd64"),
        ("kubernetes.io/hostname", &name),
        ("kubernetes.io/os", "linux"),
        ("node.cluster.x-k8s.io/pool", "workers"),
        ("node.kubernetes.io/instance-type", "standard-8"),
        ("topology.kubernetes.io/region", "region-1"),
        ("topology.kubernetes.io/zone", "zone-a"),
    ]);
    let annotations = texts(&[
        ("cluster.x-k8s.io/cluster-name", "prod"),
        ("cluster.x-k8s.io/labels-from-machine", "node.cluster.x-k8s.io/pool"),
        ("cluster.x-k8s.io/owner-kind", "MachineSet"),
        ("node.alpha.kubernetes.io/ttl", "0"),
        ("volumes.kubernetes.io/controller-managed-attach-detach", "true"),
    ]);
    ExternalGrpcNode { provider_id: provider_id.to_owned(), name, labels, annotations }
}
