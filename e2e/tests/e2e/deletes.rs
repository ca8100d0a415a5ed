//! Deletes of Nodes: the named Machines are deleted, and the size is lowered by their number.

use anyhow::{Result, ensure};
use e2e::{
    control_plane::Answered,
    pool::{Group, Pool, Scalable},
    proto::ExternalGrpcNode,
    provider::{Provider, assert_refused, made_up_node},
    proxy::Proxy,
    wait::{SOON, eventually},
    world::World,
};
use serde_json::json;
use tonic::Code;

use crate::{refusals::is_untouched, sizes::assert_scale};

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

/// It is named by the instance id that it had before, and no watch has delivered that it joined: its delete is refused
/// with 409, for the version on which it was decided.
pub(crate) async fn one_that_joined_meanwhile_stays(world: &World) -> Result<()> {
    let (group, proxy) = (Pool::new("workers").running(1).pending(2).create(world).await?, world.plane.proxy().await?);
    let provider = behind(world, &proxy, &group).await?;
    join(world, &group.machines[1]).await?;
    let both = [1, 2].map(|index: usize| pending(world, &group.machines[index]));
    let refused = provider.delete(&group.id, &both[..1]).await;
    assert_refused(refused, Code::FailedPrecondition, &[&group.machines[1]])?;
    is_untouched(world, &provider, &group).await?;
    let requests = world.plane.answered(&world.user)?;
    let is_conflict = |it: &Answered| it.verb == "delete" && it.name == group.machines[1] && it.code == 409;
    ensure!(requests.iter().any(is_conflict), "no delete was refused with 409: {requests:#?}");
    // Another one that is named with it goes, which the answer says.
    let refused = provider.delete(&group.id, &both).await;
    assert_refused(refused, Code::Unavailable, &[&group.machines[1], "other Machines that were named with it go"])?;
    provider.delete(&group.id, &both[1..]).await?;
    assert_scale(world, &group, 2).await?;
    world.objects.assert_deleting(&[&group.machines[2]]).await
}

/// Starts a program that knows the group, but no later writes.
async fn behind(world: &World, proxy: &Proxy, group: &Group) -> Result<Provider> {
    let provider = world.serve_through(proxy).await?;
    provider.shows(&[&group.id]).await?;
    eventually("Machines without Node as instances", SOON, async || {
        let instances = provider.instances(&group.id).await?;
        let pending = instances.iter().filter(|instance| instance.id.starts_with("pending-machine-")).count();
        ensure!(pending == 2, "{instances:?}");
        Ok(())
    })
    .await?;
    proxy.hold_watches();
    Ok(provider)
}

/// Writes the fields of a Machine that Cluster API sets when its Node has joined.
async fn join(world: &World, machine: &str) -> Result<()> {
    let node = format!("{}-{machine}", world.cluster);
    world.objects.patch("Machine", machine, json!({ "spec": { "providerID": format!("e2e:///{node}") } })).await?;
    let status = json!({ "phase": "Running", "nodeRef": { "name": node } });
    world.objects.patch_status("Machine", machine, status).await
}

fn pending(world: &World, machine: &str) -> ExternalGrpcNode {
    made_up_node(&format!("pending-machine-{}_{machine}", world.namespace))
}
