//! The fleet of the benches: groups of one MachineDeployment with one MachineSet and its Machines, all running, with
//! their Nodes.

use std::sync::Arc;

use index::{Change, Index};
use rules::capi::{Context, Machine, Meta, Node, ObjectKey, ScalableKind, ScalableResource};
use rules::{Rules, Scope};
use serde_json::{Value, json};

fn meta(namespace: &str, name: &str) -> Meta {
    Meta { key: ObjectKey::new(namespace, name), uid: format!("uid-{name}").into(), resource_version: "1".into() }
}

fn scalable(context: &Context, kind: ScalableKind, name: &str, value: &Value) -> Change {
    let object = ScalableResource::decode(kind, meta("fleet", name), value, context);
    Change::Scalable(Arc::new(object.expect("the object decodes")))
}

fn owned_by(kind: &str, name: &str) -> Value {
    json!([{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": kind, "name": name, "controller": true}])
}

/// Returns the rules of the fleet: every object is in scope.
pub(crate) fn rules() -> Rules {
    Rules::new(Scope::All)
}

/// Adds a group `MachineDeployment/fleet/<name>` of this size without Machines to an index.
pub(crate) fn add_deployment(index: &Index, context: &Context, name: &str, replicas: usize) {
    let annotations = json!({
        "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": "0",
        "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": "100",
        "capacity.cluster-autoscaler.kubernetes.io/cpu": "8",
        "capacity.cluster-autoscaler.kubernetes.io/memory": "32Gi",
    });
    let value = json!({"metadata": {"annotations": annotations}, "spec": {"replicas": replicas}});
    index.apply(scalable(context, ScalableKind::MachineDeployment, name, &value));
}

/// Returns a Machine of a group, whose Node has its name.
pub(crate) fn machine(context: &Context, group: usize, number: usize, phase: &Value) -> Change {
    let (set, name) = (format!("pool-{group}-abcde"), format!("pool-{group}-abcde-{number}"));
    let value = json!({
        "metadata": {"ownerReferences": owned_by("MachineSet", &set)},
        "spec": {"providerID": format!("cloud:///zone-a/{name}")},
        "status": {"phase": phase, "nodeRef": {"name": name}},
    });
    let machine = Machine::decode(meta("fleet", &name), &value, context);
    Change::Machine(Arc::new(machine.expect("the Machine decodes")))
}

/// Returns the Node of a Machine of a group.
pub(crate) fn node(context: &Context, group: usize, number: usize, status: &Value) -> Change {
    let name = format!("pool-{group}-abcde-{number}");
    let value = json!({"spec": {"providerID": format!("cloud:///zone-a/{name}")}, "status": status});
    Change::Node(Arc::new(Node::decode(meta("", &name), &value, context).expect("the Node decodes")))
}

/// Adds groups `MachineDeployment/fleet/pool-<n>` with this number of Machines each to an index, and pins them.
pub(crate) fn fill(index: &Index, groups: usize, machines_per_group: usize) {
    let context = Context::new("cluster.x-k8s.io");
    for group in 0..groups {
        let (deployment, set) = (format!("pool-{group}"), format!("pool-{group}-abcde"));
        add_deployment(index, &context, &deployment, machines_per_group);
        let value = json!({"metadata": {"ownerReferences": owned_by("MachineDeployment", &deployment)}});
        index.apply(scalable(&context, ScalableKind::MachineSet, &set, &value));
        for number in 0..machines_per_group {
            index.apply(machine(&context, group, number, &json!("Running")));
            index.apply(node(&context, group, number, &json!({})));
        }
    }
    index.refresh();
}
