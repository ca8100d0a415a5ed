//! The free capacity of existing and upcoming Nodes, on which Pods are placed.

use k8s_openapi::api::core::v1::{Node as CoreNode, Pod};

use super::pods::{Cpu, Shape, asks_for, fits, is_ready, used};

/// A Node with its free CPU. An upcoming one has no name.
#[derive(Clone, Debug)]
struct Room {
    node: Option<String>,
    shape: Shape,
    left: Cpu,
}

/// The free capacity of all Nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rooms(Vec<Room>);

impl Rooms {
    /// Adds a Node with the Pods on it. One that isn't Ready is left out: Kubernetes taints it.
    pub(crate) fn add(&mut self, node: &CoreNode, pods: &[Pod]) {
        if !is_ready(node) {
            return;
        }
        let shape = Shape::from(node);
        let left = shape.cpu - used(node, pods);
        self.0.push(Room { node: node.metadata.name.clone(), shape, left });
    }

    /// Adds upcoming Nodes.
    pub(crate) fn add_coming(&mut self, shape: &Shape, count: usize) {
        let room = Room { node: None, left: shape.cpu, shape: shape.clone() };
        self.0.extend(vec![room; count]);
    }

    /// Places a Pod. Returns true if it fits.
    pub(crate) fn place(&mut self, pod: &Pod) -> bool {
        let cpu = asks_for(pod);
        match self.0.iter_mut().find(|room| fits(pod, &room.shape) && cpu <= room.left) {
            Some(room) => {
                room.left -= cpu;
                true
            }
            None => false,
        }
    }

    /// Places all Pods of a Node on other Nodes and removes the Node. Returns true if all fit; otherwise changes
    /// nothing.
    pub(crate) fn vacate(&mut self, node: &str, pods: &[&Pod]) -> bool {
        let mut rooms = self.clone();
        rooms.0.retain(|room| room.node.as_deref() != Some(node));
        let placed = pods.iter().all(|pod| rooms.place(pod));
        if placed {
            *self = rooms;
        }
        placed
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(name: &str, cpu: &str) -> CoreNode {
        let ready = json!([{ "type": "Ready", "status": "True" }]);
        let status = json!({ "allocatable": { "cpu": cpu }, "conditions": ready });
        serde_json::from_value(json!({ "metadata": { "name": name }, "status": status })).unwrap_or_default()
    }

    fn pod(node: &str, cpu: &str) -> Pod {
        let container = json!({ "name": "a", "resources": { "requests": { "cpu": cpu } } });
        let pod = json!({ "spec": { "nodeName": node, "containers": [container] } });
        serde_json::from_value(pod).unwrap_or_default()
    }

    #[test]
    fn a_node_that_is_not_ready_takes_no_pod() {
        let mut left_over = node("left-over", "4");
        left_over.status.as_mut().unwrap().conditions = None;
        let mut rooms = Rooms::default();
        rooms.add(&left_over, &[]);
        assert!(!rooms.place(&pod("", "1")), "it would wait for ever, and nobody would make room for it");
    }

    #[test]
    fn nodes_are_vacated_as_long_as_their_pods_find_room_on_others() {
        let pods = [pod("a", "1"), pod("b", "1"), pod("c", "3500m")];
        let mut rooms = Rooms::default();
        for name in ["a", "b", "c"] {
            rooms.add(&node(name, "4"), &pods);
        }
        assert!(!rooms.vacate("c", &[&pods[2]]), "it doesn't fit beside another");
        assert!(rooms.vacate("a", &[&pods[0]]), "it fits on b");
        assert!(!rooms.vacate("b", &[&pods[0], &pods[1]]), "a takes no more");
        assert!(rooms.place(&pod("", "2")));
        assert!(!rooms.place(&pod("", "1")));
    }
}
