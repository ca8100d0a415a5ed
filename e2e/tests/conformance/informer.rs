//! The promises of an informer that rest on an API server's watches and lists, on a real one, with streamed and with
//! paged lists.

use anyhow::{Result, ensure};
use e2e::{
    informer::{Lists, Promise, Setup},
    runner::Scenario,
    scenarios,
    wait::{SOON, eventually},
};
use shared_informer::ListCounts;

use self as informer;

pub(crate) fn promises() -> Vec<Scenario<Promise>> {
    scenarios![Promise:
        informer::existing_objects_are_reported_first_and_marked_as_initial,
        informer::a_delete_that_was_missed_is_found_by_a_list,
        informer::a_watch_that_was_cut_is_resumed_without_a_list,
        informer::a_version_that_has_expired_leads_to_one_list,
        informer::a_kind_that_is_removed_is_reported_and_found_when_it_is_installed_again,
    ]
    .into()
}

/// In one stream, or in as many pages as needed.
async fn existing_objects_are_reported_first_and_marked_as_initial(setup: &Setup) -> Result<()> {
    for name in ["a", "b", "c", "d", "e"] {
        setup.create(name).await?;
    }
    let (informer, event_log) = setup.follow(setup.all()).await?;
    let there = ["a was there", "b was there", "c was there", "d was there", "e was there", "synced"];
    event_log.is(&there).await?;
    setup.create("f").await?;
    event_log.is(&[&there[..], &["f came"]].concat()).await?;

    let lists = informer.status().lists;
    let streamed = u64::from(setup.lists == Lists::Streamed);
    let expected = ListCounts { first: 1, streamed, ..ListCounts::default() };
    ensure!(lists == expected, "it made {lists:?}");
    let (streams, pages, later) = match setup.lists {
        Lists::Streamed => (1, 0, 0),
        Lists::Paged => (0, 3, 2),
    };
    let asked = (setup.asked("sendInitialEvents=true"), setup.asked("limit=2"), setup.asked("continue="));
    ensure!(asked == (streams, pages, later), "streams, pages, and pages after the first were {asked:?}");
    Ok(())
}

/// The delete event carries the last known state, and is marked.
async fn a_delete_that_was_missed_is_found_by_a_list(setup: &Setup) -> Result<()> {
    for name in ["changed", "deleted", "kept", "replaced"] {
        setup.create(name).await?;
    }
    let (informer, event_log) = setup.follow(setup.all()).await?;
    setup.proxy.cut().await;
    setup.delete("deleted").await?;
    setup.resize("changed", 2).await?;
    setup.delete("replaced").await?;
    setup.create("replaced").await?;
    setup.expire().await?;
    setup.proxy.mend();
    event_log
        .is_in_any_order(&[
            "changed was there",
            "deleted was there",
            "kept was there",
            "replaced was there",
            "synced",
            "changed has size 2",
            "deleted was missed",
            "replaced was missed",
            "replaced came",
        ])
        .await?;
    let names: Vec<_> = informer.store().keys().into_iter().map(|key| key.name.to_string()).collect();
    ensure!(names == ["changed", "kept", "replaced"], "it holds {names:?}");
    Ok(())
}

/// It delivers the events that were missed.
async fn a_watch_that_was_cut_is_resumed_without_a_list(setup: &Setup) -> Result<()> {
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
async fn a_version_that_has_expired_leads_to_one_list(setup: &Setup) -> Result<()> {
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

/// The handler receives deletes of all objects, and the informer reports the reason, until the kind is back.
async fn a_kind_that_is_removed_is_reported_and_found_when_it_is_installed_again(setup: &Setup) -> Result<()> {
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
