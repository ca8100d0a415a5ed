//! The costs of events, lists, scrapes and answers, counted instead of timed: allocations and bytes. The allocator is
//! the whole binary's, and counts the allocations of the test's own thread. They read objects of Cluster API into the
//! index, which the crate of the informer doesn't know.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../benches/fleet/mod.rs"]
mod fleet;
mod memory;
#[path = "../../benches/fleet/pages.rs"]
mod pages;
mod reads;
mod watches;

use std::{path::Path, sync::Arc};

use allocation_counter::measure;
use index::{Change, Index};
use rules::capi::{Context, DEFAULT_GROUP, ScalableKind, ScalableResource};
use rules::{GroupId, Rules, Scope};
use serde_json::{Value, json};

/// Returns the first object of a kind in a fixture that isn't part of a control plane.
fn object(file: &str, kind: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/steady").join(file);
    let list: Value = serde_yaml::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let is_it = |object: &&Value| object["kind"] == kind && !object.to_string().contains("control-plane\":\"\"");
    list["items"].as_array().unwrap().iter().find(is_it).unwrap_or_else(|| panic!("no {kind}")).clone()
}

/// However many Machines its group has and the others have.
#[test]
fn a_change_of_a_machine_or_its_node_takes_few_allocations_in_the_index() {
    let context = Context::new(DEFAULT_GROUP);
    let costs = |machines_per_group: usize| {
        let index = Index::new(fleet::rules());
        fleet::fill(&index, 20, machines_per_group);
        let ready = |status: &str| json!({"conditions": [{"type": "Ready", "status": status}]});
        let changes = [
            fleet::machine(&context, 7, 1, &json!("Running")),
            fleet::machine(&context, 7, 1, &json!("Deleting")),
            fleet::machine(&context, 7, 1, &json!("Running")),
            fleet::node(&context, 7, 1, &ready("True")),
            fleet::node(&context, 7, 1, &ready("False")),
            fleet::node(&context, 7, 1, &ready("True")),
        ];
        changes.map(|change| measure(|| index.apply(change)).count_total)
    };
    let (few, many) = (costs(2), costs(200));
    assert_eq!(few, many, "allocations with 2 and 200 Machines in each group");
    assert!(few.iter().all(|allocations| *allocations <= 2), "{few:?}");
}

/// Returns the bytes that stay allocated for groups with these annotations.
fn bytes_of_groups(count: usize, annotations: &dyn Fn(usize) -> Value) -> u64 {
    let (shared, index) = (Context::new(DEFAULT_GROUP), Index::new(Rules::new(Scope::All)));
    let projection = ScalableResource::projection(ScalableKind::MachineDeployment, &shared);
    let mut held = Vec::with_capacity(count);
    let measured = measure(|| {
        for number in 0..count {
            let object = json!({
                "metadata": {"namespace": "team-a", "name": format!("group-{number}"), "uid": "u", "resourceVersion": "1",
                    "annotations": annotations(number)},
                "spec": {"clusterName": "stage", "replicas": 3},
            });
            let object = projection.read(&object.to_string(), &shared.interner).unwrap();
            match &object.content {
                Ok(content) => index.apply(Change::Scalable(Arc::clone(content))),
                Err(error) => {
                    let id = GroupId::of(ScalableKind::MachineDeployment, &object.metadata);
                    index.apply(Change::ScalableUndecodable(id, error.message().clone()));
                }
            }
            held.push(object);
        }
    });
    u64::try_from(measured.bytes_current).unwrap()
}

/// A tenant may write 256 KiB of annotations into each of its objects.
#[test]
fn objects_as_large_as_an_api_server_takes_them_are_kept_in_little_memory() {
    const PREFIX: &str = "capacity.cluster-autoscaler.kubernetes.io";
    const OWN: &str = "capacity.capi-autoscaler-provider.io";
    const COUNT: usize = 100;
    /// With this limit a thousand of them take less than two thirds of the chart's limit of 256 MiB.
    const MOST: u64 = 160 << 10;
    let bounds = || {
        json!({"cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": "1",
            "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": "10",
            format!("{PREFIX}/cpu"): "4", format!("{PREFIX}/memory"): "16Gi"})
    };
    let with = |more: Vec<(String, String)>| {
        let mut annotations = bounds();
        for (key, value) in more {
            annotations[key] = value.into();
        }
        annotations
    };
    let list = |entry: &dyn Fn(usize) -> String| {
        let mut text = entry(0);
        for next in (1..).map(entry) {
            if text.len() + next.len() >= 14_000 {
                break;
            }
            text = text + "," + &next;
        }
        text
    };
    let sparse = |number: usize, count: usize| {
        let keys = (0..count).map(|key| (format!("{PREFIX}/key-{key}"), format!("{number}-{}", "v".repeat(14_000))));
        with(keys.collect())
    };
    let (few, many) = (|number| sparse(number, 2), |number| sparse(number, 16));
    let packed = |number: usize| {
        with(vec![
            (format!("{PREFIX}/labels"), list(&|n| format!("l{n}=v{number}"))),
            (format!("{OWN}/resources"), list(&|n| format!("r{n}={number}"))),
        ])
    };
    let long = |number: usize| {
        let name = "d".repeat(60);
        with(vec![
            (format!("{PREFIX}/labels"), list(&|n| format!("{name}.example/l{n}=v{number}"))),
            (format!("{PREFIX}/taints"), list(&|n| format!("{name}.example/t{n}=v{number}:NoSchedule"))),
        ])
    };
    let tiny = |number: usize| {
        let keys = (0..4_000).map(|key| (format!("{PREFIX}/{key}"), format!("{number}")));
        with(keys.collect())
    };
    let attacks: [(&str, &dyn Fn(usize) -> Value); 5] =
        [("few", &few), ("many", &many), ("packed", &packed), ("long", &long), ("tiny", &tiny)];
    for (name, attack) in attacks {
        let each = bytes_of_groups(COUNT, attack) / COUNT as u64;
        println!("{name}: {each} bytes for each object");
        assert!(each <= MOST, "{name}: {each} bytes are held for each object");
    }
}
