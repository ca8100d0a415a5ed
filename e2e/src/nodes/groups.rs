//! Node groups with Machines and Nodes that have no machine behind them, as Cluster API's controllers would leave them.
//! The scheduler puts no Pod on these Nodes.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::{
    objects::{CAPI_GROUP, Contract},
    objects::{Objects, Place},
    proto::ExternalGrpcNode,
};

const CLUSTER_NAME: &str = "cluster.x-k8s.io/cluster-name";

/// The label of Nodes without a machine.
const LABEL: &str = "e2e.capi-autoscaler-provider.io/fake";

/// A MachineDeployment that was created.
#[derive(Clone, Debug)]
pub struct Group {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its Machines.
    pub machines: Vec<String>,
    /// Its Nodes, as Cluster Autoscaler sends them.
    pub nodes: Vec<ExternalGrpcNode>,
}

impl Group {
    /// Creates a MachineDeployment of the Cluster `prod` with this many running Machines.
    pub async fn create(objects: &Objects, name: &str, size: usize) -> Result<Self> {
        let namespace = objects.namespace();
        let owner = scalable(objects, "MachineDeployment", name, name, size, None).await?;
        let set = scalable(objects, "MachineSet", &format!("{name}-set"), name, size, Some(owner)).await?;
        let mut group = Self {
            id: format!("MachineDeployment/{namespace}/{name}"),
            name: name.to_owned(),
            machines: Vec::new(),
            nodes: Vec::new(),
        };
        for number in 0..size {
            let machine = format!("{name}-{number}");
            let node = node(objects, &machine, &set).await?;
            let object = json!({
                "kind": "Machine",
                "metadata": {
                    "name": machine,
                    "labels": { CLUSTER_NAME: "prod", "pool": name },
                    "ownerReferences": [set],
                    "finalizers": ["machine.cluster.x-k8s.io"],
                },
                "spec": {
                    "clusterName": "prod",
                    "bootstrap": { "dataSecretName": "none" },
                    "infrastructureRef": {
                        "apiGroup": "infrastructure.cluster.x-k8s.io",
                        "kind": "DevMachine",
                        "name": machine,
                    },
                    "providerID": node.provider_id,
                },
                "status": { "phase": "Running", "nodeRef": { "name": node.name } },
            });
            objects.create(object).await?;
            group.machines.push(machine);
            group.nodes.push(node);
        }
        Ok(group)
    }
}

/// Removes all Nodes without a machine.
pub(crate) async fn fake_nodes(objects: &Objects) -> Result<()> {
    for node in objects.list("Node", LABEL).await? {
        objects.remove("Node", &node.metadata.name.context("a Node without name")?).await?;
    }
    Ok(())
}

/// Creates a MachineDeployment or the MachineSet of one, and returns a reference to it as an owner.
async fn scalable(
    objects: &Objects,
    kind: &str,
    name: &str,
    pool: &str,
    size: usize,
    owner: Option<Value>,
) -> Result<Value> {
    let mut labels = json!({ CLUSTER_NAME: "prod", "pool": pool });
    let mut annotations = json!({
        "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": "0",
        "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": "10",
        "capacity.cluster-autoscaler.kubernetes.io/cpu": "4",
        "capacity.cluster-autoscaler.kubernetes.io/memory": "16Gi",
        "capacity.cluster-autoscaler.kubernetes.io/labels": format!("node.cluster.x-k8s.io/pool={pool}"),
    });
    if owner.is_some() {
        labels["cluster.x-k8s.io/deployment-name"] = json!(pool);
        annotations["machinedeployment.clusters.x-k8s.io/revision"] = json!("1");
    }
    let object = json!({
        "kind": kind,
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": owner.into_iter().collect::<Vec<_>>(),
        },
        "spec": {
            "clusterName": "prod",
            "replicas": size,
            "selector": { "matchLabels": { "pool": pool } },
            "template": {
                "metadata": { "labels": { "pool": pool } },
                "spec": {
                    "clusterName": "prod",
                    "bootstrap": { "dataSecretName": "none" },
                    "infrastructureRef": {
                        "apiGroup": "infrastructure.cluster.x-k8s.io",
                        "kind": "DevMachineTemplate",
                        "name": "none",
                    },
                },
            },
        },
        "status": { "replicas": size },
    });
    let created = objects.create(object).await?;
    Ok(json!({
        "apiVersion": Place::of(kind, Contract::V1Beta2).resource.api_version,
        "kind": kind,
        "name": name,
        "uid": created.metadata.uid,
        "controller": true,
        "blockOwnerDeletion": true,
    }))
}

/// Creates a Node that no Pod is scheduled to, and returns it as Cluster Autoscaler would send it.
async fn node(objects: &Objects, machine: &str, set: &Value) -> Result<ExternalGrpcNode> {
    let name = format!("{}-{machine}", objects.namespace());
    let provider_id = format!("e2e:///{name}");
    let annotations = [
        ("cluster-name", "prod"),
        ("cluster-namespace", objects.namespace()),
        ("machine", machine),
        ("owner-kind", "MachineSet"),
        ("owner-name", set["name"].as_str().unwrap_or_default()),
    ]
    .map(|(key, value)| (format!("{CAPI_GROUP}/{key}"), value.to_owned()));
    let node = json!({
        "kind": "Node",
        "metadata": { "name": name, "labels": { LABEL: "" }, "annotations": annotations.iter().cloned().collect::<std::collections::BTreeMap<_, _>>() },
        "spec": { "providerID": provider_id, "unschedulable": true },
        "status": {
            "capacity": { "cpu": "4", "memory": "16Gi", "pods": "110" },
            "allocatable": { "cpu": "4", "memory": "16Gi", "pods": "110" },
            "conditions": [{ "type": "Ready", "status": "True" }],
        },
    });
    objects.create(node).await?;
    Ok(ExternalGrpcNode { provider_id, name, annotations: annotations.into_iter().collect(), ..Default::default() })
}
