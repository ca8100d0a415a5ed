//! Pods that wait for Nodes, by the scheduler: from pending to running, and from idle Nodes to none.

use anyhow::{Result, ensure};
use e2e::{
    controllers::{
        autoscaler::Autoscaler,
        groups::{Group, Workers},
        stage::{LOOK, PATIENCE, Stage},
    },
    provider::Provider,
    wait::every,
};
use serde_json::json;

/// Only one of the groups has room for such a pod; it grows, the pods run, and when they are gone it goes back to nothing.
pub(crate) async fn pods_bring_nodes_of_the_group_that_fits_and_idle_nodes_go(stage: &Stage) -> Result<()> {
    let sizes = [("small", "2"), ("big", "16")];
    let mut groups = Vec::new();
    for (name, cpu) in sizes {
        let capacity = json!({ "cpu": cpu, "memory": "64Gi", "pods": "110" });
        groups.push(Workers::new(name).publishing(capacity).label(POOL, &of(stage)).create(stage).await?);
    }
    // As big, but of another scenario's kind.
    let capacity = json!({ "cpu": "16", "memory": "64Gi", "pods": "110" });
    groups.push(Workers::new("other").publishing(capacity).label(POOL, "other").create(stage).await?);
    let big = groups[1].clone();
    let provider = stage.serve().await?;
    provider.shows(&groups.iter().map(|group| group.id.as_str()).collect::<Vec<_>>()).await?;

    // Two fit on a Node of 16 CPUs.
    for number in 0..3 {
        stage.workload.create(pod(stage, &format!("web-{number}"), "6")).await?;
    }
    let autoscaler = Autoscaler::new(stage, &provider);
    every(LOOK, "running pods", 2 * PATIENCE, async || {
        let done = autoscaler.look().await?;
        ensure!(done.deleted.is_empty(), "Nodes were deleted: {done:?}");
        let pods = stage.workload.list("Pod", "").await?;
        let phases: Vec<_> = pods.iter().map(|pod| pod.data["status"]["phase"].clone()).collect();
        ensure!(phases.iter().all(|phase| phase == "Running"), "phases are {phases:?}, {done:?}");
        Ok(())
    })
    .await?;
    stage.running(&big, 2).await?;
    sizes_are(&provider, &groups, &[0, 2, 0]).await?;

    for number in 0..3 {
        stage.workload.delete("Pod", &format!("web-{number}")).await?;
    }
    every(LOOK, "no Nodes", 2 * PATIENCE, async || {
        autoscaler.look().await?;
        sizes_are(&provider, &groups, &[0, 0, 0]).await
    })
    .await?;
    stage.running(&big, 0).await?;
    Ok(())
}

/// A label that Cluster API passes on to Nodes.
const POOL: &str = "node.cluster.x-k8s.io/pool";

/// Nodes are shared by scenarios, but pods of this one go to its own.
fn of(stage: &Stage) -> String {
    stage.namespace.clone()
}

fn pod(stage: &Stage, name: &str, cpu: &str) -> serde_json::Value {
    json!({
        "kind": "Pod",
        "metadata": { "name": name },
        "spec": {
            "nodeSelector": { POOL: of(stage) },
            "containers": [{
                "name": "web",
                "image": "example.com/web",
                "resources": { "requests": { "cpu": cpu, "memory": "1Gi" } },
            }],
        },
    })
}

async fn sizes_are(provider: &Provider, groups: &[Group], expected: &[i32]) -> Result<()> {
    let mut sizes = Vec::new();
    for group in groups {
        sizes.push(provider.target_size(&group.id).await?);
    }
    ensure!(sizes == expected, "sizes are {sizes:?}, expected {expected:?}");
    Ok(())
}
