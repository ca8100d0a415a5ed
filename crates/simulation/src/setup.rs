//! The start of a world: a Cluster and its node groups, whose number and sizes the seed decides.

use std::{collections::BTreeMap, time::Duration};

use fastrand::Rng;
use sandbox::engine::PoolWays;
use serde_json::{Value, json};

use crate::plan::Chance;

/// The namespace of Cluster API's objects.
pub(crate) const NAMESPACE: &str = "team-a";
/// The name of a world's Cluster.
const CLUSTER: &str = "prod";
/// The label by which a fleet serves a Cluster.
pub(crate) const SERVED: (&str, &str) = ("autoscaler", "fleet");

/// The place of a Cluster: its namespace and name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Place {
    pub(crate) namespace: &'static str,
    pub(crate) name: &'static str,
}

/// Returns the places of a world's Clusters. In a fleet some share a namespace, and some a name.
pub(crate) fn places(chance: Chance, is_fleet: bool) -> Vec<Place> {
    let first = Place { namespace: NAMESPACE, name: CLUSTER };
    if !is_fleet {
        return vec![first];
    }
    let beside = Place { name: "stage", ..first };
    let namesake = Place { namespace: "team-b", ..first };
    match chance.of("places", 0, 0).u32(0..4) {
        0 => vec![first, beside],
        1 => vec![first, namesake],
        _ => vec![first, beside, namesake],
    }
}
pub(crate) const MIN_SIZE: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size";
pub(crate) const MAX_SIZE: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size";
/// The annotation of the labels of a group's Nodes.
pub(crate) const LABELS: &str = "capacity.cluster-autoscaler.kubernetes.io/labels";
pub(crate) const UNNEEDED: &str = "cluster.x-k8s.io/autoscaling-options-scaledownunneededtime";
/// The label by which Pods select Nodes of one group.
pub(crate) const POOL: &str = "node.cluster.x-k8s.io/pool";

#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    pub(crate) namespace: &'static str,
    cluster: &'static str,
    /// The CPUs of a Node.
    pub(crate) cpu: u32,
    min: u32,
    pub(crate) max: u32,
    replicas: u32,
}

/// Returns the groups of a seed: the first is a MachineDeployment that fits every Pod, and in some worlds `with_pools`
/// the last is a MachinePool. Namesakes have groups of the same names.
pub(crate) fn groups(chance: Chance, with_pools: bool, place: Place) -> Vec<Group> {
    let Place { namespace, name: cluster } = place;
    let named = |name: String| if cluster == CLUSTER { name } else { format!("{cluster}-{name}") };
    let mut draw = chance.of("groups", 0, 0);
    let mut groups: Vec<Group> = (0..draw.u32(2..5))
        .map(|number| {
            let kind = if number > 0 && draw.u32(0..4) == 0 { "MachineSet" } else { "MachineDeployment" };
            let min = if draw.u32(0..3) == 0 { draw.u32(1..3) } else { 0 };
            let max = draw.u32(4..9);
            let replicas = draw.u32(min..=(min + 3));
            let cpu = if number == 0 { 4 } else { [2, 4, 8][draw.usize(0..3)] };
            Group { kind, name: named(format!("group-{number}")), namespace, cluster, cpu, min, max, replicas }
        })
        .collect();
    let mut draw = chance.of("pool", 0, 0);
    if with_pools && draw.u32(0..4) == 0 {
        let (min, max) = (draw.u32(0..2), draw.u32(4..9));
        let (kind, name) = ("MachinePool", named("pool".to_owned()));
        groups.push(Group { kind, name, namespace, cluster, cpu: 4, min, max, replicas: draw.u32(min..=(min + 3)) });
    }
    groups
}

/// Draws the behaviour of the infrastructure of MachinePools; in some worlds they have no Machines.
pub(crate) fn pool_ways(chance: Chance) -> Option<PoolWays> {
    let mut draw = chance.of("pool", 0, 1);
    let lag = Duration::from_secs(if draw.bool() { draw.u64(1..15) } else { draw.u64(15..240) });
    (draw.u32(0..4) > 0).then(|| PoolWays { lag, minds_marks: draw.bool() })
}

pub(crate) fn tenants_groups(draw: &mut Rng, namespace: &'static str) -> Vec<Group> {
    let count = draw.u32(1..3);
    let group = |number| {
        let kind = if draw.u32(0..4) == 0 { "MachineSet" } else { "MachineDeployment" };
        let (min, max) = (draw.u32(0..2), draw.u32(2..6));
        let replicas = draw.u32(min..=max);
        Group { kind, name: format!("tenants-{number}"), namespace, cluster: CLUSTER, cpu: 4, min, max, replicas }
    };
    (0..count).map(group).collect()
}

impl Group {
    pub(crate) fn id(&self) -> String {
        format!("{}/{}/{}", self.kind, self.namespace, self.name)
    }

    /// Returns true if one of its Nodes fits a Pod with this CPU request in millicores and this node selector.
    pub(crate) fn fits(&self, cpu: i64, selector: &BTreeMap<String, String>) -> bool {
        let chosen = selector.iter().all(|(key, value)| key == POOL && *value == self.name);
        // A Node's allocatable CPU is a little less than its capacity.
        chosen && cpu <= i64::from(self.cpu) * 950
    }

    pub(crate) fn pool(&self) -> BTreeMap<String, String> {
        BTreeMap::from([(POOL.to_owned(), self.name.clone())])
    }

    pub(crate) fn object(&self) -> Value {
        let name = &self.name;
        let mut object = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": self.kind,
            "metadata": {"name": name, "namespace": self.namespace, "annotations": {
                MIN_SIZE: self.min.to_string(),
                MAX_SIZE: self.max.to_string(),
                "capacity.cluster-autoscaler.kubernetes.io/cpu": self.cpu.to_string(),
                "capacity.cluster-autoscaler.kubernetes.io/memory": "16Gi",
            }},
            "spec": {"clusterName": self.cluster, "replicas": self.replicas, "selector": {"matchLabels": {"group": name}},
                "template": {"metadata": {"labels": {"group": name, POOL: name}}, "spec": {
                    "clusterName": self.cluster,
                    "bootstrap": {"dataSecretName": "b"},
                    "infrastructureRef": {
                        "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "CloudMachineTemplate",
                        "name": format!("of-{}-cpus", self.cpu),
                    },
                }}},
        });
        if self.kind == "MachinePool" {
            object["spec"].as_object_mut().map(|spec| spec.remove("selector"));
            object["metadata"]["annotations"][LABELS] = json!(format!("{POOL}={name}"));
        }
        object
    }
}

/// Returns the objects of the start that belong to no Cluster: the kind of the templates, and those in these
/// namespaces.
pub(crate) fn templates_of_all(namespaces: &[&str]) -> Vec<Value> {
    [definition()].into_iter().chain(namespaces.iter().flat_map(|namespace| templates(namespace))).collect()
}

/// Returns all objects of the start of a world with one Cluster.
pub(crate) fn objects(groups: &[Group]) -> Vec<Value> {
    let mut objects = vec![definition(), cluster(NAMESPACE)];
    objects.extend(templates(NAMESPACE));
    objects.extend(groups.iter().map(Group::object));
    objects
}

/// Returns the objects of a Cluster that a fleet serves: the Cluster is the first.
pub(crate) fn served(place: Place, groups: &[Group]) -> Vec<Value> {
    let mut cluster = cluster(place.namespace);
    cluster["metadata"]["name"] = json!(place.name);
    cluster["metadata"]["labels"] = json!({ SERVED.0: SERVED.1 });
    [cluster].into_iter().chain(groups.iter().map(Group::object)).collect()
}

/// Returns the CustomResourceDefinition of the infrastructure's templates.
pub(crate) fn definition() -> Value {
    let version = |name: &str, is_newest: bool| {
        json!({
            "name": name, "served": is_newest, "storage": is_newest,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "cloudmachinetemplates.infrastructure.cluster.x-k8s.io"},
        "spec": {
            "group": "infrastructure.cluster.x-k8s.io", "scope": "Namespaced",
            "names": {
                "kind": "CloudMachineTemplate", "listKind": "CloudMachineTemplateList",
                "plural": "cloudmachinetemplates", "singular": "cloudmachinetemplate",
            },
            "versions": [version("v1beta2", true), version("v1beta1", false)],
        },
    })
}

pub(crate) fn templates(namespace: &str) -> [Value; 3] {
    [2, 4, 8].map(|cpu| template(cpu, namespace))
}

pub(crate) fn tenants_objects(groups: &[Group], namespace: &str, has_cluster: bool) -> Vec<Value> {
    let cluster = has_cluster.then(|| cluster(namespace));
    cluster.into_iter().chain([template(4, namespace)]).chain(groups.iter().map(Group::object)).collect()
}

fn cluster(namespace: &str) -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": {"name": CLUSTER, "namespace": namespace}, "spec": {"clusterNetwork": {}},
    })
}

fn template(cpu: u32, namespace: &str) -> Value {
    json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "CloudMachineTemplate",
        "metadata": {"name": format!("of-{cpu}-cpus"), "namespace": namespace}, "spec": {"template": {"spec": {"cpus": cpu}}},
        "status": {"capacity": {"cpu": cpu.to_string(), "memory": "16Gi"}},
    })
}
