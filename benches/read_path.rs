//! The read path on the index alone: Node to group, instances, groups, and the small reads, in two fleets. Each answer's
//! cost has to grow with the answer and not with the fleet, so every read is timed in a fleet five times as large too:
//! 200 groups with 5,000 Machines, and 1,000 groups with 25,000.

// A bench may panic: it is a test of its own input.
#![allow(clippy::expect_used)]

use std::{collections::HashMap, hint::black_box, sync::Arc};

use capi_autoscaler_provider::{
    capi::{Context, Machine, Meta, Node, ObjectKey, ScalableKind, ScalableResource},
    index::{Change, Index, NodeQuery},
    nodegroup::{Architecture, GroupId, Rules, Scope, TemplateRules},
};
use criterion::{Criterion, criterion_group, criterion_main};
use serde_json::{Value, json};

const MACHINES_PER_GROUP: usize = 25;
const FLEETS: [usize; 2] = [200, 1_000];

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

fn fleet(groups: usize) -> Index {
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

fn reads(criterion: &mut Criterion) {
    for groups in FLEETS {
        let index = fleet(groups);
        let machines = groups * MACHINES_PER_GROUP;
        let fleet = format!("{groups} groups, {machines} machines");
        let id = GroupId::parse("MachineDeployment/fleet/pool-77").expect("an id");
        let annotations = HashMap::new();
        let name = "pool-77-abcde-7";
        let provider_id = format!("cloud:///zone-a/{name}");
        let query = NodeQuery { name, provider_id: &provider_id, annotations: &annotations };
        assert_eq!(index.group_of_node(query).expect("the Node has a group").id, id);
        assert_eq!(index.instances(&id).expect("the group answers").len(), MACHINES_PER_GROUP);
        assert_eq!(index.groups().len(), groups);

        let mut bench = |read: &str, run: &dyn Fn()| {
            criterion.bench_function(&format!("{read} ({fleet})"), |bencher| bencher.iter(run));
        };
        bench("group of a node", &|| {
            black_box(index.group_of_node(black_box(query)));
        });
        bench("25 instances of a group", &|| {
            black_box(index.instances(black_box(&id)));
        });
        bench("target size", &|| {
            black_box(index.target_size(black_box(&id)));
        });
        bench("template and options", &|| {
            black_box(index.served(black_box(&id)));
        });
        // This answer grows with the number of groups: the list itself is shared, its copy to the wire is not.
        bench("all groups", &|| {
            black_box(index.groups().iter().map(|group| group.text.len()).sum::<usize>());
        });
        bench("refresh without a change", &|| index.refresh());
    }
}

criterion_group!(benches, reads);
criterion_main!(benches);
