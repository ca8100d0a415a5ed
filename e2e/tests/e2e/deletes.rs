//! Deletes of Nodes: the named Machines are deleted, and the size is lowered by their number.

use anyhow::{Result, ensure};
use e2e::{
    pool::{Group, Pool, Scalable},
    provider::{assert_refused, made_up_node},
    world::World,
};
use futures::future::{join_all, try_join_all};
use tonic::Code;

use crate::sizes::assert_scale;

/// The controllers spend the smaller size on Machines that are being deleted.
pub(crate) async fn the_machines_named_are_deleted_and_the_size_is_lowered(world: &World) -> Result<()> {
    let workers = Pool::new("workers").running(4).create(world).await?;
    let batch = Pool::new("batch").of(Scalable::MachineSet).running(2).create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&workers.id, &batch.id]).await?;

    provider.delete(&workers.id, &workers.nodes[1..2]).await?;
    assert_eq!(provider.target_size(&workers.id).await?, 3);
    assert_scale(world, &workers, 3).await?;
    world.objects.assert_deleting(&["workers-1"]).await?;

    let two = [workers.nodes[3].clone(), workers.nodes[0].clone()];
    provider.delete(&workers.id, &two).await?;
    assert_eq!(provider.target_size(&workers.id).await?, 1);
    assert_scale(world, &workers, 1).await?;

    provider.delete(&batch.id, &batch.nodes[1..]).await?;
    assert_eq!(provider.target_size(&batch.id).await?, 1);
    assert_scale(world, &batch, 1).await?;
    world.objects.assert_deleting(&["batch-1", "workers-0", "workers-1", "workers-3"]).await
}

/// Empty Nodes come one per call, with up to ten concurrent calls.
pub(crate) async fn parallel_deletes_lower_the_size_once_each(world: &World) -> Result<()> {
    let first = Pool::new("first").running(6).create(world).await?;
    let second = Pool::new("second").running(6).create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&first.id, &second.id]).await?;

    let deletes = [&first, &second]
        .into_iter()
        .flat_map(|group| group.nodes[..5].iter().map(|node| provider.delete(&group.id, std::slice::from_ref(node))));
    try_join_all(deletes).await?;
    let mut deleting = Vec::new();
    for group in [&first, &second] {
        assert_eq!(provider.target_size(&group.id).await?, 1);
        assert_scale(world, group, 1).await?;
        deleting.extend(group.machines[..5].iter().map(String::as_str));
    }
    world.objects.assert_deleting(&deleting).await
}

/// From Cluster Autoscaler 1.36 on a Node that is being deleted may be named again: the call succeeds and deletes
/// nothing more.
pub(crate) async fn a_machine_that_is_going_already_is_not_counted_twice(world: &World) -> Result<()> {
    let group = Pool::new("workers").running(5).create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&group.id]).await?;

    provider.delete(&group.id, &group.nodes[..1]).await?;
    provider.delete(&group.id, &group.nodes[..1]).await?;
    assert_eq!(provider.target_size(&group.id).await?, 4);
    assert_scale(world, &group, 4).await?;

    // The same together with another one that isn't being deleted yet, and twice in one call.
    let again = [&group.nodes[..2], &group.nodes[1..2]].concat();
    provider.delete(&group.id, &again).await?;
    assert_eq!(provider.target_size(&group.id).await?, 3);
    assert_scale(world, &group, 3).await?;

    // The same twice concurrently.
    let twice = [&group.nodes[2..3]; 2].map(|nodes| provider.delete(&group.id, nodes));
    try_join_all(twice).await?;
    assert_scale(world, &group, 2).await?;
    world.objects.assert_deleting(&["workers-0", "workers-1", "workers-2"]).await
}

pub(crate) async fn below_the_minimum_nothing_is_deleted(world: &World) -> Result<()> {
    let group = Pool::new("workers").running(14).bounds(13, 20).create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&group.id]).await?;

    let refused = provider.delete(&group.id, &group.nodes[..3]).await;
    assert_refused(refused, Code::FailedPrecondition, &["11", "13"])?;
    assert_untouched(world, &group, 14).await?;

    // Of several concurrent deletes, as many succeed as the min size allows.
    let deletes = group.nodes[..4].iter();
    let deletes = deletes.map(|node| provider.delete(&group.id, std::slice::from_ref(node)));
    let answers = join_all(deletes).await;
    let accepted = answers.iter().position(Result::is_ok);
    let refused = answers.iter().filter(|answer| answer.is_err()).count();
    assert_eq!(refused, 3, "{answers:?}");
    assert_scale(world, &group, 13).await?;
    let deleting: Vec<&str> = accepted.map(|which| group.machines[which].as_str()).into_iter().collect();
    world.objects.assert_deleting(&deleting).await
}

/// The request is atomic.
pub(crate) async fn a_node_of_another_group_spoils_the_whole_request(world: &World) -> Result<()> {
    let group = Pool::new("workers").running(3).create(world).await?;
    let other = Pool::new("other").running(2).create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&group.id, &other.id]).await?;

    let mixed = [group.nodes[0].clone(), other.nodes[0].clone()];
    let stranger = [group.nodes[0].clone(), made_up_node("aws:///zone/i-0123456789abcdef0")];
    for nodes in [mixed, stranger] {
        let name = nodes[1].name.clone();
        let status = provider.delete(&group.id, &nodes).await.err();
        ensure!(
            status.as_ref().is_some_and(|status| {
                let code = status.code();
                let refused = [Code::InvalidArgument, Code::FailedPrecondition, Code::NotFound];
                refused.contains(&code) && status.message().contains(&name)
            }),
            "deleting {name} with the wrong group answers {status:?}"
        );
    }
    let unknown = "MachineDeployment/nowhere/nothing";
    let refused = provider.delete(unknown, &group.nodes[..1]).await;
    assert_refused(refused, Code::NotFound, &[unknown])?;
    assert_untouched(world, &group, 3).await?;
    assert_untouched(world, &other, 2).await
}

/// A replica without a Machine has nothing to delete.
pub(crate) async fn a_placeholder_lowers_the_size_and_deletes_nothing(world: &World) -> Result<()> {
    let group = Pool::new("workers").running(1).missing(2).create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&group.id]).await?;
    let placeholder = format!("replica-MachineDeployment-{}_workers-1", world.namespace);
    provider.delete(&group.id, &[made_up_node(&placeholder)]).await?;
    assert_eq!(provider.target_size(&group.id).await?, 2);
    assert_untouched(world, &group, 2).await
}

/// The caller gives up Machines whose Node never joins.
pub(crate) async fn a_machine_without_a_node_is_deleted_by_its_placeholder(world: &World) -> Result<()> {
    let group = Pool::new("workers").running(1).pending(2).create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&group.id]).await?;
    let placeholder = format!("pending-machine-{}_workers-2", world.namespace);
    provider.delete(&group.id, &[made_up_node(&placeholder)]).await?;
    assert_eq!(provider.target_size(&group.id).await?, 2);
    assert_scale(world, &group, 2).await?;
    world.objects.assert_deleting(&["workers-2"]).await
}

/// A provider with Machines for its pool deletes the marked one, as Cluster API's proposal for such pools requires.
pub(crate) async fn a_machine_of_a_pool_is_marked_and_the_pool_made_smaller(world: &World) -> Result<()> {
    let group = Pool::new("spot").of(Scalable::MachinePool).with_machines().running(3).create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&group.id]).await?;
    let found = provider.group_of(&group.nodes[1]).await?.map(|group| group.id);
    assert_eq!(found.as_deref(), Some(group.id.as_str()));
    provider.delete_with_retries(&group.id, &group.nodes[1..2]).await?;
    assert_eq!(provider.target_size(&group.id).await?, 2);
    assert_scale(world, &group, 2).await?;
    world.objects.assert_marked(&["spot-1"]).await?;

    // It is already being deleted: naming it again deletes nothing more.
    provider.delete_with_retries(&group.id, &group.nodes[1..2]).await?;
    assert_scale(world, &group, 2).await?;
    world.objects.assert_marked(&["spot-1"]).await
}

async fn assert_untouched(world: &World, group: &Group, size: i32) -> Result<()> {
    assert_scale(world, group, size).await?;
    world.objects.assert_deleting(&[]).await
}
