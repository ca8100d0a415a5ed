//! Two copies of the program on one API server: each named Node is deleted once, even if one copy hasn't seen the
//! other's writes.

use anyhow::{Result, ensure};
use e2e::{
    audit::answered,
    pool::{Pool, Scalable},
    world::World,
};
use futures::future::try_join_all;

use crate::sizes::assert_scale;

const KINDS: [Scalable; 2] = [Scalable::MachineDeployment, Scalable::MachineSet];

/// The size of the group isn't the one that the second copy knows: its dry run fails with 422, and it decides again.
pub(crate) async fn a_copy_that_is_behind_adds_to_what_the_other_has_deleted(world: &World) -> Result<()> {
    let mut groups = Vec::new();
    for kind in KINDS {
        groups.push(Pool::new(&kind.kind().to_lowercase()).of(kind).running(6).create(world).await?);
    }
    let ids: Vec<&str> = groups.iter().map(|group| group.id.as_str()).collect();
    let proxy = world.plane.proxy().await?;
    let ahead = world.serve().await?;
    let behind = world.serve_through(&proxy).await?;
    ahead.shows(&ids).await?;
    behind.shows(&ids).await?;
    proxy.hold_watches();
    for group in &groups {
        ahead.delete(&group.id, &group.nodes[..1]).await?;
        behind.delete(&group.id, &group.nodes[1..2]).await?;
        // Each call names a Node whose deletion the other copy has already done.
        behind.delete(&group.id, &group.nodes[..1]).await?;
        ahead.delete_with_retries(&group.id, &group.nodes[1..2]).await?;
        assert_scale(world, group, 4).await?;
        assert_eq!(behind.target_size(&group.id).await?, 4);
    }
    let deleting = groups.iter().flat_map(|group| &group.machines[..2]).map(String::as_str);
    world.objects.assert_deleting(&deleting.collect::<Vec<_>>()).await?;
    let requests = answered(world, &world.user)?;
    for resource in ["machinedeployments/scale", "machinesets/scale"] {
        let is_conflict = requests.iter().any(|it| it.verb == "patch" && it.resource == resource && it.code == 422);
        ensure!(is_conflict, "no write of a size was refused with 422 for {resource}: {requests:#?}");
    }
    Ok(())
}

/// As many concurrent calls as Cluster Autoscaler makes, to each of two copies.
pub(crate) async fn nodes_named_to_both_copies_at_once_are_counted_once(world: &World) -> Result<()> {
    let mut groups = Vec::new();
    for kind in KINDS {
        groups.push(Pool::new(&kind.kind().to_lowercase()).of(kind).running(6).create(world).await?);
    }
    let ids: Vec<&str> = groups.iter().map(|group| group.id.as_str()).collect();
    let copies = [world.serve().await?, world.serve().await?];
    for copy in &copies {
        copy.shows(&ids).await?;
    }
    let mut calls = Vec::new();
    for group in &groups {
        for node in &group.nodes[..5] {
            for copy in &copies {
                calls.push(copy.delete_with_retries(&group.id, std::slice::from_ref(node)));
            }
        }
    }
    try_join_all(calls).await?;
    let deleting = groups.iter().flat_map(|group| &group.machines[..5]).map(String::as_str);
    world.objects.assert_deleting(&deleting.collect::<Vec<_>>()).await?;
    for group in &groups {
        assert_scale(world, group, 1).await?;
    }
    Ok(())
}

/// Two increases add up, even by two copies.
pub(crate) async fn increases_by_both_copies_at_once_add_up(world: &World) -> Result<()> {
    let group = Pool::new("workers").running(1).bounds(0, 30).create(world).await?;
    let copies = [world.serve().await?, world.serve().await?];
    for copy in &copies {
        copy.shows(&[&group.id]).await?;
    }
    let increase = async |number: usize| {
        // A conflict with the other copy changes nothing, so the call may be repeated.
        e2e::wait::eventually("an increase", e2e::wait::SOON, async || {
            copies[number % 2].increase(&group.id, 1).await.map_err(|status| match status.code() {
                tonic::Code::Aborted => status.into(),
                _ => e2e::wait::Permanent(status.to_string()).into(),
            })
        })
        .await
    };
    try_join_all((0..10).map(increase)).await?;
    assert_scale(world, &group, 11).await
}
