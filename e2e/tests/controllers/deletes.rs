//! Scale-downs take exactly the named Machines.

use anyhow::{Result, ensure};
use e2e::{
    controllers::{
        groups::{Group, Workers},
        instances::{instances_are, target_size_is},
        machines::{HOOK, names},
        testbed::Testbed,
    },
    pool::Scalable,
    proto::instance_status::InstanceState::InstanceCreating,
    provider::made_up_node,
};
use futures::future::try_join_all;
use serde_json::json;

/// One concurrent call for each Node, as for empty Nodes.
pub(crate) async fn parallel_deletes_take_exactly_the_named_machines(testbed: &Testbed) -> Result<()> {
    if testbed.is_existing() {
        // These may be real machines.
        let group = Workers::new("workers").replicas(4).create(testbed).await?;
        return takes_exactly(testbed, &group, 4, &[1, 3]).await;
    }
    let group = Workers::new("workers").replicas(6).create(testbed).await?;
    takes_exactly(testbed, &group, 6, &[1, 3, 4]).await
}

/// The same for a MachineSet alone.
pub(crate) async fn a_bare_machine_set_loses_exactly_the_named_machines(testbed: &Testbed) -> Result<()> {
    let group = Workers::new("bare").of(Scalable::MachineSet).replicas(4).create(testbed).await?;
    takes_exactly(testbed, &group, 4, &[1, 2]).await
}

/// The Machines of a MachinePool can be named if its infrastructure has any.
pub(crate) async fn a_machine_pool_with_machines_loses_exactly_the_named_ones(testbed: &Testbed) -> Result<()> {
    let pool =
        Workers::new("pool").of(Scalable::MachinePool).with_machines().sized().replicas(4).create(testbed).await?;
    takes_exactly(testbed, &pool, 4, &[0, 2]).await
}

async fn takes_exactly(testbed: &Testbed, group: &Group, size: usize, named: &[usize]) -> Result<()> {
    let provider = testbed.serve().await?;
    provider.shows(&[&group.id]).await?;
    let machines = testbed.running(group, size).await?;
    let mut nodes = Vec::new();
    for &index in named {
        nodes.push(testbed.node_of(&machines[index]).await?);
    }
    try_join_all(nodes.iter().map(|node| provider.delete_with_retries(&group.id, std::slice::from_ref(node)))).await?;
    let mut expected = names(&machines);
    for &index in named {
        expected.remove(&machines[index].name);
    }
    let left = testbed.running(group, size - named.len()).await?;
    assert_eq!(names(&left), expected, "Machines that are left");
    target_size_is(&provider, &group.id, i32::try_from(expected.len())?).await
}

/// A MachineSet counts Machines that are being deleted as replicas and takes those first, so a smaller size alone would
/// be spent on the held one: the named one is deleted all the same, and the held one is replaced.
pub(crate) async fn a_named_machine_goes_while_another_is_held_in_deletion(testbed: &Testbed) -> Result<()> {
    let group = Workers::new("workers").replicas(3).create(testbed).await?;
    let provider = testbed.serve().await?;
    provider.shows(&[&group.id]).await?;
    let machines = testbed.running(&group, 3).await?;
    let (held, named) = (&machines[0], &machines[1]);
    let node = testbed.node_of(named).await?;

    testbed.objects.annotate("Machine", &held.name, json!({ HOOK: "held" })).await?;
    testbed.objects.delete("Machine", &held.name).await?;
    testbed
        .machines_that(&group, "a Machine held in deletion", |machines| {
            machines.iter().any(|machine| machine.name == held.name && machine.deleting)
        })
        .await?;
    provider.delete_with_retries(&group.id, &[node]).await?;
    target_size_is(&provider, &group.id, 2).await?;
    testbed
        .machines_that(&group, "the named Machine gone", |left| {
            let left = names(left);
            left.len() == 2 && left.contains(&held.name) && left.contains(&machines[2].name)
        })
        .await?;

    // The MachineSet lacks a replica only once it is gone.
    testbed.objects.annotate("Machine", &held.name, json!({ HOOK: null })).await?;
    let left = testbed.running(&group, 2).await?;
    ensure!(names(&left).contains(&machines[2].name), "the third Machine went too: {left:?}");
    target_size_is(&provider, &group.id, 2).await
}

/// At the min size no Machine may be removed, but one that never became a Node is replaced.
pub(crate) async fn a_machine_that_never_joins_is_replaced_at_the_minimum(testbed: &Testbed) -> Result<()> {
    let group = Workers::new("workers").that("never-join").bounds(1, 3).replicas(1).create(testbed).await?;
    let provider = testbed.serve().await?;
    provider.shows(&[&group.id]).await?;
    let first = testbed
        .machines_that(&group, "a provisioned Machine", |machines| {
            machines.len() == 1 && machines[0].phase == "Provisioned"
        })
        .await?;
    let pending = format!("pending-machine-{}_{}", testbed.namespace, first[0].name);
    instances_are(&provider, &group.id, [(pending.clone(), (InstanceCreating, None))]).await?;
    provider.delete_with_retries(&group.id, &[made_up_node(&pending)]).await?;
    testbed
        .machines_that(&group, "another Machine", |machines| {
            machines.len() == 1 && !machines[0].deleting && machines[0].name != first[0].name
        })
        .await?;
    target_size_is(&provider, &group.id, 1).await
}
