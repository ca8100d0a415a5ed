//! The events that lists deliver.

use anyhow::{Result, ensure};
use e2e::informer::{Lists, Setup};
use shared_informer::ListCounts;

/// In one stream, or in as many pages as needed.
pub(crate) async fn existing_objects_are_reported_first_and_marked_as_initial(setup: &Setup) -> Result<()> {
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
    let asked = (setup.asked(&["sendInitialEvents=true"]), setup.asked(&["limit=2"]), setup.asked(&["continue="]));
    ensure!(asked == (streams, pages, later), "streams, pages, and pages after the first were {asked:?}");
    Ok(())
}

/// The delete event carries the last known state, and is marked.
pub(crate) async fn a_delete_that_was_missed_is_found_by_a_list(setup: &Setup) -> Result<()> {
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
