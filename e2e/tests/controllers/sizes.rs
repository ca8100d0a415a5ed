//! Groups that grow from zero and shrink to zero, and those of objects that are paused, by Cluster API's semantics.

use anyhow::{Context, Result, ensure};
use e2e::{
    controllers::{
        groups::{Group, Workers},
        instances::{instances_are, target_size_is},
        machines::Machine,
        testbed::{TIMEOUT, Testbed},
    },
    pool::Scalable,
    proto::instance_status::InstanceState::InstanceRunning,
    provider::Provider,
    wait::eventually,
};
use serde_json::json;

/// Annotations set the capacity of a Node; the new Node belongs to the group.
pub(crate) async fn a_deployment_grows_from_zero_by_annotations_and_shrinks_to_zero(testbed: &Testbed) -> Result<()> {
    let group = Workers::new("workers").sized().create(testbed).await?;
    from_zero_to_zero(testbed, &group, 2).await
}

/// A MachineSet without a MachineDeployment is a group as well.
pub(crate) async fn a_bare_machine_set_grows_from_zero_and_shrinks_to_zero(testbed: &Testbed) -> Result<()> {
    let group = Workers::new("bare").of(Scalable::MachineSet).sized().create(testbed).await?;
    from_zero_to_zero(testbed, &group, 2).await
}

/// The Nodes of a MachinePool have no Machines; its provider creates and removes them by number.
pub(crate) async fn a_machine_pool_grows_and_shrinks_by_number(testbed: &Testbed) -> Result<()> {
    let group = Workers::new("spot").of(Scalable::MachinePool).sized().create(testbed).await?;
    let provider = testbed.serve().await?;
    provider.shows(&[&group.id]).await?;
    provider.increase(&group.id, 2).await?;
    let ids = provider_ids(testbed, &group, 2).await?;
    instances_are(&provider, &group.id, ids.iter().map(|id| (id.clone(), (InstanceRunning, None)))).await?;
    for id in &ids {
        let node = eventually("the pool's Node", TIMEOUT, async || {
            let nodes = testbed.workload.list("Node", "").await?;
            nodes.into_iter().find(|node| node.data["spec"]["providerID"] == *id).context("it is not there")
        })
        .await?;
        let node = e2e::proto::ExternalGrpcNode {
            provider_id: id.clone(),
            name: node.metadata.name.unwrap_or_default(),
            ..e2e::proto::ExternalGrpcNode::default()
        };
        let found = provider.group_of(&node).await?.map(|group| group.id);
        assert_eq!(found.as_deref(), Some(group.id.as_str()), "group of {node:?}");
    }
    Ok(())
}

async fn provider_ids(testbed: &Testbed, group: &Group, count: usize) -> Result<Vec<String>> {
    eventually("ids of the pool", TIMEOUT, async || {
        let pool = testbed.objects.get("MachinePool", &group.name).await?;
        let ids = pool.data["spec"]["providerIDList"].as_array().cloned().unwrap_or_default();
        ensure!(ids.len() == count, "they are {ids:?}");
        Ok(ids.iter().filter_map(|id| id.as_str().map(str::to_owned)).collect())
    })
    .await
}

async fn from_zero_to_zero(testbed: &Testbed, group: &Group, size: usize) -> Result<()> {
    let provider = testbed.serve().await?;
    provider.shows(&[&group.id]).await?;
    provider.increase(&group.id, i32::try_from(size)?).await?;
    let machines = testbed.running(group, size).await?;
    instances_are(&provider, &group.id, running(&machines)).await?;
    for machine in &machines {
        let node = testbed.node_of(machine).await?;
        let found = provider.group_of(&node).await?.map(|group| group.id);
        assert_eq!(found.as_deref(), Some(group.id.as_str()), "group of {node:?}");
        provider.delete_with_retries(&group.id, &[node]).await?;
    }
    testbed.running(group, 0).await?;
    instances_are(&provider, &group.id, []).await?;
    target_size_is(&provider, &group.id, 0).await
}

/// Returns the expected instances of running Machines.
pub(crate) fn running(machines: &[Machine]) -> Vec<(String, e2e::controllers::instances::ObservedInstance)> {
    machines.iter().map(|machine| (machine.provider_id.clone().unwrap_or_default(), (InstanceRunning, None))).collect()
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

async fn grows(testbed: &Testbed, provider: &Provider, group: &Group, to: usize) -> Result<()> {
    provider.increase(&group.id, 1).await?;
    testbed.running(group, to).await?;
    Ok(())
}
