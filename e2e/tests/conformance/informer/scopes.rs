//! The namespaces and objects that an informer covers.

use anyhow::{Result, ensure};
use e2e::{
    informer::Setup,
    wait::{SOON, eventually},
};
use shared_informer::{ObjectKey, Query};

/// Each namespace has a watch of its own, and no other namespace is watched.
pub(crate) async fn one_informer_follows_several_namespaces(setup: &Setup) -> Result<()> {
    let third = "default";
    setup.create("a").await?;
    setup.create_in(&setup.neighbour, "b").await?;
    setup.create_in(third, "c").await?;
    let namespaces = [setup.namespace.as_str(), setup.neighbour.as_str()];
    let (informer, event_log) = setup.follow(Query::namespaced(setup.kind.clone(), namespaces)).await?;
    event_log.is_in_any_order(&["a was there", "b was there", "synced"]).await?;
    setup.create_in(third, "d").await?;
    setup.create_in(&setup.neighbour, "e").await?;
    event_log.is_in_any_order(&["a was there", "b was there", "synced", "e came"]).await?;
    setup.delete("a").await?;
    event_log.is_in_any_order(&["a was there", "b was there", "synced", "e came", "a went"]).await?;
    let neighbour = setup.neighbour.as_str();
    let expected = [ObjectKey::new(neighbour, "b"), ObjectKey::new(neighbour, "e")];
    ensure!(informer.store().keys() == expected, "it holds {:?}", informer.store().keys());
    Ok(())
}

/// By the events of the server, which knows the former selection.
pub(crate) async fn a_watch_adds_an_object_that_starts_to_match_a_label_selector_and_deletes_one_that_stops(
    setup: &Setup,
) -> Result<()> {
    for name in ["a", "b"] {
        setup.create(name).await?;
    }
    setup.label("a", "web").await?;
    let (_informer, event_log) = setup.follow(setup.all().labels("pool=web")).await?;
    setup.label("b", "web").await?;
    event_log.is(&["a was there", "synced", "b came"]).await?;
    setup.label("a", "db").await?;
    event_log.is(&["a was there", "synced", "b came", "a went"]).await?;
    // With its former uid.
    setup.label("a", "web").await?;
    event_log.is(&["a was there", "synced", "b came", "a went", "a came"]).await
}

/// The others are neither listed nor watched.
pub(crate) async fn a_field_selector_narrows_to_one_object(setup: &Setup) -> Result<()> {
    for name in ["a", "b"] {
        setup.create(name).await?;
    }
    let (informer, event_log) = setup.follow(setup.all().fields("metadata.name=b")).await?;
    setup.resize("a", 2).await?;
    setup.create("c").await?;
    setup.resize("b", 3).await?;
    event_log.is(&["b was there", "synced", "b has size 3"]).await?;
    ensure!(informer.store().len() == 1, "it holds {:?}", informer.store().keys());
    Ok(())
}

/// The handler receives deletes of all objects, and the informer reports the reason, until the kind is back.
pub(crate) async fn a_kind_that_is_removed_is_reported_and_found_when_it_is_installed_again(
    setup: &Setup,
) -> Result<()> {
    setup.create("old").await?;
    let (informer, event_log) = setup.follow(setup.all()).await?;
    // By an event of the watch: one that begins after the removal of the kind delivers nothing.
    setup.resize("old", 2).await?;
    event_log.is(&["old was there", "synced", "old has size 2"]).await?;
    setup.uninstall().await?;
    event_log.is(&["old was there", "synced", "old has size 2", "old went"]).await?;
    eventually("a reason", SOON, async || {
        let reason = informer.status().reason.unwrap_or_default();
        ensure!(reason.starts_with("not found"), "the reason is {reason:?}");
        Ok(())
    })
    .await?;
    setup.install().await?;
    setup.create("new").await?;
    event_log.is(&["old was there", "synced", "old has size 2", "old went", "new came"]).await?;
    eventually("a cure", SOON, async || {
        ensure!(informer.status().broken_since.is_none(), "it is broken: {:?}", informer.status().reason);
        Ok(())
    })
    .await
}
