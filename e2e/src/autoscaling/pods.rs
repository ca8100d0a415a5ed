//! What pods ask for and Nodes have, as far as these scenarios use it: CPUs, labels and taints.

use k8s_openapi::api::core::v1::{Node as CoreNode, Pod};
use k8s_pb::api::core::v1::Node;

/// What makes a Node unfit for new pods before it goes.
pub(super) const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";

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
    ready && !has_taint(node, "node.kubernetes.io/not-ready")
}

pub(super) fn is_leaving(node: &CoreNode) -> bool {
    has_taint(node, TO_BE_DELETED)
}

fn has_taint(node: &CoreNode, key: &str) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    taints.into_iter().flatten().any(|taint| taint.key == key)
}

/// Whether a new Node would take the pod: its labels, its taints, its room.
pub(super) fn fits(pod: &Pod, template: &Node) -> bool {
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

/// How many Nodes of this size the pods need besides the rooms that there are, and what is left over on them.
pub(super) fn new_nodes(pods: &[&Pod], mut rooms: Vec<Cpu>, size: Cpu) -> (usize, Cpu) {
    let there = rooms.len();
    for pod in pods {
        let cpu = asks_for(pod);
        match rooms.iter_mut().find(|room| **room >= cpu) {
            Some(room) => *room -= cpu,
            None => rooms.push(size - cpu),
        }
    }
    (rooms.len() - there, rooms[there..].iter().sum())
}

/// What the pods on a Node ask for.
pub(super) fn used(node: &CoreNode, pods: &[Pod]) -> Cpu {
    pods.iter().filter(|pod| is_on(pod, node)).map(asks_for).sum()
}

pub(super) fn is_on(pod: &Pod, node: &CoreNode) -> bool {
    let on = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
    on.is_some() && on == node.metadata.name.as_ref()
}

fn asks_for(pod: &Pod) -> Cpu {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let cpu = containers.filter_map(|container| container.resources.as_ref()?.requests.as_ref()?.get("cpu"));
    cpu.map(|cpu| milli(&cpu.0)).sum()
}

pub(super) fn has(template: &Node) -> Cpu {
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
