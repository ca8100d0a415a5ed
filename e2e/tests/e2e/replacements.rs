//! Machines that never became a Node, at the min size: one of them is replaced, if it is still as it was seen.

use anyhow::{Result, ensure};
use e2e::{
    audit::answered,
    pool::{Group, Pool},
    provider::{assert_refused, made_up_node},
    wait::{SOON, eventually},
    world::World,
};
use kube::api::DynamicObject;
use serde_json::{Value, json};
use tonic::Code;

use crate::{joined::join, sizes::assert_scale};

/// It is deleted, the size stays, and both are reported by Events.
pub(crate) async fn one_machine_is_replaced_at_the_minimum_and_reported(world: &World) -> Result<()> {
    let group = Pool::new("workers").running(1).pending(2).bounds(3, 5).create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&group.id]).await?;
    provider.delete(&group.id, &[pending(world, "workers-1")]).await?;
    ensure!(is_deleting(world, "workers-1").await?, "workers-1 isn't being deleted");

    // It is already being deleted; the next one has to wait.
    provider.delete(&group.id, &[pending(world, "workers-1")]).await?;
    let refused = provider.delete(&group.id, &[pending(world, "workers-2")]).await;
    assert_refused(refused, Code::FailedPrecondition, &["3", "not long ago"])?;
    ensure!(!is_deleting(world, "workers-2").await?, "workers-2 is being deleted");
    assert_scale(world, &group, 3).await?;
    world.objects.assert_deleting(&["workers-1"]).await?;
    event_says(world, &group, "ReplacedFailedMachine", "workers-1").await?;
    event_says(world, &group, "ScaleDownRefused", "not long ago").await
}

/// Events report all other writes and refusals as well, on each kind of group.
pub(crate) async fn sizes_written_and_refused_are_reported_by_events(world: &World) -> Result<()> {
    let group = Pool::new("workers").running(3).bounds(3, 5).create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&group.id]).await?;
    provider.increase(&group.id, 1).await?;
    event_says(world, &group, "ScaledUp", "3→4").await?;
    assert_refused(provider.increase(&group.id, 2).await, Code::FailedPrecondition, &["6", "5"])?;
    event_says(world, &group, "ScaleUpRefused", "6").await?;
    provider.delete(&group.id, &group.nodes[..1]).await?;
    event_says(world, &group, "ScaledDown", "4→3: Machine workers-0").await?;
    assert_refused(provider.delete(&group.id, &group.nodes[1..2]).await, Code::FailedPrecondition, &["2", "3"])?;
    event_says(world, &group, "ScaleDownRefused", "2").await
}

/// 409: no watch has delivered yet that it joined, or that another one has its name.
pub(crate) async fn a_machine_that_is_another_by_now_is_not_replaced(world: &World) -> Result<()> {
    let joined = Pool::new("joined").pending(1).bounds(1, 5).create(world).await?;
    let anew = Pool::new("anew").pending(1).bounds(1, 5).create(world).await?;
    let proxy = world.plane.proxy().await?;
    let provider = world.serve_through(&proxy).await?;
    provider.shows(&[&joined.id, &anew.id]).await?;
    eventually("the Machines as instances", SOON, async || {
        for group in [&joined, &anew] {
            let instances = provider.instances(&group.id).await?;
            ensure!(instances.iter().all(|it| it.id.starts_with("pending-machine-")), "{instances:?}");
        }
        Ok(())
    })
    .await?;
    proxy.hold_watches();
    join(world, "joined-0").await?;
    make_anew(world, "anew-0").await?;
    let refused = provider.delete(&joined.id, &[pending(world, "joined-0")]).await;
    assert_refused(refused, Code::FailedPrecondition, &["1"])?;
    let deleted = |machine: &str| {
        let requests = answered(world, &world.user)?;
        let codes = requests.iter().filter(|it| it.verb == "delete" && it.name == machine).map(|it| it.code);
        anyhow::Ok(codes.collect::<Vec<_>>())
    };
    ensure!(deleted("joined-0")?.contains(&409), "no delete of joined-0 was refused with 409");
    // It is read before it is given up: the named one is gone, and needs nothing.
    provider.delete(&anew.id, &[pending(world, "anew-0")]).await?;
    ensure!(deleted("anew-0")?.is_empty(), "a delete of anew-0 was tried");
    for (group, machine) in [(&joined, "joined-0"), (&anew, "anew-0")] {
        ensure!(!is_deleting(world, machine).await?, "{machine} is being deleted");
        assert_scale(world, group, 1).await?;
    }

    // The next loop's call sees the current Machine.
    proxy.release_watches();
    eventually("the delete of what is there now", SOON, async || {
        provider.delete(&anew.id, &[pending(world, "anew-0")]).await?;
        ensure!(is_deleting(world, "anew-0").await?, "anew-0 isn't being deleted");
        Ok(())
    })
    .await?;
    let refused = provider.delete(&joined.id, &[pending(world, "joined-0")]).await;
    assert_refused(refused, Code::FailedPrecondition, &[])?;
    ensure!(!is_deleting(world, "joined-0").await?, "joined-0 is being deleted");
    Ok(())
}

/// Deletes a Machine, removing its finalizer, and creates another one of the same name.
async fn make_anew(world: &World, name: &str) -> Result<()> {
    let old = world.objects.get("Machine", name).await?;
    world.objects.patch("Machine", name, json!({ "metadata": { "finalizers": null } })).await?;
    world.objects.delete("Machine", name).await?;
    let mut new: Value = serde_json::to_value(&old)?;
    let metadata = &old.metadata;
    new["metadata"] = json!({
        "name": name,
        "labels": metadata.labels,
        "ownerReferences": metadata.owner_references,
        "finalizers": metadata.finalizers,
    });
    world.objects.create(new).await?;
    Ok(())
}

fn pending(world: &World, machine: &str) -> e2e::proto::ExternalGrpcNode {
    made_up_node(&format!("pending-machine-{}_{machine}", world.namespace))
}

async fn is_deleting(world: &World, machine: &str) -> Result<bool> {
    Ok(world.objects.get("Machine", machine).await?.metadata.deletion_timestamp.is_some())
}

/// Waits for an Event about the group that contains these words.
pub(crate) async fn event_says(world: &World, group: &Group, reason: &str, words: &str) -> Result<()> {
    eventually(&format!("an Event {reason} that says {words:?}"), SOON, async || {
        let events = world.objects.list("Event", "").await?;
        let is_it = |event: &DynamicObject| {
            let regarding = &event.data["regarding"];
            event.data["reason"] == reason
                && regarding["kind"] == group.kind
                && regarding["name"] == *group.name
                && event.data["note"].as_str().is_some_and(|note| note.contains(words))
        };
        ensure!(events.iter().any(is_it), "Events are {events:#?}");
        Ok(())
    })
    .await
}
