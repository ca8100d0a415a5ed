//! Objects that are paused at each level, with the semantics of Cluster API.

use anyhow::Result;
use e2e::controllers::{
    groups::{Group, Workers},
    testbed::Testbed,
};
use e2e::provider::Provider;
use serde_json::json;

/// A paused Cluster pauses everything in it.
pub(crate) async fn a_paused_cluster_has_no_groups_until_it_goes_on(testbed: &Testbed) -> Result<()> {
    let group = Workers::new("workers").sized().create(testbed).await?;
    let provider = testbed.serve().await?;
    provider.shows(&[&group.id]).await?;
    testbed.objects.patch("Cluster", &testbed.cluster, json!({ "spec": { "paused": true } })).await?;
    provider.shows(&[]).await?;
    testbed.objects.patch("Cluster", &testbed.cluster, json!({ "spec": { "paused": null } })).await?;
    provider.shows(&[&group.id]).await?;
    grows(testbed, &provider, &group, 1).await
}

/// `spec.paused` of a MachineDeployment stops its rollouts only.
pub(crate) async fn a_deployment_whose_rollouts_are_paused_still_grows(testbed: &Testbed) -> Result<()> {
    let group = Workers::new("workers").sized().replicas(1).create(testbed).await?;
    let provider = testbed.serve().await?;
    testbed.running(&group, 1).await?;
    testbed.objects.patch("MachineDeployment", &group.name, json!({ "spec": { "paused": true } })).await?;
    provider.shows(&[&group.id]).await?;
    grows(testbed, &provider, &group, 2).await
}

async fn grows(testbed: &Testbed, provider: &Provider, group: &Group, to: usize) -> Result<()> {
    provider.increase(&group.id, 1).await?;
    testbed.running(group, to).await?;
    Ok(())
}
