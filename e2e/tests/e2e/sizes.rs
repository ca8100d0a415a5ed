//! Sizes that are raised and lowered, as the API server stores them.

use anyhow::{Context, Result, ensure};
use e2e::{
    pool::{Group, Pool, Scalable},
    provider::assert_refused,
    wait::{SOON, eventually},
    world::World,
};
use futures::future::try_join_all;
use serde_json::json;
use tonic::Code;

/// The caller reads the size right after a write and drops its scale-up if it reads the old size.
pub(crate) async fn an_increase_is_in_scale_and_answered_at_once(world: &World) -> Result<()> {
    let kinds = [Scalable::MachineDeployment, Scalable::MachineSet, Scalable::MachinePool];
    let mut groups = Vec::new();
    for kind in kinds {
        let pool = Pool::new(&kind.kind().to_lowercase()).of(kind).running(2);
        groups.push(pool.create(world).await?);
    }
    let ids: Vec<&str> = groups.iter().map(|group| group.id.as_str()).collect();
    let provider = world.serve().await?;
    provider.shows(&ids).await?;
    for group in &groups {
        provider.increase(&group.id, 3).await?;
        assert_eq!(provider.target_size(&group.id).await?, 5, "{}", group.id);
        assert_scale(world, group, 5).await?;
        let instances = provider.instances(&group.id).await?;
        assert_eq!(instances.len(), 5, "placeholders of {}: {instances:?}", group.id);
    }
    Ok(())
}

/// A Scale's JSON omits a size of 0, so a precondition on that size needs another form.
pub(crate) async fn a_group_grows_from_zero(world: &World) -> Result<()> {
    let group = Pool::new("workers").sized().create(world).await?;
    let scale = world.objects.scale_object(group.kind, &group.name).await?;
    let replicas = scale.spec.as_ref().and_then(|spec| spec.replicas);
    assert_eq!(replicas, None, "the API server does not leave 0 out: {scale:?}");

    let provider = world.serve().await?;
    provider.shows(&[&group.id]).await?;
    assert_eq!(provider.target_size(&group.id).await?, 0);
    provider.increase(&group.id, 1).await?;
    assert_eq!(provider.target_size(&group.id).await?, 1);
    assert_scale(world, &group, 1).await?;

    // And back, as if no Machine had come.
    provider.decrease(&group.id, -1).await?;
    assert_eq!(provider.target_size(&group.id).await?, 0);
    assert_scale(world, &group, 0).await
}

/// The API server has carried out the write, and the connection breaks before its answer. The field manager of the size
/// identifies the writer, so the size isn't written again.
pub(crate) async fn a_size_whose_answer_is_lost_is_known_to_be_written(world: &World) -> Result<()> {
    let group = Pool::new("workers").sized().create(world).await?;
    let proxy = world.plane.proxy().await?;
    let provider = world.serve_through(&proxy).await?;
    provider.shows(&[&group.id]).await?;
    for (delta, size) in [(2, 2), (1, 3), (-3, 0)] {
        proxy.hold_writes();
        let write = async {
            if delta > 0 {
                provider.increase(&group.id, delta).await
            } else {
                provider.decrease(&group.id, delta).await
            }
        };
        let cut = async {
            eventually("the size in /scale", SOON, async || assert_scale(world, &group, size).await).await?;
            // Later connections must pass.
            proxy.cut_once();
            proxy.release_writes();
            anyhow::Ok(())
        };
        let (written, cut) = tokio::join!(write, cut);
        cut?;
        written.with_context(|| format!("the change by {delta}"))?;
        assert_scale(world, &group, size).await?;
        assert_eq!(provider.target_size(&group.id).await?, size);
    }
    Ok(())
}

/// Two increases add up, whether sequential or concurrent.
pub(crate) async fn increases_add_up(world: &World) -> Result<()> {
    let group = Pool::new("workers").running(1).create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&group.id]).await?;
    for expected in [2, 3, 4] {
        provider.increase(&group.id, 1).await?;
        assert_eq!(provider.target_size(&group.id).await?, expected);
    }
    try_join_all((0..4).map(|_| provider.increase(&group.id, 1))).await?;
    assert_eq!(provider.target_size(&group.id).await?, 8);
    assert_scale(world, &group, 8).await
}

/// Each refusal names the violated condition.
pub(crate) async fn a_wrong_increase_is_refused_and_changes_nothing(world: &World) -> Result<()> {
    let group = Pool::new("workers").running(2).bounds(1, 14).create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&group.id]).await?;
    let id = group.id.as_str();

    let too_big = provider.increase(id, 17).await;
    assert_refused(too_big, Code::FailedPrecondition, &["19", "14"])?;
    assert_refused(provider.increase(id, i32::MAX).await, Code::FailedPrecondition, &["14"])?;
    for delta in [0, -1, i32::MIN] {
        assert_refused(provider.increase(id, delta).await, Code::InvalidArgument, &[])?;
    }
    let unknown = [
        format!("{id}-not"),
        format!("MachineSet/{}/workers-set", world.namespace),
        "MachineDeployment/nowhere/nothing".to_owned(),
        "nothing".to_owned(),
        String::new(),
    ];
    for id in unknown {
        assert_refused(provider.increase(&id, 1).await, Code::NotFound, &[&id])?;
        assert_refused(provider.target_size(&id).await, Code::NotFound, &[&id])?;
    }
    assert_eq!(provider.target_size(id).await?, 2);
    assert_scale(world, &group, 2).await?;

    // The max size itself is allowed.
    provider.increase(id, 12).await?;
    assert_scale(world, &group, 14).await
}

/// The caller reverts a failed scale-up as a whole, even if most Nodes have joined.
pub(crate) async fn a_decrease_stops_at_the_machines_that_have_a_node(world: &World) -> Result<()> {
    let group = Pool::new("workers").running(2).missing(4).create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&group.id]).await?;

    provider.decrease(&group.id, -1).await?;
    assert_eq!(provider.target_size(&group.id).await?, 5);
    assert_scale(world, &group, 5).await?;

    provider.decrease(&group.id, -4).await?;
    assert_eq!(provider.target_size(&group.id).await?, 2);
    assert_scale(world, &group, 2).await?;

    // No replica without a Node is left.
    provider.decrease(&group.id, -1).await?;
    assert_eq!(provider.target_size(&group.id).await?, 2);
    assert_scale(world, &group, 2).await?;
    world.objects.assert_deleting(&[]).await
}

/// Machines without a Node go first, since the caller wants to revert their size.
pub(crate) async fn a_decrease_deletes_machines_that_have_no_node(world: &World) -> Result<()> {
    let group = Pool::new("workers").running(2).pending(2).create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&group.id]).await?;
    provider.decrease(&group.id, -3).await?;
    assert_eq!(provider.target_size(&group.id).await?, 2);
    assert_scale(world, &group, 2).await?;
    world.objects.assert_deleting(&["workers-2", "workers-3"]).await
}

/// The min size holds for replicas without a Node too: a larger decrease succeeds in part.
pub(crate) async fn a_decrease_stops_at_the_minimum(world: &World) -> Result<()> {
    let above = Pool::new("above").running(1).pending(1).missing(1).bounds(2, 10).create(world).await?;
    let at = Pool::new("at").running(1).pending(1).bounds(2, 10).create(world).await?;
    let below = Pool::new("below").running(1).missing(1).bounds(3, 10).create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&above.id, &at.id, &below.id]).await?;
    for _ in 0..2 {
        for group in [&above, &at, &below] {
            provider.decrease(&group.id, -2).await?;
            assert_scale(world, group, 2).await?;
            assert_eq!(provider.target_size(&group.id).await?, 2);
        }
    }
    Ok(())
}

/// The delta of a decrease must be negative, and its group must exist.
pub(crate) async fn a_wrong_decrease_is_refused_and_changes_nothing(world: &World) -> Result<()> {
    let group = Pool::new("workers").running(1).missing(2).create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&group.id]).await?;
    for delta in [0, 1, i32::MAX] {
        assert_refused(provider.decrease(&group.id, delta).await, Code::InvalidArgument, &[])?;
    }
    let unknown = "MachineDeployment/nowhere/nothing";
    assert_refused(provider.decrease(unknown, -1).await, Code::NotFound, &[unknown])?;
    assert_eq!(provider.target_size(&group.id).await?, 3);
    assert_scale(world, &group, 3).await
}

/// People and other controllers write sizes as well; the next increase starts from theirs.
pub(crate) async fn a_size_set_by_someone_else_is_answered(world: &World) -> Result<()> {
    let group = Pool::new("workers").running(1).create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&group.id]).await?;
    provider.increase(&group.id, 1).await?;

    let size = json!({ "spec": { "replicas": 6 } });
    world.objects.patch(group.kind, &group.name, size).await?;
    eventually("the size set by someone else", SOON, async || {
        let size = provider.target_size(&group.id).await?;
        ensure!(size == 6, "the size answered is {size}");
        Ok(())
    })
    .await?;
    provider.increase(&group.id, 2).await?;
    assert_scale(world, &group, 8).await
}

pub(crate) async fn assert_scale(world: &World, group: &Group, expected: i32) -> Result<()> {
    let size = world.objects.scale(group.kind, &group.name).await?;
    ensure!(size == expected, "/scale of {} is {size}, expected {expected}", group.id);
    Ok(())
}
