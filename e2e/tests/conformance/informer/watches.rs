//! The events that watches deliver, and the resumption of watches.

use anyhow::{Result, ensure};
use e2e::{
    informer::Setup,
    wait::{SOON, eventually},
};

/// An object that is created again under its name is another one.
pub(crate) async fn every_change_is_reported(setup: &Setup) -> Result<()> {
    let (informer, event_log) = setup.follow(setup.all()).await?;
    setup.create("a").await?;
    event_log.is(&["synced", "a came"]).await?;
    setup.resize("a", 2).await?;
    event_log.is(&["synced", "a came", "a has size 2"]).await?;
    setup.delete("a").await?;
    event_log.is(&["synced", "a came", "a has size 2", "a went"]).await?;
    setup.create("a").await?;
    event_log.is(&["synced", "a came", "a has size 2", "a went", "a came"]).await?;
    let events = informer.status().events;
    ensure!((events.added, events.updated, events.deleted) == (2, 1, 1), "it counts {events:?}");
    Ok(())
}

/// It delivers the events that were missed.
pub(crate) async fn a_watch_that_was_cut_is_resumed_without_a_list(setup: &Setup) -> Result<()> {
    setup.create("a").await?;
    let (informer, event_log) = setup.follow(setup.all()).await?;
    let lists = informer.status().lists;
    setup.proxy.cut().await;
    setup.create("b").await?;
    setup.delete("a").await?;
    eventually("a broken watch", SOON, async || {
        ensure!(informer.status().broken_since.is_some(), "it isn't broken");
        Ok(())
    })
    .await?;
    setup.proxy.mend();
    event_log.is(&["a was there", "synced", "b came", "a went"]).await?;
    ensure!(informer.status().lists == lists, "it listed again: {:?}", informer.status().lists);
    ensure!(informer.status().broken_since.is_none(), "it is broken: {:?}", informer.status().reason);
    Ok(())
}

/// No event is delivered twice.
pub(crate) async fn a_version_that_has_expired_leads_to_one_list(setup: &Setup) -> Result<()> {
    setup.create("a").await?;
    let (informer, event_log) = setup.follow(setup.all()).await?;
    setup.proxy.cut().await;
    setup.expire().await?;
    setup.proxy.mend();
    eventually("a list", SOON, async || {
        let lists = informer.status().lists;
        ensure!(lists.gone == 1, "it made {lists:?}");
        Ok(())
    })
    .await?;
    setup.create("b").await?;
    event_log.is(&["a was there", "synced", "b came"]).await?;
    ensure!(informer.status().lists.gone == 1, "it made {:?}", informer.status().lists);
    Ok(())
}
