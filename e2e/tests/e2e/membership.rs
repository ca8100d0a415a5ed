//! The set of groups changes for the caller only at a Refresh; their content is always live.

use anyhow::{Result, ensure};
use e2e::{
    pool::{Group, Pool},
    provider::{Caller, Provider, assert_refused},
    wait::{SOON, eventually},
    world::World,
};
use serde_json::json;
use tonic::Code;

const MIN: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size";

/// Invalid bounds remove a group, but not before the caller has fetched a new list.
pub(crate) async fn a_group_made_invalid_answers_until_the_next_refresh(world: &World) -> Result<()> {
    let other = Pool::new("other").running(1).create(world).await?;
    let group = Pool::new("workers").running(2).bounds(1, 5).create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&other.id, &group.id]).await?;

    let unreadable = json!({ MIN: "unreadable" });
    world.objects.annotate(group.kind, &group.name, unreadable).await?;
    all_is_seen(world, &provider, &other).await?;
    answers_as_before(&provider, &group).await?;

    provider.shows(&[&other.id]).await?;
    assert_eq!(provider.group_of(&group.nodes[0]).await?, None);
    assert_refused(provider.target_size(&group.id).await, Code::NotFound, &[&group.id])
}

/// An error for one group ends the caller's loop, so the group's last values are answered.
pub(crate) async fn a_deleted_group_answers_until_the_next_refresh(world: &World) -> Result<()> {
    let other = Pool::new("other").running(1).create(world).await?;
    let group = Pool::new("workers").running(2).bounds(1, 5).create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&other.id, &group.id]).await?;

    world.objects.delete(group.kind, &group.name).await?;
    all_is_seen(world, &provider, &other).await?;
    answers_as_before(&provider, &group).await?;

    provider.shows(&[&other.id]).await?;
    assert_refused(provider.target_size(&group.id).await, Code::NotFound, &[&group.id])?;
    assert_refused(provider.instances(&group.id).await, Code::NotFound, &[&group.id])
}

/// The caller removes the taints of an interrupted scale-down from its Nodes once, before its first Refresh.
pub(crate) async fn a_node_that_is_asked_about_before_the_first_refresh_has_its_group(world: &World) -> Result<()> {
    let group = Pool::new("workers").running(1).create(world).await?;
    let provider = world.serve().await?;
    let found = provider.group_of(&group.nodes[0]).await?.map(|group| group.id);
    assert_eq!(found.as_deref(), Some(group.id.as_str()));
    Ok(())
}

/// Its connection has moved to another copy, where no other caller is in a loop. Groups that it pins there last until
/// its next Refresh.
pub(crate) async fn a_caller_that_comes_in_mid_loop_meets_what_there_is(world: &World) -> Result<()> {
    let other = Pool::new("other").running(1).create(world).await?;
    let provider = world.serve().await?;
    let visitor = provider.another()?;
    visitor.shows(&[&other.id]).await?;
    let group = Pool::new("workers").running(1).create(world).await?;
    runs(&visitor, &group).await?;

    let moved = provider.another()?;
    assert_eq!(moved.group_of(&group.nodes[0]).await?, None, "the visitor may be in its loop");
    drop(visitor);
    eventually("the new group's Node", SOON, async || {
        let found = moved.group_of(&group.nodes[0]).await?;
        ensure!(found.is_some_and(|found| found.id == group.id), "it has none");
        Ok(())
    })
    .await?;
    let pinned = Pool::new("later").running(1).create(world).await?;
    runs(&moved, &pinned).await?;
    assert_eq!(moved.group_of(&pinned.nodes[0]).await?, None, "it is in its loop now");
    moved.increase(&group.id, 1).await?;
    Ok(())
}

/// The caller would look up a group that it doesn't know, and fail.
pub(crate) async fn a_new_group_is_named_by_no_answer_before_a_refresh(world: &World) -> Result<()> {
    let other = Pool::new("other").running(1).create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&other.id]).await?;

    let group = Pool::new("workers").running(1).create(world).await?;
    all_is_seen(world, &provider, &other).await?;
    let listed = provider.groups().await?;
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(provider.group_of(&group.nodes[0]).await?, None);

    provider.shows(&[&other.id, &group.id]).await?;
    eventually("group of the new Node", SOON, async || {
        let found = provider.group_of(&group.nodes[0]).await?;
        ensure!(found.is_some_and(|found| found.id == group.id));
        Ok(())
    })
    .await
}

/// Waits until the Node of a group is known; the group answers by its id before it is listed.
async fn runs(caller: &Caller, group: &Group) -> Result<()> {
    eventually("a running instance", SOON, async || {
        let instances = caller.instances(&group.id).await?;
        ensure!(instances.iter().any(|it| it.id == group.nodes[0].provider_id), "they are {instances:?}");
        Ok(())
    })
    .await
}

/// Changes the size of another group of the same kind and waits until it is answered: the same watch has delivered all
/// earlier changes by then.
async fn all_is_seen(world: &World, provider: &Provider, other: &Group) -> Result<()> {
    let size = json!({ "spec": { "replicas": 7 } });
    world.objects.patch(other.kind, &other.name, size).await?;
    eventually("live size", SOON, async || {
        let size = provider.target_size(&other.id).await?;
        ensure!(size == 7, "the size answered is {size}");
        Ok(())
    })
    .await
}

async fn answers_as_before(provider: &Provider, group: &Group) -> Result<()> {
    let listed = provider.groups().await?;
    let pinned = listed.iter().find(|listed| listed.id == group.id);
    ensure!(
        pinned.is_some_and(|pinned| (pinned.min_size, pinned.max_size) == (1, 5)),
        "{} is not listed as it was: {listed:?}",
        group.id
    );
    let found = provider.group_of(&group.nodes[0]).await?;
    ensure!(
        found.as_ref().is_some_and(|found| found.id == group.id && found.min_size == 1 && found.max_size == 5),
        "the Node's group is {found:?}"
    );
    assert_eq!(provider.target_size(&group.id).await?, 2);
    let instances = provider.instances(&group.id).await?;
    assert_eq!(instances.len(), 2, "{instances:?}");
    Ok(())
}
