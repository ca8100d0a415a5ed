//! What pods ask for and Nodes have, as far as these scenarios use it: CPUs, labels and taints.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node as CoreNode, Pod};
use k8s_pb::api::core::v1::Node;

/// What makes a Node unfit for new pods before it goes.
pub(super) const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";

/// What a Node bears until Cluster API has put its labels on it: until then it is no judge of what its group's Nodes are like.
pub(super) const UNINITIALIZED: &str = "node.cluster.x-k8s.io/uninitialized";

/// What a pod asks for, or a Node has left: thousandths of a CPU.
pub(super) type Cpu = i64;

pub(super) fn is_unschedulable(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| {
        condition.type_ == "PodScheduled"
            && condition.status == "False"
            && condition.reason.as_deref() == Some("Unschedulable")
    })
}

pub(super) fn is_ready(node: &CoreNode) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.into_iter().flatten().any(|one| one.type_ == "Ready" && one.status == "True");
    ready && !has_taint(node, "node.kubernetes.io/not-ready") && !has_taint(node, UNINITIALIZED)
}

pub(super) fn is_leaving(node: &CoreNode) -> bool {
    has_taint(node, TO_BE_DELETED)
}

fn has_taint(node: &CoreNode, key: &str) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    taints.into_iter().flatten().any(|taint| taint.key == key)
}

/// What decides whether a Node takes a pod.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) labels: BTreeMap<String, String>,
    taints: Vec<String>,
    pub(super) cpu: Cpu,
}

/// Of a Node to come.
impl From<&Node> for Shape {
    fn from(template: &Node) -> Self {
        let labels = template.metadata.clone().unwrap_or_default().labels.into_iter().collect();
        let taints = template.spec.iter().flat_map(|spec| &spec.taints).filter_map(|taint| taint.key.clone()).collect();
        let cpu = template.status.as_ref().and_then(|status| status.allocatable.get("cpu")?.string.as_deref());
        Self { labels, taints, cpu: cpu.map_or(0, milli) }
    }
}

/// Of a Node that is there.
impl From<&CoreNode> for Shape {
    fn from(node: &CoreNode) -> Self {
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        Self {
            labels: node.metadata.labels.clone().unwrap_or_default(),
            taints: taints.into_iter().flatten().map(|taint| taint.key.clone()).collect(),
            cpu: allocatable.and_then(|resources| resources.get("cpu")).map_or(0, |cpu| milli(&cpu.0)),
        }
    }
}

/// Whether such a Node, if it were empty, would take the pod.
pub(super) fn fits(pod: &Pod, shape: &Shape) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let mut chosen = spec.node_selector.iter().flatten();
    let tolerates =
        |key: &String| spec.tolerations.iter().flatten().any(|toleration| toleration.key.as_ref() == Some(key));
    chosen.all(|(key, value)| shape.labels.get(key) == Some(value))
        && shape.taints.iter().all(tolerates)
        && asks_for(pod) <= shape.cpu
}

/// How many Nodes of this size the pods need, and what is left over on them.
pub(super) fn new_nodes(pods: &[&Pod], size: Cpu) -> (usize, Cpu) {
    let mut rooms: Vec<Cpu> = Vec::new();
    for pod in pods {
        let cpu = asks_for(pod);
        match rooms.iter_mut().find(|room| **room >= cpu) {
            Some(room) => *room -= cpu,
            None => rooms.push(size - cpu),
        }
    }
    (rooms.len(), rooms.iter().sum())
}

/// What the pods on a Node ask for.
pub(super) fn used(node: &CoreNode, pods: &[Pod]) -> Cpu {
    pods.iter().filter(|pod| is_on(pod, node)).map(asks_for).sum()
}

pub(super) fn is_on(pod: &Pod, node: &CoreNode) -> bool {
    let on = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
    on.is_some() && on == node.metadata.name.as_ref()
}

pub(super) fn asks_for(pod: &Pod) -> Cpu {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let cpu = containers.filter_map(|container| container.resources.as_ref()?.requests.as_ref()?.get("cpu"));
    cpu.map(|cpu| milli(&cpu.0)).sum()
}

/// The two ways in which these scenarios write CPUs.
fn milli(text: &str) -> Cpu {
    match text.strip_suffix('m') {
        Some(milli) => milli.parse().unwrap_or_default(),
        None => text.parse::<Cpu>().unwrap_or_default() * 1000,
    }
}
