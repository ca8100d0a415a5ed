//! MachineDeployments that a Cluster's topology creates from a ClusterClass.

use anyhow::{Context, Result, ensure};
use e2e::{
    controllers::{
        groups::Group,
        testbed::{POLL_INTERVAL, TIMEOUT, Testbed},
    },
    objects::{Contract, Place},
    wait::every,
};
use serde_json::json;

const MIN: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size";
const MAX: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size";
/// The label with the name of a MachineDeployment in its topology.
const IN_TOPOLOGY: &str = "topology.cluster.x-k8s.io/deployment-name";

/// A group whose topology sets no replicas is scaled like any other; replicas set by a topology are restored, and the
/// program doesn't fight that.
pub(crate) async fn a_group_of_a_topology_is_scaled_where_the_topology_sets_no_replicas(
    testbed: &Testbed,
) -> Result<()> {
    let cluster = format!("{}-topology", testbed.cluster);
    create_class(testbed).await?;
    create_cluster(testbed, &cluster).await?;
    let free = group(testbed, "free").await?;
    let fixed = group(testbed, "fixed").await?;
    // Cluster API refuses a topology with both, so the annotations bypass it.
    let name = fixed.id.rsplit('/').next().unwrap_or_default();
    testbed.objects.annotate(fixed.kind, name, json!({ MIN: "0", MAX: "5" })).await?;
    let provider = testbed.serve_cluster(&cluster).await?;
    provider.shows(&[&free.id, &fixed.id]).await?;

    provider.increase(&free.id, 2).await?;
    let machines = testbed.running(&free, 2).await?;
    let node = testbed.node_of(&machines[0]).await?;
    provider.delete_with_retries(&free.id, &[node]).await?;
    let left = testbed.running(&free, 1).await?;
    assert_eq!(left[0].name, machines[1].name, "the Machine that is left");

    testbed.running(&fixed, 1).await?;
    provider.increase(&fixed.id, 1).await?;
    every(POLL_INTERVAL, "the size put back by the topology", TIMEOUT, async || {
        let size = provider.target_size(&fixed.id).await?;
        ensure!(size == 1, "it is {size}");
        Ok(())
    })
    .await?;
    testbed.running(&fixed, 1).await?;
    Ok(())
}

/// Creates a class with one kind of worker, which publishes its own capacity.
async fn create_class(testbed: &Testbed) -> Result<()> {
    let reference = |kind: &str| {
        let version = Place::of(kind, Contract::V1Beta2).resource.api_version;
        json!({ "templateRef": { "apiVersion": version, "kind": kind, "name": "class" } })
    };
    let spec = |machine: bool| {
        let capacity = json!({ "cpu": "4", "memory": "16Gi", "pods": "110" });
        if machine {
            json!({ "publishesCapacity": true, "template": { "spec": { "capacity": capacity } } })
        } else {
            json!({ "template": { "spec": {} } })
        }
    };
    for kind in ["LoopbackClusterTemplate", "LoopbackControlPlaneTemplate", "LoopbackConfigTemplate"] {
        testbed.objects.create(json!({ "kind": kind, "metadata": { "name": "class" }, "spec": spec(false) })).await?;
    }
    let machines = "LoopbackMachineTemplate";
    testbed.objects.create(json!({ "kind": machines, "metadata": { "name": "class" }, "spec": spec(true) })).await?;
    let class = json!({
        "kind": "ClusterClass",
        "metadata": { "name": "class" },
        "spec": {
            "infrastructure": reference("LoopbackClusterTemplate"),
            "controlPlane": reference("LoopbackControlPlaneTemplate"),
            "workers": { "machineDeployments": [{
                "class": "worker",
                "bootstrap": reference("LoopbackConfigTemplate"),
                "infrastructure": reference(machines),
            }] },
        },
    });
    testbed.objects.create(class).await?;
    Ok(())
}

async fn create_cluster(testbed: &Testbed, name: &str) -> Result<()> {
    let deployment =
        |name: &str| json!({ "class": "worker", "name": name, "metadata": { "labels": { "pool": name } } });
    let (mut free, mut fixed) = (deployment("free"), deployment("fixed"));
    free["metadata"]["annotations"] = json!({ MIN: "0", MAX: "5" });
    fixed["replicas"] = json!(1);
    let cluster = json!({
        "kind": "Cluster",
        "metadata": { "name": name },
        "spec": { "topology": {
            "classRef": { "name": "class" },
            "version": "v1.36.3",
            "workers": { "machineDeployments": [free, fixed] },
        } },
    });
    testbed.objects.create(cluster).await?;
    testbed.cluster_is_up(name).await
}

/// Returns the MachineDeployment that the topology has created under this name.
pub(crate) async fn group(testbed: &Testbed, name: &str) -> Result<Group> {
    let selector = format!("{IN_TOPOLOGY}={name}");
    every(POLL_INTERVAL, "a MachineDeployment of the topology", TIMEOUT, async || {
        let found = testbed.objects.list("MachineDeployment", &selector).await?.into_iter().next();
        let object = found.with_context(|| format!("none for {name}"))?;
        let object = object.metadata.name.context("no name")?;
        Ok(Group { id: testbed.id("MachineDeployment", &object), kind: "MachineDeployment", name: name.to_owned() })
    })
    .await
}
