//! A Cluster that moves from a release of its own to a fleet and back, by the steps of `docs/how-to/fleet.md`. A
//! deletion is under way each time.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use e2e::{
    fleet::Authority,
    provider::{Caller, Provider, assert_refused},
    proxy::Proxy,
    wait::{SOON, eventually},
    world::World,
};
use tokio::task::JoinHandle;
use tonic::{Code, Status};

use crate::{fleets::Member, sizes::assert_scale};

/// The bounds and target size of each group, by its id.
type Groups = BTreeMap<String, (i32, i32, i32)>;

async fn groups_of(caller: &Caller) -> Result<Groups> {
    caller.refresh().await?;
    let mut groups = Groups::new();
    for group in caller.groups().await? {
        let size = caller.target_size(&group.id).await?;
        groups.insert(group.id, (group.min_size, group.max_size, size));
    }
    Ok(groups)
}

/// Begins to delete a running Node, and returns the call when its Machine is being deleted. The answer to the program's
/// delete is held back, so that the size isn't lowered yet.
async fn begin_deletion(
    member: &Member<'_>,
    proxy: &Proxy,
    caller: &Caller,
    node: usize,
) -> Result<JoinHandle<Result<(), Status>>> {
    proxy.hold_deletes();
    let (caller, group) = (caller.clone(), member.running.id.clone());
    let nodes = vec![member.running.nodes[node].clone()];
    let deletion = tokio::spawn(async move { caller.delete(&group, &nodes).await });
    let machine = &member.running.machines[node];
    eventually("a begun deletion", SOON, async || {
        let object = member.world.objects.get("Machine", machine).await?;
        ensure!(object.metadata.deletion_timestamp.is_some(), "{machine} isn't being deleted");
        Ok(())
    })
    .await?;
    ensure!(!deletion.is_finished(), "the deletion has ended without the answer to its delete");
    Ok(deletion)
}

/// Fails unless exactly the first Nodes of the running group are deleted, each once, and both programs say so.
async fn are_deleted_once(member: &Member<'_>, deleted: usize, callers: &[&Caller]) -> Result<()> {
    are_deleted(member, deleted, member.running.nodes.len() - deleted, callers).await
}

/// The same for a group that has this size then.
async fn are_deleted(member: &Member<'_>, deleted: usize, size: usize, callers: &[&Caller]) -> Result<()> {
    let left = i32::try_from(size)?;
    // The answer to a caller may have been too late.
    eventually("the size", SOON, async || assert_scale(member.world, &member.running, left).await).await?;
    let machines: Vec<&str> = member.running.machines[..deleted].iter().map(String::as_str).collect();
    member.world.objects.assert_deleting(&machines).await?;
    let expected: Groups =
        [(member.running.id.clone(), (0, 10, left)), (member.empty.id.clone(), (0, 10, 0))].into_iter().collect();
    eventually("the same groups", SOON, async || {
        for caller in callers {
            let groups = groups_of(caller).await?;
            ensure!(groups == expected, "groups are {groups:?}, expected {expected:?}");
        }
        Ok(())
    })
    .await
}

/// Ends a program as an uninstallation does. It finishes its writes.
async fn uninstall(mut release: Provider) -> Result<()> {
    release.process.terminate()?;
    let status = release.process.ended(SOON).await?;
    ensure!(status.success(), "it ended with {status}");
    Ok(())
}

async fn opts_out(member: &Member<'_>, caller: &Caller) -> Result<()> {
    member.label(None).await?;
    eventually("the opt-out", SOON, async || {
        assert_refused(caller.refresh().await, Code::PermissionDenied, &["--fleet-selector"])
    })
    .await
}

async fn grows_and_shrinks(member: &Member<'_>, caller: &Caller) -> Result<()> {
    caller.increase(&member.empty.id, 1).await?;
    assert_scale(member.world, &member.empty, 1).await?;
    caller.decrease(&member.empty.id, -1).await?;
    assert_scale(member.world, &member.empty, 0).await
}

pub(crate) async fn a_cluster_moves_over_and_back_with_deletions_under_way(world: &World) -> Result<()> {
    let fleet = world.namespace.as_str();
    let member = Member::create(world, &world.plane, fleet, 4).await?;
    member.label(None).await?;
    let (of_own, of_fleet) = (world.plane.proxy().await?, world.plane.proxy().await?);
    let own = world.only_cluster();
    let mut old = world.spawn_through(&of_own, &[&own])?;
    old.ready().await?;
    are_deleted_once(&member, 0, &[&old]).await?;

    // 1. The fleet's release. It doesn't serve the Cluster yet.
    let authority = Authority::new()?;
    let flags = authority.flags(&world.plane.directory().join(fleet), &format!("fleet={fleet}"))?;
    let mut new = world.spawn_through(&of_fleet, &flags.iter().map(String::as_str).collect::<Vec<_>>())?;
    new.ready().await?;
    let caller = member.caller(&authority, &new)?;
    assert_refused(caller.refresh().await, Code::PermissionDenied, &[])?;
    let first = begin_deletion(&member, &of_own, &old, 0).await?;

    // 2. The Cluster's certificate and label. 3. Its autoscaler calls the fleet, and names the Node again.
    member.label(Some(fleet)).await?;
    caller.shows(&[&member.running.id, &member.empty.id]).await?;
    caller.delete_with_retries(&member.running.id, &member.running.nodes[..1]).await?;
    // Whoever has deleted the Machine lowers the size.
    assert_scale(world, &member.running, 4).await?;
    of_own.release_deletes();
    // Its answer comes after the deadline of the call, or says the same.
    let answer = first.await?;
    ensure!(answer.is_ok() || answer.as_ref().is_err_and(is_late), "the deletion was answered {answer:?}");
    are_deleted_once(&member, 1, &[&old, &caller]).await?;

    // 4. The fleet scales, and the old release goes.
    grows_and_shrinks(&member, &caller).await?;
    uninstall(old).await?;
    are_deleted_once(&member, 1, &[&caller]).await?;

    // Back: first the old release again, then its autoscaler, which names what the fleet has begun to delete.
    let mut old = world.spawn_through(&of_own, &[&own])?;
    old.ready().await?;
    are_deleted_once(&member, 1, &[&old, &caller]).await?;
    let second = begin_deletion(&member, &of_fleet, &caller, 1).await?;
    old.delete_with_retries(&member.running.id, &member.running.nodes[1..2]).await?;
    assert_scale(world, &member.running, 3).await?;
    of_fleet.release_deletes();
    let answer = second.await?;
    ensure!(answer.is_ok() || answer.as_ref().is_err_and(is_late), "the deletion was answered {answer:?}");
    are_deleted_once(&member, 2, &[&old, &caller]).await?;

    // Then the label and the certificate go.
    opts_out(&member, &caller).await?;
    uninstall(new).await.context("the fleet")?;
    are_deleted_once(&member, 2, &[&old]).await?;
    grows_and_shrinks(&member, &old).await?;
    are_deleted_once(&member, 2, &[&old]).await
}

fn is_late(status: &Status) -> bool {
    [Code::Cancelled, Code::DeadlineExceeded, Code::Unavailable].contains(&status.code())
}
