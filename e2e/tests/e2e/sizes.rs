//! Sizes that are raised and lowered, as the API server stores them, and those that don't last or have no effect.

use anyhow::{Context, Result, ensure};
use e2e::{
    pool::{Group, Pool, Scalable},
    provider::{Provider, assert_refused},
    wait::{SOON, eventually},
    world::World,
};
use kube::api::DynamicObject;
use serde_json::json;
use tonic::Code;

use crate::refusals::are_held;

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

pub(crate) async fn assert_scale(world: &World, group: &Group, expected: i32) -> Result<()> {
    let size = world.objects.scale(group.kind, &group.name).await?;
    ensure!(size == expected, "/scale of {} is {size}, expected {expected}", group.id);
    Ok(())
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

const PUT_BACK: &str = "capi_autoscaler_provider_sizes_put_back_total";

/// A single revert doesn't count, nor does another size. Afterwards increases are refused, so that Cluster Autoscaler tries
/// other groups.
pub(crate) async fn a_manager_that_keeps_putting_a_size_back_is_named(world: &World) -> Result<()> {
    let group = Pool::new("workers").running(3).create(world).await?;
    let provider = world.serve().await?;
    provider.shows(&[&group.id]).await?;
    for (manager, size) in [("kubectl", 2), ("argocd-controller", 3)] {
        provider.increase(&group.id, 2).await?;
        put_back(world, &provider, &group, manager, size).await?;
    }
    let (_, metrics) = provider.http("/metrics").await?;
    ensure!(!metrics.lines().any(|line| line.starts_with(PUT_BACK) && !line.ends_with(" 0")), "{metrics}");

    provider.increase(&group.id, 2).await?;
    put_back(world, &provider, &group, "argocd-controller", 3).await?;
    event_says(world, &group, "SizePutBack", "field manager argocd-controller keeps putting the size back: 5→3")
        .await?;
    let expected = format!("{PUT_BACK}{{manager=\"argocd-controller\"}} 1");
    eventually("the metric", SOON, async || {
        let (_, metrics) = provider.http("/metrics").await?;
        ensure!(metrics.lines().any(|line| line == expected), "{metrics}");
        Ok(())
    })
    .await?;
    let refused = provider.increase(&group.id, 1).await;
    assert_refused(refused, Code::FailedPrecondition, &["argocd-controller keeps putting the size back"])?;
    assert_scale(world, &group, 3).await?;
    ensure!(are_held(&provider, &group).await?, "the options let Nodes be chosen");
    Ok(())
}

/// Writes a size as another writer, and waits until the program has identified it.
async fn put_back(world: &World, provider: &Provider, group: &Group, manager: &str, size: i32) -> Result<()> {
    let patch = json!({ "spec": { "replicas": size } });
    world.objects.patch_as(manager, group.kind, &group.name, patch).await?;
    eventually(&format!("the size {size}"), SOON, async || {
        let answered = provider.target_size(&group.id).await?;
        ensure!(answered == size, "it is {answered}");
        let reads = world.plane.answered(&world.user)?;
        let last = reads.iter().rev().find(|it| it.name == group.name && matches!(it.verb.as_str(), "get" | "patch"));
        ensure!(last.is_some_and(|last| last.verb == "get"), "the object wasn't read since the size was written");
        Ok(())
    })
    .await
}

/// Waits for an Event about the group that contains these words.
async fn event_says(world: &World, group: &Group, reason: &str, words: &str) -> Result<()> {
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
