//! Fuzzes annotations of a node group and the content of its infrastructure template, from objects to answers.

use std::{str, sync::Arc};

use index::{Change, Index};
use k8s_pb::api::core::v1::Node;
use prost::Message as _;
use rules::capi::{
    Context, InfrastructureTemplate, KindRef, Meta, ObjectKey, PAUSED, PRICE_PER_HOUR, ScalableKind, ScalableResource,
};
use rules::{GroupId, Quantity, Rules, Scope};
use serde_json::{Map, Value, json};

const CAPACITY: &str = "capacity.cluster-autoscaler.kubernetes.io/";
const OPTIONS: &str = "cluster.x-k8s.io/autoscaling-options-";
const GROUP: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-";

/// The short names of annotations in the input, each with the prefix and the rest of the annotation's key.
const NAMES: [(&str, &str, &str); 21] = [
    ("min", GROUP, "min-size"),
    ("max", GROUP, "max-size"),
    ("cpu", CAPACITY, "cpu"),
    ("memory", CAPACITY, "memory"),
    ("disk", CAPACITY, "ephemeral-disk"),
    ("pods", CAPACITY, "maxPods"),
    ("gpu-type", CAPACITY, "gpu-type"),
    ("gpu-count", CAPACITY, "gpu-count"),
    ("labels", CAPACITY, "labels"),
    ("taints", CAPACITY, "taints"),
    ("dra", CAPACITY, "dra-driver"),
    ("csi", CAPACITY, "csi-driver"),
    ("utilization", OPTIONS, "scaledownutilizationthreshold"),
    ("gpu-utilization", OPTIONS, "scaledowngpuutilizationthreshold"),
    ("unneeded", OPTIONS, "scaledownunneededtime"),
    ("unready", OPTIONS, "scaledownunreadytime"),
    ("provision", OPTIONS, "maxnodeprovisiontime"),
    ("zero-or-max", OPTIONS, "zeroormaxnodescaling"),
    ("daemon-sets", OPTIONS, "ignoredaemonsetsutilization"),
    ("price", "", PRICE_PER_HOUR),
    ("paused", "", PAUSED),
];

/// The max number of reported problems of one object, with the line that counts the others.
const MOST_PROBLEMS: usize = 21;

/// Reads lines `name=value`. A name of [`NAMES`] is an annotation, `status.` and a resource an entry of
/// `status.capacity`, and any other name a literal key.
pub fn annotations(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let (mut annotations, mut capacity) = (Map::new(), Map::new());
    annotations.insert(format!("{GROUP}max-size"), json!("10"));
    for (name, value) in text.lines().filter_map(|line| line.split_once('=')) {
        if let Some(resource) = name.strip_prefix("status.") {
            let value = value.parse::<i64>().map_or_else(|_| json!(value), |number| json!(number));
            capacity.insert(resource.to_owned(), value);
        } else {
            let known = NAMES.iter().find(|(known, ..)| *known == name);
            let key = known.map_or_else(|| name.to_owned(), |(_, prefix, rest)| format!("{prefix}{rest}"));
            annotations.insert(key, json!(value));
        }
    }
    let index = index();
    index.apply_and_take_notices(template(&json!({"status": {"capacity": capacity}})));
    index.apply_and_take_notices(group(&annotations));
    index.refresh();
    check(&index);
}

/// Returns an index with no scope and no prices.
pub(crate) fn index() -> Index {
    Index::new(Rules::new(Scope::All))
}

fn meta(name: &str) -> Meta {
    Meta { key: ObjectKey::new("team-a", name), uid: "uid".into(), resource_version: "1".into() }
}

fn template(value: &Value) -> Change {
    let kind = KindRef { group: "infrastructure.cluster.x-k8s.io".into(), kind: "CloudMachineTemplate".into() };
    match InfrastructureTemplate::decode(meta("workers"), value) {
        Ok(template) => Change::Template(kind, Arc::new(template)),
        Err(error) => Change::TemplateUndecodable(kind, meta("workers").key, error.into()),
    }
}

/// Returns the MachineDeployment `team-a/workers` with these annotations.
pub(crate) fn group(annotations: &Map<String, Value>) -> Change {
    let infrastructure =
        json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "CloudMachineTemplate", "name": "workers"});
    let value = json!({
        "metadata": {"annotations": annotations},
        "spec": {"clusterName": "prod", "replicas": 3, "template": {"spec": {"infrastructureRef": infrastructure}}},
    });
    let context = Context::new("cluster.x-k8s.io");
    let kind = ScalableKind::MachineDeployment;
    let object = ScalableResource::decode(kind, meta("workers"), &value, &context);
    Change::Scalable(Arc::new(object.expect("annotations are texts")))
}

/// Asserts that the answers about the group are valid for Cluster Autoscaler.
fn check(index: &Index) {
    for group in index.groups().iter() {
        assert!(group.bounds.min >= 0 && group.bounds.max > 0 && group.bounds.min <= group.bounds.max);
    }
    let Some(served) = index.served(&GroupId::parse("MachineDeployment/team-a/workers").unwrap()) else { return };
    assert!(served.definition.problems.len() <= MOST_PROBLEMS);
    if let Some(price) = &served.definition.price {
        assert!((0.0..=1e9).contains(&price.price.value.per_hour()));
    }
    if let Some(encoded) = &served.template {
        let node = Node::decode(encoded.clone()).expect("a template is an encoded Node");
        check_node(&node);
    }
}

fn check_node(node: &Node) {
    let status = node.status.as_ref().unwrap();
    for amounts in [&status.capacity, &status.allocatable] {
        for known in ["cpu", "memory", "pods"] {
            assert!(amounts.contains_key(known), "{known} is missing");
        }
        for (resource, text) in amounts {
            let amount: Quantity = text.string.as_deref().unwrap().parse().unwrap();
            assert!(!amount.is_negative(), "{resource}: {amount}");
        }
    }
    let labels = &node.metadata.as_ref().unwrap().labels;
    assert!(labels.values().all(|value| value.len() <= 63));
    let taints = &node.spec.as_ref().unwrap().taints;
    for (place, taint) in taints.iter().enumerate() {
        let same = |other: &&k8s_pb::api::core::v1::Taint| other.key == taint.key && other.effect == taint.effect;
        assert!(taints[..place].iter().find(same).is_none(), "{taint:?} stands there twice");
    }
}
