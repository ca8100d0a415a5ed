//! Tests of watches of a healthy server: their events, ends and resumption.

use rstest::rstest;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_watch_is_reported_in_order() {
    let mut scene = synced(&[widget("one/a", 1, 1)]).await;
    scene.watch.send("ADDED", &widget("one/b", 11, 1));
    assert_eq!(scene.seen.next().await, "+one/b=1");
    scene.watch.put(&widget("one/b", 12, 2));
    assert_eq!(scene.seen.next().await, "one/b:1>2");
    scene.watch.delete(&widget("one/a", 13, 9));
    assert_eq!(scene.seen.next().await, "-one/a=9");
    assert_eq!(held(&scene.informer), ["one/b=2"]);
    let events = scene.informer.status().events;
    assert_eq!((events.added, events.updated, events.deleted), (2, 1, 1));
    assert!(scene.informer.status().last_event.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_watch_is_resumed_from_its_last_event_or_bookmark() {
    let mut scene = synced(&[]).await;
    scene.watch.put(&widget("one/a", 11, 1));
    assert_eq!(scene.seen.next().await, "+one/a=1");
    scene.watch.cut();
    let watch = scene.api.watch_from(11).await.open();
    watch.bookmark(42);
    let informer = &scene.informer;
    until("the bookmark", || informer.status().events.bookmarks == 1).await;
    drop(watch);
    scene.api.watch_from(42).await;
    assert_eq!(informer.status().lists, crate::ListCounts { first: 1, ..Default::default() });
}

/// Versions compare as numbers: 9 is older than 10. What is old or known already changes neither an object nor the
/// version from which the watch is resumed.
#[rstest]
#[case::older(&[("MODIFIED", "one/a", 12, 2), ("MODIFIED", "one/a", 9, 1)], &["one/a:1>2"], 12)]
#[case::deleted_before(&[("MODIFIED", "one/a", 12, 2), ("DELETED", "one/a", 9, 1)], &["one/a:1>2"], 12)]
#[case::twice(
    &[("MODIFIED", "one/a", 12, 2), ("DELETED", "one/b", 13, 1), ("MODIFIED", "one/a", 12, 2), ("DELETED", "one/b", 13, 1)],
    &["one/a:1>2", "-one/b=1"],
    13
)]
#[case::bookmark_twice(
    &[("BOOKMARK", "one/a", 12, 0), ("MODIFIED", "one/a", 13, 2), ("BOOKMARK", "one/a", 12, 0), ("MODIFIED", "one/a", 13, 2)],
    &["one/a:1>2"],
    13
)]
#[tokio::test(start_paused = true)]
async fn an_event_that_is_out_of_date_or_repeated_is_ignored(
    #[case] sent: &[(&str, &str, u64, i64)],
    #[case] seen: &[&str],
    #[case] resumed_from: u64,
) {
    let mut scene = synced(&[widget("one/a", 8, 1), widget("one/b", 2, 1)]).await;
    for (kind, key, version, size) in sent {
        scene.watch.send(kind, &widget(key, *version, *size));
    }
    assert_eq!(scene.seen.take(seen.len()).await, seen);
    scene.watch.cut();
    scene.api.watch_from(resumed_from).await;
    assert!(scene.seen.received.try_recv().is_err());
}

#[rstest]
#[case::ended(false)]
#[case::broken_off(true)]
#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_at_its_time_is_not_broken(#[case] is_cut: bool) {
    let settings = Settings { watch_timeout: Duration::from_secs(60), ..paged() };
    let mut scene = synced_with(settings, &[]).await;
    tokio::time::advance(Duration::from_secs(61)).await;
    if is_cut {
        scene.watch.cut();
    } else {
        drop(scene.watch);
    }
    let next = scene.api.watch_from(10).await;
    let seconds: u64 = next.parameter("timeoutSeconds").unwrap().parse().unwrap();
    assert!((54..=60).contains(&seconds), "{seconds}");
    let status = scene.informer.status();
    assert_eq!((status.watch_errors, status.broken_since, status.last_error), (0, None, None));
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_with_bookmarks_is_left_alone() {
    let mut scene = synced(&[]).await;
    for minute in 0..4 {
        scene.watch.bookmark(11 + minute);
        scene.api.quiet_for(Duration::from_secs(60)).await;
    }
    assert_eq!(scene.informer.status().broken_since, None);
    assert_eq!(scene.informer.status().watch_errors, 0);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_gives_nothing_at_all_is_stalled_and_begun_anew() {
    let mut scene = synced(&[]).await;
    let informer = &scene.informer;
    scene.api.quiet_for(Duration::from_secs(149)).await;
    assert_eq!(informer.status().broken_since, None);
    let next = scene.api.watch_from(10).await;
    assert_eq!(informer.status().reason.as_deref(), Some("the watch stalled: no event and no bookmark in 150s"));
    scene.watch.closed().await;
    let _watch = next.open();
    until("a cure", || informer.status().broken_since.is_none()).await;
    assert_eq!(informer.status().watch_errors, 1);
}

#[tokio::test(start_paused = true)]
async fn an_expired_version_is_listed_again_and_what_is_missing_was_deleted() {
    let before = [widget("one/a", 1, 1), widget("one/b", 2, 2), widget("one/c", 3, 3)];
    let mut scene = synced(&before).await;
    scene.watch.error(410, "too old resource version");
    let after = [widget("one/a", 1, 1), widget("one/b", 12, 20), with_uid(widget("one/d", 13, 4), "d")];
    scene.api.list().await.page(20, &after, None);
    let received = scene.seen.take(3).await;
    assert_eq!(received, ["one/b:2>20", "+one/d=4", "-one/c=3?"]);
    scene.api.watch_from(20).await;
    let status = scene.informer.status();
    assert_eq!((status.lists.first, status.lists.gone), (1, 1));
    assert_eq!((status.watch_errors, status.broken_since), (0, None));
}

/// A backup was restored.
#[tokio::test(start_paused = true)]
async fn a_list_overrules_what_is_held_or_was_deleted_even_with_smaller_versions() {
    let mut scene = synced(&[widget("one/a", 9, 1), widget("one/b", 9, 9)]).await;
    scene.watch.delete(&widget("one/a", 11, 1));
    assert_eq!(scene.seen.next().await, "-one/a=1");
    scene.watch.error(504, "Timeout: Too large resource version: 11, current: 5");
    scene.api.list().await.page(5, &[widget("one/a", 4, 1), widget("one/b", 3, 3)], None);
    assert_eq!(scene.seen.take(2).await, ["+one/a=1", "one/b:9>3"]);
    let watch = scene.api.watch_from(5).await.open();
    watch.put(&widget("one/a", 6, 2));
    assert_eq!(scene.seen.next().await, "one/a:1>2");
}

/// CAPD's in-memory API servers write events like this.
#[tokio::test(start_paused = true)]
async fn events_may_be_indented_with_nothing_between_them() {
    let mut scene = synced(&[]).await;
    for (version, value) in [(11, 1), (12, 2)] {
        let event = json!({ "type": "MODIFIED", "object": widget("one/a", version, value) });
        let text = serde_json::to_string_pretty(&event).unwrap();
        let (start, end) = text.split_at(60);
        scene.watch.lines.send(Ok(start.into())).unwrap();
        scene.watch.lines.send(Ok(end.into())).unwrap();
        // Each event is delivered when it is complete, and not when the next one begins.
        let received = if value == 1 { "+one/a=1" } else { "one/a:1>2" };
        assert_eq!(scene.seen.next().await, received);
    }
    assert_eq!(scene.informer.status().watch_errors, 0);
}
