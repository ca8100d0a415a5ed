//! The events that watches deliver, and the resumption of watches.

use anyhow::{Result, ensure};
use e2e::{
    informer::Scene,
    wait::{SOON, eventually},
};

/// An object that is created again under its name is another one.
pub(crate) async fn every_change_is_reported(scene: &Scene) -> Result<()> {
    let (informer, story) = scene.follow(scene.all()).await?;
    scene.create("a").await?;
    story.is(&["synced", "a came"]).await?;
    scene.resize("a", 2).await?;
    story.is(&["synced", "a came", "a has size 2"]).await?;
    scene.delete("a").await?;
    story.is(&["synced", "a came", "a has size 2", "a went"]).await?;
    scene.create("a").await?;
    story.is(&["synced", "a came", "a has size 2", "a went", "a came"]).await?;
    let events = informer.status().events;
    ensure!((events.added, events.updated, events.deleted) == (2, 1, 1), "it counts {events:?}");
    Ok(())
}

/// It delivers the events that were missed.
pub(crate) async fn a_watch_that_was_cut_is_resumed_without_a_list(scene: &Scene) -> Result<()> {
    scene.create("a").await?;
    let (informer, story) = scene.follow(scene.all()).await?;
    let lists = informer.status().lists;
    scene.proxy.cut().await;
    scene.create("b").await?;
    scene.delete("a").await?;
    eventually("a broken watch", SOON, async || {
        ensure!(informer.status().broken_since.is_some(), "it isn't broken");
        Ok(())
    })
    .await?;
    scene.proxy.mend();
    story.is(&["a was there", "synced", "b came", "a went"]).await?;
    ensure!(informer.status().lists == lists, "it listed again: {:?}", informer.status().lists);
    ensure!(informer.status().broken_since.is_none(), "it is broken: {:?}", informer.status().reason);
    Ok(())
}

/// No event is delivered twice.
pub(crate) async fn a_version_that_has_expired_leads_to_one_list(scene: &Scene) -> Result<()> {
    scene.create("a").await?;
    let (informer, story) = scene.follow(scene.all()).await?;
    scene.proxy.cut().await;
    scene.expire().await?;
    scene.proxy.mend();
    eventually("a list", SOON, async || {
        let lists = informer.status().lists;
        ensure!(lists.gone == 1, "it made {lists:?}");
        Ok(())
    })
    .await?;
    scene.create("b").await?;
    story.is(&["a was there", "synced", "b came"]).await?;
    ensure!(informer.status().lists.gone == 1, "it made {:?}", informer.status().lists);
    Ok(())
}
