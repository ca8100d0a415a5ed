//! The beginning of a world: a Cluster and its node groups, as many and as large as the seed says.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::chance::Chance;

/// The namespace of Cluster API's objects.
pub(crate) const NAMESPACE: &str = "team-a";
/// The label by which Pods choose Nodes of one group.
pub(crate) const POOL: &str = "node.cluster.x-k8s.io/pool";

/// A node group.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    /// CPUs of a Node.
    pub(crate) cpu: u32,
    min: u32,
    pub(crate) max: u32,
    replicas: u32,
}

/// The groups of a seed: the first is a MachineDeployment that any Pod fits.
pub(crate) fn groups(chance: Chance) -> Vec<Group> {
    let mut draw = chance.of("groups", 0, 0);
    (0..draw.u32(2..5))
        .map(|number| {
            let kind = if number > 0 && draw.u32(0..4) == 0 { "MachineSet" } else { "MachineDeployment" };
            let min = if draw.u32(0..3) == 0 { draw.u32(1..3) } else { 0 };
            let max = draw.u32(4..9);
            let replicas = draw.u32(min..=(min + 3));
            let cpu = if number == 0 { 4 } else { [2, 4, 8][draw.usize(0..3)] };
            Group { kind, name: format!("group-{number}"), cpu, min, max, replicas }
        })
        .collect()
}

impl Group {
    /// Its id on the wire.
    pub(crate) fn id(&self) -> String {
        format!("{}/{NAMESPACE}/{}", self.kind, self.name)
    }

    /// Returns true if one of its Nodes takes a Pod that asks for so many thousandths of a CPU, and chooses Nodes by labels.
    pub(crate) fn fits(&self, cpu: i64, selector: &BTreeMap<String, String>) -> bool {
        let chosen = selector.iter().all(|(key, value)| key == POOL && *value == self.name);
        // A Node gives Pods a little less than it has.
        chosen && cpu <= i64::from(self.cpu) * 950
    }

    /// The label of its Nodes.
    pub(crate) fn pool(&self) -> BTreeMap<String, String> {
        BTreeMap::from([(POOL.to_owned(), self.name.clone())])
    }

    fn object(&self) -> Value {
        let name = &self.name;
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": self.kind,
            "metadata": {"name": name, "namespace": NAMESPACE, "annotations": {
                "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": self.min.to_string(),
                "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": self.max.to_string(),
                "capacity.cluster-autoscaler.kubernetes.io/cpu": self.cpu.to_string(),
                "capacity.cluster-autoscaler.kubernetes.io/memory": "16Gi",
            }},
            "spec": {"clusterName": "prod", "replicas": self.replicas, "selector": {"matchLabels": {"group": name}},
                "template": {"metadata": {"labels": {"group": name, POOL: name}}, "spec": {
                    "clusterName": "prod",
                    "bootstrap": {"dataSecretName": "b"},
                    "infrastructureRef": {
                        "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "CloudMachineTemplate",
                        "name": format!("of-{}-cpus", self.cpu),
                    },
                }}},
        })
    }
}

/// All objects.
pub(crate) fn objects(groups: &[Group]) -> Vec<Value> {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "cloudmachinetemplates.infrastructure.cluster.x-k8s.io"},
        "spec": {
            "group": "infrastructure.cluster.x-k8s.io", "scope": "Namespaced",
            "names": {
                "kind": "CloudMachineTemplate", "listKind": "CloudMachineTemplateList",
                "plural": "cloudmachinetemplates", "singular": "cloudmachinetemplate",
            },
            "versions": [{
                "name": "v1beta2", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    });
    let cluster = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": {"name": "prod", "namespace": NAMESPACE}, "spec": {"clusterNetwork": {}},
    });
    let template = |cpu: u32| {
        json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "CloudMachineTemplate",
            "metadata": {"name": format!("of-{cpu}-cpus"), "namespace": NAMESPACE}, "spec": {"template": {"spec": {}}},
            "status": {"capacity": {"cpu": cpu.to_string(), "memory": "16Gi"}},
        })
    };
    let mut objects = vec![definition, cluster];
    objects.extend([2, 4, 8].map(template));
    objects.extend(groups.iter().map(Group::object));
    objects
}
