//! The namespaces and objects that an informer covers.

use anyhow::{Result, ensure};
use e2e::{
    informer::Scene,
    wait::{SOON, eventually},
};
use shared_informer::{ObjectKey, Query};

/// Each namespace has a watch of its own, and no other namespace is watched.
pub(crate) async fn one_informer_follows_several_namespaces(scene: &Scene) -> Result<()> {
    let third = "default";
    scene.create("a").await?;
    scene.create_in(&scene.neighbour, "b").await?;
    scene.create_in(third, "c").await?;
    let namespaces = [scene.namespace.as_str(), scene.neighbour.as_str()];
    let (informer, story) = scene.follow(Query::namespaced(scene.kind.clone(), namespaces)).await?;
    story.is_in_any_order(&["a was there", "b was there", "synced"]).await?;
    scene.create_in(third, "d").await?;
    scene.create_in(&scene.neighbour, "e").await?;
    story.is_in_any_order(&["a was there", "b was there", "synced", "e came"]).await?;
    scene.delete("a").await?;
    story.is_in_any_order(&["a was there", "b was there", "synced", "e came", "a went"]).await?;
    let neighbour = scene.neighbour.as_str();
    let expected = [ObjectKey::new(neighbour, "b"), ObjectKey::new(neighbour, "e")];
    ensure!(informer.store().keys() == expected, "it holds {:?}", informer.store().keys());
    Ok(())
}

/// By the events of the server, which knows the former selection.
pub(crate) async fn what_comes_to_match_a_label_selector_is_added_and_what_no_longer_does_is_deleted(
    scene: &Scene,
) -> Result<()> {
    for name in ["a", "b"] {
        scene.create(name).await?;
    }
    scene.label("a", "web").await?;
    let (_informer, story) = scene.follow(scene.all().labels("pool=web")).await?;
    scene.label("b", "web").await?;
    story.is(&["a was there", "synced", "b came"]).await?;
    scene.label("a", "db").await?;
    story.is(&["a was there", "synced", "b came", "a went"]).await?;
    // With its former uid.
    scene.label("a", "web").await?;
    story.is(&["a was there", "synced", "b came", "a went", "a came"]).await
}

/// The others are neither listed nor watched.
pub(crate) async fn a_field_selector_narrows_to_one_object(scene: &Scene) -> Result<()> {
    for name in ["a", "b"] {
        scene.create(name).await?;
    }
    let (informer, story) = scene.follow(scene.all().fields("metadata.name=b")).await?;
    scene.resize("a", 2).await?;
    scene.create("c").await?;
    scene.resize("b", 3).await?;
    story.is(&["b was there", "synced", "b has size 3"]).await?;
    ensure!(informer.store().len() == 1, "it holds {:?}", informer.store().keys());
    Ok(())
}

/// The handler receives deletes of all objects, and the informer reports the reason, until the kind is back.
pub(crate) async fn a_kind_that_is_removed_is_reported_and_found_when_it_is_installed_again(
    scene: &Scene,
) -> Result<()> {
    scene.create("old").await?;
    let (informer, story) = scene.follow(scene.all()).await?;
    // By an event of the watch: one that begins after the removal of the kind delivers nothing.
    scene.resize("old", 2).await?;
    story.is(&["old was there", "synced", "old has size 2"]).await?;
    scene.uninstall().await?;
    story.is(&["old was there", "synced", "old has size 2", "old went"]).await?;
    eventually("a reason", SOON, async || {
        let reason = informer.status().reason.unwrap_or_default();
        ensure!(reason.starts_with("not found"), "the reason is {reason:?}");
        Ok(())
    })
    .await?;
    scene.install().await?;
    scene.create("new").await?;
    story.is(&["old was there", "synced", "old has size 2", "old went", "new came"]).await?;
    eventually("a cure", SOON, async || {
        ensure!(informer.status().broken_since.is_none(), "it is broken: {:?}", informer.status().reason);
        Ok(())
    })
    .await
}
