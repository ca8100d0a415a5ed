//! Replicas without a Machine, named by their placeholders: each lowers the size once, and never takes a replica that
//! has become a Machine.

use anyhow::{Context, Result, ensure};
use e2e::{
    pool::{Group, Pool},
    proto::ExternalGrpcNode,
    provider::{Provider, assert_refused, made_up_node},
    proxy::Proxy,
    wait::{SOON, eventually},
    world::World,
};
use serde_json::json;
use tonic::Code;

use crate::sizes::assert_scale;

/// The API server has carried out the write, and the connection breaks before its answer. A retry detects that.
pub(crate) async fn a_size_whose_answer_is_lost_is_lowered_once(world: &World) -> Result<()> {
    is_lowered_once(world, false).await
}

/// The same while no watch has delivered the smaller size at the retry.
pub(crate) async fn a_size_whose_answer_is_lost_is_lowered_once_while_watches_are_behind(world: &World) -> Result<()> {
    is_lowered_once(world, true).await
}

async fn is_lowered_once(world: &World, behind: bool) -> Result<()> {
    let (group, proxy) = (Pool::new("workers").running(3).missing(2).create(world).await?, world.plane.proxy().await?);
    let provider = through(world, &proxy, &group, 2).await?;
    let both = [0, 1].map(|number| placeholder(world, number));
    if behind {
        proxy.hold_watches();
    }
    proxy.hold_writes();
    let cut = async {
        eventually("the size in /scale", SOON, async || assert_scale(world, &group, 3).await).await?;
        proxy.cut_once();
        proxy.release_writes();
        anyhow::Ok(())
    };
    let (deleted, cut) = tokio::join!(provider.delete(&group.id, &both), cut);
    cut?;
    assert_scale(world, &group, 3).await.context("after the first call")?;
    deleted.context("the first call")?;
    // By a caller that has got no answer either.
    let repeated = provider.delete(&group.id, &both).await;
    assert_scale(world, &group, 3).await.context("after the repeated call")?;
    repeated.context("the repeated call")?;
    is_left(world, &provider, &group, 3).await
}

/// If another writer has lowered the size by as much, nothing remains to be lowered.
pub(crate) async fn a_size_that_someone_else_has_lowered_meanwhile_stays(world: &World) -> Result<()> {
    let (group, proxy) = (Pool::new("workers").running(3).missing(2).create(world).await?, world.plane.proxy().await?);
    let provider = through(world, &proxy, &group, 2).await?;
    proxy.hold_watches();
    world.objects.patch(group.kind, &group.name, json!({ "spec": { "replicas": 3 } })).await?;
    provider.delete(&group.id, &[0, 1].map(|number| placeholder(world, number))).await?;
    is_left(world, &provider, &group, 3).await
}

/// If another writer has lowered the size in part, the rest is lowered.
pub(crate) async fn a_size_that_someone_else_has_lowered_in_part_is_lowered_by_the_rest(world: &World) -> Result<()> {
    let (group, proxy) = (Pool::new("workers").running(3).missing(2).create(world).await?, world.plane.proxy().await?);
    let provider = through(world, &proxy, &group, 2).await?;
    proxy.hold_watches();
    world.objects.patch(group.kind, &group.name, json!({ "spec": { "replicas": 4 } })).await?;
    provider.delete(&group.id, &[0, 1].map(|number| placeholder(world, number))).await?;
    is_left(world, &provider, &group, 3).await
}

/// A smaller size would take a Machine that is about to join.
pub(crate) async fn a_placeholder_that_has_become_a_machine_is_refused(world: &World) -> Result<()> {
    let (group, proxy) = (Pool::new("workers").running(2).missing(1).create(world).await?, world.plane.proxy().await?);
    let provider = through(world, &proxy, &group, 1).await?;
    proxy.hold_watches();
    group.add_pending(world, "workers-2").await?;
    let refused = provider.delete(&group.id, &[placeholder(world, 0)]).await;
    assert_refused(refused, Code::FailedPrecondition, &[])?;
    is_left(world, &provider, &group, 3).await
}

/// Starts a program that knows the group with its placeholders.
async fn through(world: &World, proxy: &Proxy, group: &Group, placeholders: usize) -> Result<Provider> {
    let provider = world.serve_through(proxy).await?;
    provider.shows(&[&group.id]).await?;
    eventually("placeholders", SOON, async || {
        let instances = provider.instances(&group.id).await?;
        let found = instances.iter().filter(|instance| instance.id.contains("replica-")).count();
        ensure!(found == placeholders, "{instances:?}");
        Ok(())
    })
    .await?;
    Ok(provider)
}

fn placeholder(world: &World, number: usize) -> ExternalGrpcNode {
    made_up_node(&format!("replica-MachineDeployment-{}_workers-{number}", world.namespace))
}

async fn is_left(world: &World, provider: &Provider, group: &Group, size: i32) -> Result<()> {
    assert_scale(world, group, size).await?;
    let answered = provider.target_size(&group.id).await?;
    ensure!(answered == size, "the size answered is {answered}");
    world.objects.assert_deleting(&[]).await
}
