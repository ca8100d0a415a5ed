//! A node group that a scenario has created, and the keys by which it and its Machines are found.

use kube::api::DynamicObject;

pub(crate) const MAX: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size";

/// The annotation with the time that a group's Nodes must be idle before they are removed.
pub const UNNEEDED: &str = "cluster.x-k8s.io/autoscaling-options-scaledownunneededtime";

/// A label of the scenarios' Nodes, which Cluster API propagates to them.
pub const NODE_POOL: &str = "node.cluster.x-k8s.io/pool";

/// The hook annotation that holds a Machine in deletion before its Node is drained.
pub const HOOK: &str = "pre-drain.delete.hook.machine.cluster.x-k8s.io/e2e";

/// A node group that was created.
#[derive(Clone, Debug)]
pub struct Group {
    /// The expected id.
    pub id: String,
    /// The kind of the group's object.
    pub kind: &'static str,
    /// The name of that object and of its template, and the value of the label `pool` of its Machines.
    pub name: String,
}

/// Returns true if Cluster Autoscaler may change the size of an object, by its max size.
pub(crate) fn is_group(object: &DynamicObject) -> bool {
    object.metadata.annotations.as_ref().and_then(|all| all.get(MAX)).is_some_and(|max| max != "0")
}
