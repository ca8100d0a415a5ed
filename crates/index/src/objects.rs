//! Builders of objects, and of changes with them, for tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::missing_panics_doc)]

use std::{collections::HashMap, sync::Arc};

use rules::capi::{
    Cluster, Context, InfrastructureTemplate, KindRef, Machine, Meta, Node, ObjectKey, ScalableKind, ScalableResource,
};
use rules::{CapacityWords, ErrorRules, GroupId, Rules, Scope, TemplateRules, group_version::GroupVersion};
use serde_json::{Value, json};

use crate::{Change, Index, NodeQuery};

pub const NAMESPACE: &str = "team-a";

pub fn rules() -> Rules {
    Rules {
        keys: context().keys.clone(),
        scope: Scope::All,
        template: TemplateRules::default(),
        prices: Arc::default(),
        errors: ErrorRules::default(),
        capacity_words: CapacityWords::default(),
    }
}

pub fn index(changes: impl IntoIterator<Item = Change>) -> Index {
    let index = Index::new(rules());
    apply(&index, changes);
    index.refresh();
    index
}

pub fn apply(index: &Index, changes: impl IntoIterator<Item = Change>) {
    for change in changes {
        index.apply_and_take_notices(change);
    }
}

fn context() -> Arc<Context> {
    Context::new("cluster.x-k8s.io")
}

fn meta(namespace: &str, name: &str) -> Meta {
    Meta { key: ObjectKey::new(namespace, name), uid: format!("uid-of-{name}").into(), resource_version: "1".into() }
}

pub fn id(text: &str) -> GroupId {
    GroupId::parse(text).unwrap()
}

/// Returns a MachineDeployment of cluster `stage` with the bounds `min..=max`; `more` is merged into it.
pub fn deployment(name: &str, replicas: i32, (min, max): (&str, &str), more: &Value) -> Change {
    scalable(ScalableKind::MachineDeployment, name, replicas, (min, max), more)
}

pub fn scalable(kind: ScalableKind, name: &str, replicas: i32, (min, max): (&str, &str), more: &Value) -> Change {
    let mut value = json!({
        "metadata": {"annotations": {
            "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": min,
            "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": max,
        }},
        "spec": {"clusterName": "stage", "replicas": replicas},
    });
    merge(&mut value, more);
    Change::Scalable(Arc::new(ScalableResource::decode(kind, meta(NAMESPACE, name), &value, &context()).unwrap()))
}

/// Returns a MachineSet that a MachineDeployment owns.
pub fn set_of(deployment: &str, name: &str) -> Change {
    set_of_with(deployment, name, &json!({}))
}

/// Returns a MachineSet that a MachineDeployment owns; `more` is merged into it.
pub fn set_of_with(deployment: &str, name: &str, more: &Value) -> Change {
    let owners = json!([{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment", "name": deployment, "controller": true}]);
    let mut value = json!({"metadata": {"ownerReferences": owners}});
    merge(&mut value, more);
    scalable(ScalableKind::MachineSet, name, 1, ("0", "9"), &value)
}

/// Returns a MachineSet of this revision that a MachineDeployment owns.
pub fn set_of_revision(deployment: &str, name: &str, revision: u16, replicas: u16) -> Change {
    set_of_with(deployment, name, &of_revision(revision, replicas))
}

/// Returns the fields of a MachineSet of this revision, created on the day of the month with the same number.
pub fn of_revision(revision: u16, replicas: u16) -> Value {
    json!({
        "metadata": {
            "annotations": {"machinedeployment.clusters.x-k8s.io/revision": revision.to_string()},
            "creationTimestamp": format!("2026-01-{revision:02}T00:00:00Z"),
        },
        "spec": {"replicas": replicas},
        "status": {"replicas": replicas},
    })
}

/// Returns a Machine of an owner such as `MachineSet/workers-1`.
pub fn machine(owner: &str, name: &str, more: &Value) -> Change {
    let (kind, owner) = owner.split_once('/').unwrap();
    let mut value = json!({
        "metadata": {"ownerReferences": [
            {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": kind, "name": owner, "controller": true},
        ]},
        "spec": {"clusterName": "stage"},
    });
    merge(&mut value, more);
    Change::Machine(Arc::new(Machine::decode(meta(NAMESPACE, name), &value, &context()).unwrap()))
}

/// Returns a Machine that became the Node with the same name, with a providerID built from the name.
pub fn joined(owner: &str, name: &str) -> Change {
    let more = json!({
        "spec": {"providerID": format!("cloud:///zone/{name}")},
        "status": {"phase": "Running", "nodeRef": {"name": name}},
    });
    machine(owner, name, &more)
}

pub fn node(name: &str, more: &Value) -> Change {
    let mut value = json!({"spec": {"providerID": format!("cloud:///zone/{name}")}});
    merge(&mut value, more);
    Change::Node(Arc::new(Node::decode(meta("", name), &value, &context()).unwrap()))
}

/// Returns the deletions of a Machine and of its Node with the same name.
pub fn gone(name: &str) -> [Change; 2] {
    [Change::NodeGone(name.into()), Change::MachineGone(ObjectKey::new(NAMESPACE, name))]
}

pub fn cluster(name: &str, paused: bool) -> Change {
    let value = json!({"spec": {"paused": paused}});
    Change::Cluster(Arc::new(Cluster::decode(meta(NAMESPACE, name), &value).unwrap()))
}

/// Returns a Cluster whose topology has this version, is in progress since the third of January, and holds these
/// MachineDeployments back.
pub fn cluster_of_version(name: &str, version: &str, held_back: &[&str]) -> Change {
    let worker = |name: &&str| json!({"name": name, "metadata": {"annotations": {"topology.cluster.x-k8s.io/defer-upgrade": ""}}});
    let workers: Vec<_> = held_back.iter().map(worker).collect();
    let value = json!({
        "spec": {"topology": {"version": version, "workers": {"machineDeployments": workers}}},
        "status": {"conditions": [
            {"type": "TopologyReconciled", "status": "False", "lastTransitionTime": "2026-01-03T00:00:00Z"},
        ]},
    });
    Change::Cluster(Arc::new(Cluster::decode(meta(NAMESPACE, name), &value).unwrap()))
}

pub fn kind() -> KindRef {
    KindRef { group: "infrastructure.cluster.x-k8s.io".into(), kind: "CloudMachineTemplate".into() }
}

pub fn template(name: &str, capacity: &Value) -> Change {
    template_of(name, &json!({"capacity": capacity}))
}

pub fn template_of(name: &str, status: &Value) -> Change {
    let value = json!({"status": status});
    Change::Template(kind(), Arc::new(InfrastructureTemplate::decode(meta(NAMESPACE, name), &value).unwrap()))
}

/// Returns the fields with which a MachineDeployment uses a template.
pub fn using_template(name: &str) -> Value {
    let kind = kind();
    json!({"spec": {"template": {"spec": {"infrastructureRef":
        {"apiGroup": &*kind.group, "kind": &*kind.kind, "name": name}}}}})
}

pub fn capacity_annotations(cpu: &str, memory: &str) -> Value {
    json!({"metadata": {"annotations": {
        "capacity.cluster-autoscaler.kubernetes.io/cpu": cpu,
        "capacity.cluster-autoscaler.kubernetes.io/memory": memory,
    }}})
}

/// Merges objects key by key; any other value is replaced.
pub fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

pub const WORKERS: &str = "MachineDeployment/team-a/workers";

/// Returns a MachineDeployment of size 4 with two running Machines that have Nodes, and one that has none yet.
pub fn workers() -> Vec<Change> {
    vec![
        deployment("workers", 4, ("1", "10"), &capacity_annotations("4", "16Gi")),
        set_of("workers", "workers-1"),
        joined("MachineSet/workers-1", "a"),
        joined("MachineSet/workers-1", "b"),
        machine("MachineSet/workers-1", "c", &json!({})),
        node("a", &json!({})),
        node("b", &json!({})),
    ]
}

pub fn group_of(index: &Index, provider_id: &str, name: &str) -> Option<String> {
    group_with(index, provider_id, name, &[])
}

pub fn group_with(index: &Index, provider_id: &str, name: &str, annotations: &[(&str, &str)]) -> Option<String> {
    let annotations: HashMap<_, _> =
        annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let group = index.group_of_node(NodeQuery { name, provider_id, annotations: &annotations })?;
    Some(group.text.to_string())
}

/// Returns the version of a group's object after a size was written.
pub fn written(index: &Index, group: &str, replicas: i32, resource_version: &str) -> GroupVersion {
    let before = index.scale_view(&id(group)).unwrap().version;
    GroupVersion { replicas, resource_version: resource_version.into(), ..before }
}
