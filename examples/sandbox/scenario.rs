//! Acts as a Cluster Autoscaler: a node group grows by two Nodes and shrinks again, with a line for each step. Between
//! the steps it waits for states of the program and the APIs, never for a fixed time.

use std::{collections::BTreeMap, io::Write, sync::Arc, time::Instant};

use anyhow::Context as _;
use k8s_pb::api::core::v1::Node;
use prost::Message as _;
use proto::{
    ExternalGrpcNode, Instance, InstanceStatus, NodeGroup, NodeGroupDeleteNodesRequest, NodeGroupForNodeRequest,
    NodeGroupIncreaseSizeRequest, NodeGroupNodesRequest, NodeGroupTargetSizeRequest, NodeGroupTemplateNodeInfoRequest,
    NodeGroupsRequest, cloud_provider_client::CloudProviderClient, instance_status::InstanceState,
};
use sandbox::{
    Sandbox,
    api::{Resource, Selection},
};
use serde_json::Value;
use tonic::transport::Channel;

use super::waiting::until;

/// The client of the program's gRPC server.
pub(crate) type Client = CloudProviderClient<Channel>;

/// The number of Nodes by which the group grows.
const MORE: i32 = 2;

/// Prints a step, with the time since the scenario began.
struct Steps<'a> {
    began: Instant,
    out: &'a mut (dyn Write + Send),
}

impl Steps<'_> {
    fn step(&mut self, call: &str, what: &str) -> anyhow::Result<()> {
        let seconds = self.began.elapsed().as_secs_f64();
        writeln!(self.out, "  {seconds:5.2} s  {call:<25}  {what}")?;
        Ok(self.out.flush()?)
    }
}

/// Grows a node group by two Nodes and shrinks it again.
pub(crate) async fn run(client: &mut Client, sandbox: &Sandbox, out: &mut (dyn Write + Send)) -> anyhow::Result<()> {
    let Some((group, size)) = choose(client).await? else {
        writeln!(out, "No node group can grow by {MORE} Nodes: nothing is scaled.")?;
        return Ok(());
    };
    let id = group.id.as_str();
    writeln!(out, "{id} goes from {size} to {} Nodes and back, by the calls of a Cluster Autoscaler:\n", size + MORE)?;
    let mut steps = Steps { began: Instant::now(), out };
    let before = joined(sandbox);

    steps.step("NodeGroupTemplateNodeInfo", &format!("a Node to come has {}", template(client, id).await?))?;
    client.node_group_increase_size(NodeGroupIncreaseSizeRequest { id: id.to_owned(), delta: MORE }).await?;
    steps
        .step("NodeGroupIncreaseSize", &format!("by {MORE}: the size is {} at once", target_size(client, id).await?))?;
    let total = usize::try_from(size + MORE)?;
    until("the new instances are shown", async || Ok(instances(client, id).await?.filter_len(total))).await?;
    steps.step("NodeGroupNodes", &format!("{total} instances, {MORE} of them creating"))?;
    until("the new Nodes have joined", async || {
        let all = instances(client, id).await?;
        Ok(all.iter().all(|one| state(one) == InstanceState::InstanceRunning).then_some(()))
    })
    .await?;
    let nodes = until("the new Nodes are Ready", async || Ok(new_and_ready(sandbox, &before))).await?;
    let names: Vec<_> = nodes.iter().map(|node| node.name.as_str()).collect();
    steps.step("NodeGroupNodes", &format!("{total} instances, all running; new Nodes: {}", names.join(", ")))?;

    let mut left = size + MORE;
    for node in nodes {
        let name = node.name.clone();
        let owner = client.node_group_for_node(NodeGroupForNodeRequest { node: Some(node.clone()) }).await?;
        let owner = owner.into_inner().node_group.map(|group| group.id).unwrap_or_default();
        steps.step("NodeGroupForNode", &format!("{name} is of {owner}"))?;
        let request = NodeGroupDeleteNodesRequest { id: id.to_owned(), nodes: vec![node] };
        client.node_group_delete_nodes(request).await?;
        left -= 1;
        let size = target_size(client, id).await?;
        steps.step("NodeGroupDeleteNodes", &format!("{name}: the size is {size} at once"))?;
        let expected = usize::try_from(left)?;
        until("the Machine is gone", async || Ok(instances(client, id).await?.filter_len(expected))).await?;
        until("the Node is gone", async || Ok((!joined(sandbox).contains_key(&name)).then_some(()))).await?;
        steps.step("NodeGroupNodes", &format!("{name} is gone, with its Machine; {left} left"))?;
    }
    Ok(())
}

/// Returns the group to scale and its size: preferably one without Nodes, with enough capacity and a template.
async fn choose(client: &mut Client) -> anyhow::Result<Option<(NodeGroup, i32)>> {
    let mut chosen: Option<(NodeGroup, i32)> = None;
    for group in client.node_groups(NodeGroupsRequest {}).await?.into_inner().node_groups {
        let size = target_size(client, &group.id).await?;
        let is_better = chosen.as_ref().is_none_or(|(_, best)| size < *best);
        if size + MORE <= group.max_size && is_better && template(client, &group.id).await.is_ok() {
            chosen = Some((group, size));
        }
        if chosen.as_ref().is_some_and(|(_, size)| *size == 0) {
            break;
        }
    }
    Ok(chosen)
}

async fn target_size(client: &mut Client, id: &str) -> anyhow::Result<i32> {
    let answer = client.node_group_target_size(NodeGroupTargetSizeRequest { id: id.to_owned() }).await?;
    Ok(answer.into_inner().target_size)
}

/// Returns the capacity of a template Node as text.
async fn template(client: &mut Client, id: &str) -> anyhow::Result<String> {
    let request = NodeGroupTemplateNodeInfoRequest { id: id.to_owned() };
    let bytes = client.node_group_template_node_info(request).await?.into_inner().node_bytes;
    let node = Node::decode(&bytes[..]).context("the template is no Node")?;
    let status = node.status.unwrap_or_default();
    let capacity: BTreeMap<_, _> = status.capacity.into_iter().collect();
    let parts = capacity.into_iter().map(|(name, quantity)| format!("{name} {}", quantity.string.unwrap_or_default()));
    Ok(parts.collect::<Vec<_>>().join(", "))
}

/// Returns the instances of a group.
async fn instances(client: &Client, id: &str) -> anyhow::Result<Vec<Instance>> {
    let answer = client.clone().node_group_nodes(NodeGroupNodesRequest { id: id.to_owned() }).await?;
    Ok(answer.into_inner().instances)
}

trait FilterLen: Sized {
    /// Returns itself, if it has this number of elements.
    fn filter_len(self, count: usize) -> Option<Self>;
}

impl<T> FilterLen for Vec<T> {
    fn filter_len(self, count: usize) -> Option<Self> {
        (self.len() == count).then_some(self)
    }
}

fn state(instance: &Instance) -> InstanceState {
    instance.status.as_ref().map_or(InstanceState::Unspecified, InstanceStatus::instance_state)
}

/// Returns the Nodes of the workload cluster by name.
fn joined(sandbox: &Sandbox) -> BTreeMap<String, Arc<Value>> {
    let nodes = sandbox.workload().api().list(&Resource::core("nodes"), &Selection::default()).unwrap_or_default();
    let name = |node: &Arc<Value>| node["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    nodes.into_iter().map(|node| (name(&node), node)).collect()
}

/// Returns the new Nodes as Cluster Autoscaler sends them, once there are enough and all are Ready.
fn new_and_ready(sandbox: &Sandbox, before: &BTreeMap<String, Arc<Value>>) -> Option<Vec<ExternalGrpcNode>> {
    let new: Vec<_> = joined(sandbox).into_iter().filter(|(name, _)| !before.contains_key(name)).collect();
    let is_ready = |node: &Value| {
        let conditions = node["status"]["conditions"].as_array();
        conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"))
    };
    let enough = new.len() == usize::try_from(MORE).ok()? && new.iter().all(|(_, node)| is_ready(node));
    enough.then(|| new.into_iter().map(|(name, node)| external(name, &node)).collect())
}

fn external(name: String, node: &Value) -> ExternalGrpcNode {
    let texts = |field: &str| {
        let texts = node["metadata"][field].as_object().into_iter().flatten();
        texts.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned())).collect()
    };
    ExternalGrpcNode {
        provider_id: node["spec"]["providerID"].as_str().unwrap_or_default().to_owned(),
        name,
        labels: texts("labels"),
        annotations: texts("annotations"),
    }
}
