//! Delayed watches: the program's own writes are visible all the same, and other writers' changes aren't overwritten.

use anyhow::{Result, ensure};
use e2e::{
    pool::Pool,
    provider::assert_refused,
    wait::{SOON, eventually},
    world::World,
};
use serde_json::json;
use tonic::Code;

use crate::sizes::assert_scale;

/// The caller reads the size within a millisecond, and relies on its own increase.
pub(crate) async fn an_own_write_is_answered_before_the_watch_reports_it(world: &World) -> Result<()> {
    let group = Pool::new("workers").running(3).create(world).await?;
    let proxy = world.plane.proxy().await?;
    let provider = world.serve_through(&proxy).await?;
    provider.shows(&[&group.id]).await?;

    proxy.hold_watches();
    provider.increase(&group.id, 2).await?;
    assert_eq!(provider.target_size(&group.id).await?, 5);
    let instances = provider.instances(&group.id).await?;
    assert_eq!(instances.len(), 5, "{instances:?}");
    provider.delete(&group.id, &group.nodes[..1]).await?;
    assert_eq!(provider.target_size(&group.id).await?, 4);
    provider.decrease(&group.id, -1).await?;
    assert_eq!(provider.target_size(&group.id).await?, 3);
    // The delayed sizes are older, and must not count as changes.
    proxy.release_watches();
    let size = json!({ "spec": { "replicas": 9 } });
    for _ in 0..50 {
        assert_eq!(provider.target_size(&group.id).await?, 3);
    }
    world.objects.patch(group.kind, &group.name, size).await?;
    eventually("the size set by someone else", SOON, async || {
        let size = provider.target_size(&group.id).await?;
        ensure!(size == 9, "the size answered is {size}");
        Ok(())
    })
    .await
}

/// An increase starts from the API server's size, whatever the watch has delivered.
pub(crate) async fn a_size_set_by_someone_else_is_not_written_over(world: &World) -> Result<()> {
    let group = Pool::new("workers").running(3).create(world).await?;
    let empty = Pool::new("empty").sized().create(world).await?;
    let proxy = world.plane.proxy().await?;
    let provider = world.serve_through(&proxy).await?;
    provider.shows(&[&group.id, &empty.id]).await?;

    proxy.hold_watches();
    for group in [&group, &empty] {
        let size = json!({ "spec": { "replicas": 8 } });
        world.objects.patch(group.kind, &group.name, size).await?;
        provider.increase(&group.id, 1).await?;
        assert_scale(world, group, 9).await?;
        assert_eq!(provider.target_size(&group.id).await?, 9);
        assert_refused(provider.increase(&group.id, 2).await, Code::FailedPrecondition, &["11", "10"])?;
    }
    let zero = json!({ "spec": { "replicas": 0 } });
    world.objects.patch(empty.kind, &empty.name, zero).await?;
    provider.increase(&empty.id, 1).await?;
    assert_scale(world, &empty, 1).await
}

/// Neither a repeated delete nor the min size may be judged by an index that lacks the last delete.
pub(crate) async fn deletes_are_judged_by_what_was_written(world: &World) -> Result<()> {
    let group = Pool::new("workers").running(4).bounds(2, 10).create(world).await?;
    let proxy = world.plane.proxy().await?;
    let provider = world.serve_through(&proxy).await?;
    provider.shows(&[&group.id]).await?;

    proxy.hold_watches();
    provider.delete(&group.id, &group.nodes[..1]).await?;
    provider.delete(&group.id, &group.nodes[..1]).await?;
    assert_scale(world, &group, 3).await?;
    provider.delete(&group.id, &group.nodes[1..2]).await?;
    assert_scale(world, &group, 2).await?;
    let refused = provider.delete(&group.id, &group.nodes[2..3]).await;
    assert_refused(refused, Code::FailedPrecondition, &["1", "2"])?;
    assert_scale(world, &group, 2).await?;
    world.objects.assert_deleting(&["workers-0", "workers-1"]).await?;

    // Another user has lowered the size to the min size, and the watch hasn't delivered that yet.
    let other = Pool::new("other").running(3).bounds(2, 10).create(world).await?;
    proxy.release_watches();
    provider.shows(&[&group.id, &other.id]).await?;
    eventually("the Nodes of the other group", SOON, async || {
        let instances = provider.instances(&other.id).await?;
        ensure!(instances.iter().all(|instance| instance.id.starts_with("e2e://")), "{instances:?}");
        Ok(())
    })
    .await?;
    proxy.hold_watches();
    world.objects.patch(other.kind, &other.name, json!({ "spec": { "replicas": 2 } })).await?;
    let refused = provider.delete(&other.id, &other.nodes[..1]).await;
    assert_refused(refused, Code::FailedPrecondition, &["1", "2"])?;
    assert_scale(world, &other, 2).await?;
    world.objects.assert_deleting(&["workers-0", "workers-1"]).await
}
