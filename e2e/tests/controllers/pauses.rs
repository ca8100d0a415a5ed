//! Objects that are paused at each level, with the semantics of Cluster API.

use anyhow::Result;
use e2e::controllers::{
    groups::{Group, Workers},
    testbed::Testbed,
};
use e2e::provider::Provider;
use serde_json::{Value, json};

/// Cluster API's controllers ignore a paused object, so it is no group.
pub(crate) async fn a_paused_deployment_is_no_group_until_it_goes_on(testbed: &Testbed) -> Result<()> {
    let other = Workers::new("other").sized().create(testbed).await?;
    let group = Workers::new("workers").replicas(1).create(testbed).await?;
    let provider = testbed.serve().await?;
    provider.shows(&[&group.id, &other.id]).await?;
    let node = testbed.node_of(&testbed.running(&group, 1).await?[0]).await?;

    pause(testbed, &group, json!("true")).await?;
    provider.shows(&[&other.id]).await?;
    assert_eq!(provider.group_of(&node).await?, None, "a Node of a paused group");

    pause(testbed, &group, Value::Null).await?;
    provider.shows(&[&group.id, &other.id]).await?;
    grows(testbed, &provider, &group, 2).await
}

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

async fn pause(testbed: &Testbed, group: &Group, value: Value) -> Result<()> {
    testbed.objects.annotate(group.kind, &group.name, json!({ "cluster.x-k8s.io/paused": value })).await
}

async fn grows(testbed: &Testbed, provider: &Provider, group: &Group, to: usize) -> Result<()> {
    provider.increase(&group.id, 1).await?;
    testbed.running(group, to).await?;
    Ok(())
}
