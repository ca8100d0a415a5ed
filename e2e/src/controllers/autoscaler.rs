//! A driver that asks the program what Cluster Autoscaler asks, in its order, and decides as simply as will do: a group grows when it
//! alone has room for a pod that is pending, and a Node without pods is deleted.
//!
//! It is no Cluster Autoscaler: it scores no options, and times nothing.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Node as CoreNode, Pod};
use k8s_pb::api::core::v1::Node;
use kube::api::DynamicObject;
use prost::Message as _;
use serde_json::json;

use super::stage::Stage;
use crate::{
    proto::{ExternalGrpcNode, NodeGroup},
    provider::Provider,
};

/// What makes a Node unfit for new pods before it goes.
const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";

/// One Cluster Autoscaler.
pub struct Autoscaler<'a> {
    stage: &'a Stage,
    provider: &'a Provider,
}

/// What one loop did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// By how many Nodes each group was increased.
    pub increased: BTreeMap<String, i32>,
    /// The Nodes that were deleted.
    pub deleted: Vec<String>,
}

/// What a pod asks for, or a Node has left: thousandths of a CPU.
type Cpu = i64;

impl<'a> Autoscaler<'a> {
    /// For the pods of the scenario's namespace in the workload cluster.
    #[must_use]
    pub fn new(stage: &'a Stage, provider: &'a Provider) -> Self {
        Self { stage, provider }
    }

    /// Looks once, and scales up or else down.
    pub async fn look(&self) -> Result<Done> {
        self.provider.refresh().await?;
        let groups = self.provider.groups().await?;
        let nodes = self.nodes_by_group().await?;
        let pods = self.pods().await?;
        let pending: Vec<&Pod> = pods.iter().filter(|pod| is_unschedulable(pod)).collect();
        if pending.is_empty() {
            return self.scale_down(&groups, &nodes, &pods).await;
        }
        self.scale_up(&groups, &nodes, &pods, &pending).await
    }

    /// The Nodes that belong to a group, by its id.
    async fn nodes_by_group(&self) -> Result<BTreeMap<String, Vec<CoreNode>>> {
        let mut found: BTreeMap<String, Vec<CoreNode>> = BTreeMap::new();
        for node in self.stage.workload.list("Node", "").await? {
            let node: CoreNode = typed(node)?;
            if let Some(group) = self.provider.group_of(&asked(&node)).await? {
                found.entry(group.id).or_default().push(node);
            }
        }
        Ok(found)
    }

    async fn pods(&self) -> Result<Vec<Pod>> {
        self.stage.workload.list("Pod", "").await?.into_iter().map(typed).collect()
    }

    /// Increases groups by what the pending pods need beyond the room of Nodes that are there, which the scheduler has yet to find, and
    /// of those that are still coming.
    async fn scale_up(
        &self,
        groups: &[NodeGroup],
        nodes: &BTreeMap<String, Vec<CoreNode>>,
        pods: &[Pod],
        pending: &[&Pod],
    ) -> Result<Done> {
        let mut done = Done::default();
        for group in groups {
            let size = self.provider.target_size(&group.id).await?;
            let template = self.provider.template(&group.id).await?;
            let template = Node::decode(&*template.node_bytes).context("a template that is no Node")?;
            let fitting: Vec<&Pod> = pending.iter().copied().filter(|pod| fits(pod, &template)).collect();
            let there = nodes.get(&group.id).map(Vec::as_slice).unwrap_or_default();
            let mut rooms: Vec<Cpu> = there.iter().map(|node| has(&template) - used(node, pods)).collect();
            rooms.resize(usize::try_from(size)?, has(&template));
            let room = usize::try_from(group.max_size - size)?;
            let missing = i32::try_from(new_nodes(&fitting, rooms, has(&template)).min(room))?;
            if missing > 0 {
                self.provider.increase(&group.id, missing).await?;
                let after = self.provider.target_size(&group.id).await?;
                ensure!(after == size + missing, "{}: size {after} right after {size} + {missing}", group.id);
                done.increased.insert(group.id.clone(), missing);
            }
        }
        Ok(done)
    }

    /// Deletes idle Nodes one by one, as far as the minimum allows.
    async fn scale_down(
        &self,
        groups: &[NodeGroup],
        nodes: &BTreeMap<String, Vec<CoreNode>>,
        pods: &[Pod],
    ) -> Result<Done> {
        let mut done = Done::default();
        for group in groups {
            let mut spare = self.provider.target_size(&group.id).await? - group.min_size;
            for node in nodes.get(&group.id).into_iter().flatten() {
                let name = node.metadata.name.clone().unwrap_or_default();
                let busy = pods.iter().any(|pod| is_on(pod, node));
                if busy || spare <= 0 || !is_ready(node) || is_leaving(node) {
                    continue;
                }
                self.taint(&name).await?;
                self.provider.delete_at_last(&group.id, &[asked(node)]).await?;
                spare -= 1;
                done.deleted.push(name);
            }
        }
        Ok(done)
    }

    async fn taint(&self, node: &str) -> Result<()> {
        let object = self.stage.workload.get("Node", node).await?;
        let mut taints = object.data["spec"]["taints"].as_array().cloned().unwrap_or_default();
        taints.push(json!({ "key": TO_BE_DELETED, "effect": "NoSchedule" }));
        self.stage.workload.patch("Node", node, json!({ "spec": { "taints": taints } })).await
    }
}

fn typed<T: serde::de::DeserializeOwned>(object: DynamicObject) -> Result<T> {
    Ok(serde_json::from_value(serde_json::to_value(object)?)?)
}

/// A Node as Cluster Autoscaler sends it.
fn asked(node: &CoreNode) -> ExternalGrpcNode {
    let metadata = node.metadata.clone();
    ExternalGrpcNode {
        provider_id: node.spec.as_ref().and_then(|spec| spec.provider_id.clone()).unwrap_or_default(),
        name: metadata.name.unwrap_or_default(),
        labels: metadata.labels.unwrap_or_default().into_iter().collect(),
        annotations: metadata.annotations.unwrap_or_default().into_iter().collect(),
    }
}

fn is_unschedulable(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| {
        condition.type_ == "PodScheduled"
            && condition.status == "False"
            && condition.reason.as_deref() == Some("Unschedulable")
    })
}

fn is_ready(node: &CoreNode) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.into_iter().flatten().any(|one| one.type_ == "Ready" && one.status == "True");
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    ready && taints.into_iter().flatten().all(|taint| taint.key != "node.kubernetes.io/not-ready")
}

fn is_leaving(node: &CoreNode) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    taints.into_iter().flatten().any(|taint| taint.key == TO_BE_DELETED)
}

/// Whether a new Node would take the pod: its labels, its taints, its room.
fn fits(pod: &Pod, template: &Node) -> bool {
    let labels = template.metadata.as_ref().map(|metadata| &metadata.labels);
    let Some(spec) = &pod.spec else { return false };
    let chosen = spec.node_selector.iter().flatten();
    let chosen = chosen.into_iter().all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value));
    let taints = template.spec.iter().flat_map(|spec| &spec.taints);
    let tolerated = taints.into_iter().all(|taint| {
        spec.tolerations.iter().flatten().any(|toleration| toleration.key.as_deref() == taint.key.as_deref())
    });
    chosen && tolerated && asks_for(pod) <= has(template)
}

/// How many Nodes of this size the pods need besides the rooms that there are.
fn new_nodes(pods: &[&Pod], mut rooms: Vec<Cpu>, size: Cpu) -> usize {
    let there = rooms.len();
    for pod in pods {
        let cpu = asks_for(pod);
        match rooms.iter_mut().find(|room| **room >= cpu) {
            Some(room) => *room -= cpu,
            None => rooms.push(size - cpu),
        }
    }
    rooms.len() - there
}

/// What the pods on a Node ask for.
fn used(node: &CoreNode, pods: &[Pod]) -> Cpu {
    pods.iter().filter(|pod| is_on(pod, node)).map(asks_for).sum()
}

fn is_on(pod: &Pod, node: &CoreNode) -> bool {
    let on = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
    on.is_some() && on == node.metadata.name.as_ref()
}

fn asks_for(pod: &Pod) -> Cpu {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let cpu = containers.filter_map(|container| container.resources.as_ref()?.requests.as_ref()?.get("cpu"));
    cpu.map(|cpu| milli(&cpu.0)).sum()
}

fn has(template: &Node) -> Cpu {
    let cpu = template.status.as_ref().and_then(|status| status.allocatable.get("cpu")?.string.as_deref());
    cpu.map_or(0, milli)
}

/// The two ways in which these scenarios write CPUs.
fn milli(text: &str) -> Cpu {
    match text.strip_suffix('m') {
        Some(milli) => milli.parse().unwrap_or_default(),
        None => text.parse::<Cpu>().unwrap_or_default() * 1000,
    }
}
