//! Objects that are paused at each level, with the semantics of Cluster API.

use anyhow::Result;
use e2e::controllers::{
    groups::{Group, Workers},
    stage::Stage,
};
use e2e::provider::Provider;
use serde_json::{Value, json};

/// Cluster API's controllers ignore a paused object, so it is no group.
pub(crate) async fn a_paused_deployment_is_no_group_until_it_goes_on(stage: &Stage) -> Result<()> {
    let other = Workers::new("other").sized().create(stage).await?;
    let group = Workers::new("workers").replicas(1).create(stage).await?;
    let provider = stage.serve().await?;
    provider.shows(&[&group.id, &other.id]).await?;
    let node = stage.node_of(&stage.running(&group, 1).await?[0]).await?;

    pause(stage, &group, json!("true")).await?;
    provider.shows(&[&other.id]).await?;
    assert_eq!(provider.group_of(&node).await?, None, "a Node of a paused group");

    pause(stage, &group, Value::Null).await?;
    provider.shows(&[&group.id, &other.id]).await?;
    grows(stage, &provider, &group, 2).await
}

/// A paused Cluster pauses everything in it.
pub(crate) async fn a_paused_cluster_has_no_groups_until_it_goes_on(stage: &Stage) -> Result<()> {
    let group = Workers::new("workers").sized().create(stage).await?;
    let provider = stage.serve().await?;
    provider.shows(&[&group.id]).await?;
    stage.objects.patch("Cluster", &stage.cluster, json!({ "spec": { "paused": true } })).await?;
    provider.shows(&[]).await?;
    stage.objects.patch("Cluster", &stage.cluster, json!({ "spec": { "paused": null } })).await?;
    provider.shows(&[&group.id]).await?;
    grows(stage, &provider, &group, 1).await
}

/// `spec.paused` of a MachineDeployment stops its rollouts only.
pub(crate) async fn a_deployment_whose_rollouts_are_paused_still_grows(stage: &Stage) -> Result<()> {
    let group = Workers::new("workers").sized().replicas(1).create(stage).await?;
    let provider = stage.serve().await?;
    stage.running(&group, 1).await?;
    stage.objects.patch("MachineDeployment", &group.name, json!({ "spec": { "paused": true } })).await?;
    provider.shows(&[&group.id]).await?;
    grows(stage, &provider, &group, 2).await
}

async fn pause(stage: &Stage, group: &Group, value: Value) -> Result<()> {
    stage.objects.annotate(group.kind, &group.name, json!({ "cluster.x-k8s.io/paused": value })).await
}

async fn grows(stage: &Stage, provider: &Provider, group: &Group, to: usize) -> Result<()> {
    provider.increase(&group.id, 1).await?;
    stage.running(group, to).await?;
    Ok(())
}
