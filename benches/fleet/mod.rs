//! The fleet that benches read: groups of one MachineDeployment with one MachineSet and its Machines, all running, with
//! their Nodes.

use std::sync::Arc;

use capi_autoscaler_provider::{
    capi::{Context, Machine, Meta, Node, ObjectKey, ScalableKind, ScalableResource},
    index::{Change, Index},
    nodegroup::{Architecture, Rules, Scope, TemplateRules},
};
use serde_json::{Value, json};

pub(crate) const MACHINES_PER_GROUP: usize = 25;

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

/// An index of so many groups `MachineDeployment/fleet/pool-<n>`, pinned.
pub(crate) fn fleet(groups: usize) -> Index {
    let context = Context::new("cluster.x-k8s.io");
    let index = Index::new(Rules {
        keys: context.keys.clone(),
        scope: Scope::All,
        template: TemplateRules { default_arch: Architecture::Amd64, additional_sync_labels: Vec::new() },
    });
    for group in 0..groups {
        let (deployment, set) = (format!("pool-{group}"), format!("pool-{group}-abcde"));
        let annotations = json!({
            "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": "0",
            "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": "100",
            "capacity.cluster-autoscaler.kubernetes.io/cpu": "8",
            "capacity.cluster-autoscaler.kubernetes.io/memory": "32Gi",
        });
        let value = json!({"metadata": {"annotations": annotations}, "spec": {"replicas": MACHINES_PER_GROUP}});
        index.apply(scalable(&context, ScalableKind::MachineDeployment, &deployment, &value));
        let value = json!({"metadata": {"ownerReferences": owned_by("MachineDeployment", &deployment)}});
        index.apply(scalable(&context, ScalableKind::MachineSet, &set, &value));
        for number in 0..MACHINES_PER_GROUP {
            let name = format!("{set}-{number}");
            let provider_id = format!("cloud:///zone-a/{name}");
            let value = json!({
                "metadata": {"ownerReferences": owned_by("MachineSet", &set)},
                "spec": {"providerID": provider_id},
                "status": {"phase": "Running", "nodeRef": {"name": name}},
            });
            let machine = Machine::decode(meta("fleet", &name), &value, &context).expect("the Machine decodes");
            index.apply(Change::Machine(Arc::new(machine)));
            let value = json!({"spec": {"providerID": provider_id}});
            let node = Node::decode(meta("", &name), &value, &context).expect("the Node decodes");
            index.apply(Change::Node(Arc::new(node)));
        }
    }
    index.refresh();
    index
}
