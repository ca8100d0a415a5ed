//! Groups that grow from zero and shrink to zero.

use std::collections::BTreeMap;

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
use k8s_pb::api::core::v1::Node;
use prost::Message;
use serde_json::json;

/// Annotations set the capacity of a Node; the new Node belongs to the group.
pub(crate) async fn a_deployment_grows_from_zero_by_annotations_and_shrinks_to_zero(testbed: &Testbed) -> Result<()> {
    let group = Workers::new("workers").sized().create(testbed).await?;
    from_zero_to_zero(testbed, &group, 2).await
}

/// The infrastructure provider publishes the capacity: the new Node matches the template.
pub(crate) async fn a_deployment_grows_from_zero_by_status_capacity(testbed: &Testbed) -> Result<()> {
    let capacity = json!({ "cpu": "8", "memory": "32Gi", "pods": "58" });
    let group = Workers::new("workers").publishing(capacity).create(testbed).await?;
    let provider = testbed.serve().await?;
    provider.shows(&[&group.id]).await?;
    let promised = template(&provider, &group).await?;

    provider.increase(&group.id, 1).await?;
    let machines = testbed.running(&group, 1).await?;
    let name = machines[0].node.as_deref().context("no Node")?;
    let node = testbed.workload.get("Node", name).await?;
    for resource in ["cpu", "memory", "pods"] {
        let there = node.data["status"]["capacity"][resource].as_str();
        assert_eq!(promised.get(resource).map(String::as_str), there, "{resource} of the Node that came");
    }
    Ok(())
}

/// A provider may publish the capacity of its machines later: only then can the group scale from zero.
pub(crate) async fn a_template_that_learns_its_capacity_makes_a_group(testbed: &Testbed) -> Result<()> {
    let group = Workers::new("workers").create(testbed).await?;
    let other = Workers::new("other").sized().create(testbed).await?;
    let provider = testbed.serve().await?;
    provider.shows(&[&other.id]).await?;
    let status = json!({ "capacity": { "cpu": "8", "memory": "32Gi" } });
    testbed.objects.patch_status(testbed.template_kind(), &group.name, status).await?;
    provider.shows(&[&group.id, &other.id]).await?;
    assert_eq!(template(&provider, &group).await?.get("cpu").map(String::as_str), Some("8"));
    provider.increase(&group.id, 1).await?;
    testbed.running(&group, 1).await?;
    Ok(())
}

/// A MachineSet without a MachineDeployment is a group as well.
pub(crate) async fn a_bare_machine_set_grows_from_zero_and_shrinks_to_zero(testbed: &Testbed) -> Result<()> {
    let group = Workers::new("bare").of(Scalable::MachineSet).sized().create(testbed).await?;
    from_zero_to_zero(testbed, &group, 2).await
}

/// Without replicas Cluster API uses the min size of the group's annotations.
pub(crate) async fn a_group_made_without_replicas_begins_at_its_minimum(testbed: &Testbed) -> Result<()> {
    let group = Workers::new("workers").sized().without_replicas().bounds(2, 5).create(testbed).await?;
    let provider = testbed.serve().await?;
    provider.shows(&[&group.id]).await?;
    testbed.running(&group, 2).await?;
    assert_eq!(provider.target_size(&group.id).await?, 2);
    Ok(())
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

/// Returns the capacity of the program's template Node.
pub(crate) async fn template(provider: &Provider, group: &Group) -> Result<BTreeMap<String, String>> {
    let bytes = provider.template(&group.id).await?.node_bytes;
    let capacity = Node::decode(&*bytes)?.status.context("a template without status")?.capacity;
    Ok(capacity.into_iter().map(|(resource, quantity)| (resource, quantity.string.unwrap_or_default())).collect())
}
