//! The free capacity of existing and upcoming Nodes, on which Pods are placed.

use k8s_openapi::api::core::v1::{Node as CoreNode, Pod};

use super::pods::{Cpu, Shape, asks_for, fits, is_ready, used};

/// A Node with its free CPU. An upcoming one has no name.
#[derive(Clone, Debug)]
struct NodeInfo {
    node: Option<String>,
    shape: Shape,
    left: Cpu,
}

/// The free capacity of all Nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClusterSnapshot(Vec<NodeInfo>);

impl ClusterSnapshot {
    /// Adds a Node with the Pods on it. A Node that isn't Ready is left out, since Kubernetes taints it.
    pub(crate) fn add(&mut self, node: &CoreNode, pods: &[Pod]) {
        if !is_ready(node) {
            return;
        }
        let shape = Shape::from(node);
        let left = shape.cpu - used(node, pods);
        self.0.push(NodeInfo { node: node.metadata.name.clone(), shape, left });
    }

    /// Adds upcoming Nodes.
    pub(crate) fn add_coming(&mut self, shape: &Shape, count: usize) {
        let node_info = NodeInfo { node: None, left: shape.cpu, shape: shape.clone() };
        self.0.extend(vec![node_info; count]);
    }

    /// Places a Pod. Returns true if it fits.
    pub(crate) fn place(&mut self, pod: &Pod) -> bool {
        let cpu = asks_for(pod);
        match self.0.iter_mut().find(|node_info| fits(pod, &node_info.shape) && cpu <= node_info.left) {
            Some(node_info) => {
                node_info.left -= cpu;
                true
            }
            None => false,
        }
    }

    /// Places all Pods of a Node on other Nodes and removes the Node. Returns true if all fit; otherwise changes
    /// nothing.
    pub(crate) fn vacate(&mut self, node: &str, pods: &[&Pod]) -> bool {
        let mut snapshot = self.clone();
        snapshot.0.retain(|node_info| node_info.node.as_deref() != Some(node));
        let placed = pods.iter().all(|pod| snapshot.place(pod));
        if placed {
            *self = snapshot;
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
        let mut snapshot = ClusterSnapshot::default();
        snapshot.add(&left_over, &[]);
        assert!(!snapshot.place(&pod("", "1")), "it would wait for ever, and no scale-up would be made for it");
    }

    #[test]
    fn nodes_are_vacated_as_long_as_their_pods_fit_on_others() {
        let pods = [pod("a", "1"), pod("b", "1"), pod("c", "3500m")];
        let mut snapshot = ClusterSnapshot::default();
        for name in ["a", "b", "c"] {
            snapshot.add(&node(name, "4"), &pods);
        }
        assert!(!snapshot.vacate("c", &[&pods[2]]), "it doesn't fit beside another");
        assert!(snapshot.vacate("a", &[&pods[0]]), "it fits on b");
        assert!(!snapshot.vacate("b", &[&pods[0], &pods[1]]), "a takes no more");
        assert!(snapshot.place(&pod("", "2")));
        assert!(!snapshot.place(&pod("", "1")));
    }
}
