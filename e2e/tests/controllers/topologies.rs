//! MachineDeployments that a Cluster's topology creates from a ClusterClass.

use anyhow::{Context, Result, ensure};
use e2e::{
    controllers::{
        groups::{Group, MAX, MIN},
        testbed::{POLL_INTERVAL, TIMEOUT, Testbed},
    },
    objects::{Contract, Place},
    wait::every,
};
use serde_json::{Value, json};

/// The kind of the templates of machines.
const MACHINES: &str = "LoopbackMachineTemplate";
/// The label with the name of a MachineDeployment in its topology.
const IN_TOPOLOGY: &str = "topology.cluster.x-k8s.io/deployment-name";

/// A group whose topology sets no replicas is scaled like any other; replicas set by a topology are restored, and the
/// program doesn't fight that.
pub(crate) async fn a_group_of_a_topology_is_scaled_where_the_topology_sets_no_replicas(
    testbed: &Testbed,
) -> Result<()> {
    let cluster = format!("{}-topology", testbed.cluster);
    let capacity = json!({ "cpu": "4", "memory": "16Gi", "pods": "110" });
    let template = json!({ "publishesCapacity": true, "template": { "spec": { "capacity": capacity } } });
    create_class(testbed, &[("worker", template)], &["worker"]).await?;
    let deployment =
        |name: &str| json!({ "class": "worker", "name": name, "metadata": { "labels": { "pool": name } } });
    let (mut free, mut fixed) = (deployment("free"), deployment("fixed"));
    free["metadata"]["annotations"] = json!({ MIN: "0", MAX: "5" });
    fixed["replicas"] = json!(1);
    create_cluster(testbed, &cluster, json!([free, fixed])).await?;
    let free = group(testbed, "free").await?;
    let fixed = group(testbed, "fixed").await?;
    // Cluster API refuses a topology with both, so the annotations bypass it.
    let name = fixed.id.rsplit('/').next().unwrap_or_default();
    testbed.objects.annotate(fixed.kind, name, json!({ MIN: "0", MAX: "5" })).await?;
    let provider = testbed.serve_cluster(&cluster, &[]).await?;
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

/// Creates a class with these kinds of workers, and the templates of machines that are named after them or that the class
/// may change to.
pub(crate) async fn create_class(testbed: &Testbed, templates: &[(&str, Value)], workers: &[&str]) -> Result<()> {
    let reference = |kind: &str, name: &str| {
        let version = Place::of(kind, Contract::V1Beta2).resource.api_version;
        json!({ "templateRef": { "apiVersion": version, "kind": kind, "name": name } })
    };
    for kind in ["LoopbackClusterTemplate", "LoopbackControlPlaneTemplate", "LoopbackConfigTemplate"] {
        let spec = json!({ "template": { "spec": {} } });
        testbed.objects.create(json!({ "kind": kind, "metadata": { "name": "class" }, "spec": spec })).await?;
    }
    for (name, spec) in templates {
        let template = json!({ "kind": MACHINES, "metadata": { "name": name }, "spec": spec });
        testbed.objects.create(template).await?;
    }
    let worker = |class: &&str| {
        json!({
            "class": class,
            "bootstrap": reference("LoopbackConfigTemplate", "class"),
            "infrastructure": reference(MACHINES, class),
        })
    };
    let class = json!({
        "kind": "ClusterClass",
        "metadata": { "name": "class" },
        "spec": {
            "infrastructure": reference("LoopbackClusterTemplate", "class"),
            "controlPlane": reference("LoopbackControlPlaneTemplate", "class"),
            "workers": { "machineDeployments": workers.iter().map(worker).collect::<Vec<_>>() },
        },
    });
    testbed.objects.create(class).await.map(drop)
}

/// Creates a Cluster of the class with these MachineDeployments in its topology, and waits until it can be reached.
pub(crate) async fn create_cluster(testbed: &Testbed, name: &str, deployments: Value) -> Result<()> {
    let cluster = json!({
        "kind": "Cluster",
        "metadata": { "name": name },
        "spec": { "topology": {
            "classRef": { "name": "class" },
            "version": "v1.36.3",
            "workers": { "machineDeployments": deployments },
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
