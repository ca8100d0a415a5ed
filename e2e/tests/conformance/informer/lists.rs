//! The events that lists deliver.

use anyhow::{Result, ensure};
use e2e::informer::{Lists, Scene, Story};
use shared_informer::ListCounts;

/// In one stream, or in as many pages as needed.
pub(crate) async fn what_is_there_comes_first_and_marked_as_initial(scene: &Scene) -> Result<()> {
    for name in ["a", "b", "c", "d", "e"] {
        scene.create(name).await?;
    }
    let (informer, story) = scene.follow(scene.all()).await?;
    let there = ["a was there", "b was there", "c was there", "d was there", "e was there", "synced"];
    story.is(&there).await?;
    scene.create("f").await?;
    story.is(&[&there[..], &["f came"]].concat()).await?;

    let lists = informer.status().lists;
    let streamed = u64::from(scene.lists == Lists::Streamed);
    let expected = ListCounts { first: 1, streamed, ..ListCounts::default() };
    ensure!(lists == expected, "it made {lists:?}");
    let (streams, pages, later) = match scene.lists {
        Lists::Streamed => (1, 0, 0),
        Lists::Paged => (0, 3, 2),
    };
    let asked = (scene.asked(&["sendInitialEvents=true"]), scene.asked(&["limit=2"]), scene.asked(&["continue="]));
    ensure!(asked == (streams, pages, later), "streams, pages, and pages after the first were {asked:?}");
    Ok(())
}

/// Without another list.
pub(crate) async fn a_handler_added_late_receives_what_is_there(scene: &Scene) -> Result<()> {
    scene.create("a").await?;
    let (informer, early) = scene.follow(scene.all()).await?;
    scene.create("b").await?;
    early.is(&["a was there", "synced", "b came"]).await?;
    scene.resize("a", 2).await?;
    early.is(&["a was there", "synced", "b came", "a has size 2"]).await?;
    let lists = informer.status().lists;

    let late = Story::of(&informer);
    late.is(&["a was there", "b was there", "synced"]).await?;
    scene.delete("a").await?;
    late.is(&["a was there", "b was there", "synced", "a went"]).await?;
    early.is(&["a was there", "synced", "b came", "a has size 2", "a went"]).await?;
    ensure!(informer.status().lists == lists, "the late handler cost a list");
    Ok(())
}

/// The delete event carries the last known state, and is marked.
pub(crate) async fn a_delete_that_was_missed_is_found_by_a_list(scene: &Scene) -> Result<()> {
    for name in ["changed", "deleted", "kept", "replaced"] {
        scene.create(name).await?;
    }
    let (informer, story) = scene.follow(scene.all()).await?;
    scene.proxy.cut().await;
    scene.delete("deleted").await?;
    scene.resize("changed", 2).await?;
    scene.delete("replaced").await?;
    scene.create("replaced").await?;
    scene.expire().await?;
    scene.proxy.mend();
    story
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
