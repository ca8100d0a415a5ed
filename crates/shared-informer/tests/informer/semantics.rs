//! The promises of an informer, rule by rule, over real connections to an API that fails on demand.

use std::{sync::Arc, thread::sleep, time::Duration};

use parking_lot::Mutex;
use rstest::rstest;
use sandbox::faults::{Fault, WatchFault};
use serde::Deserialize;
use serde_json::{Value, json};
use shared_informer::{Event, ListCounts, ObjectKey, Projection, Query, Settings};
use testkit::{PATIENCE, soon, until_true as until};

use crate::world::{
    Lists::{self, Paged, Streamed},
    Story, World, kind, quick, widget, widgets,
};

#[rstest]
#[tokio::test]
async fn an_informer_reports_existing_objects_as_initial_and_then_every_change(
    #[values(Streamed, Paged)] lists: Lists,
) {
    let world = World::new(lists).await;
    world.create("a");
    let (informer, story) = world.follow().await;
    world.create("b");
    story.is(&["a was there", "synced", "b came"]).await;
    world.update("a", &json!({ "size": 2 }));
    story.is(&["a was there", "synced", "b came", "a changed"]).await;
    world.delete("b");
    story.is(&["a was there", "synced", "b came", "a changed", "b went"]).await;
    world.agrees_with(&informer).await;
    let streamed = u64::from(lists == Streamed);
    assert_eq!(informer.status().lists, ListCounts { first: 1, streamed, ..ListCounts::default() });
}

#[rstest]
#[case::cut(WatchFault::CutAfter(0))]
#[case::ended(WatchFault::EndAfter(0))]
#[case::garbled(WatchFault::Garbage)]
#[tokio::test]
async fn a_watch_that_breaks_is_resumed_without_a_list(
    #[case] fault: WatchFault,
    #[values(Streamed, Paged)] lists: Lists,
) {
    let world = World::new(lists).await;
    world.create("a");
    let (informer, story) = world.follow().await;
    world.strike(fault).await;
    world.delete("a");
    world.create("b");
    story.is(&["a was there", "synced", "a went", "b came"]).await;
    let lists = informer.status().lists;
    assert_eq!((lists.first, lists.gone, lists.error), (1, 0, 0));
    until("a watch that works", || informer.status().broken_since.is_none()).await;
}

#[rstest]
#[tokio::test]
async fn a_list_finds_the_changes_that_an_expired_watch_missed(#[values(Streamed, Paged)] lists: Lists) {
    let world = World::new(lists).await;
    world.create_all(&["deleted", "kept", "replaced", "updated"]);
    let (informer, story) = world.follow().await;
    let refusal = world.interrupt().await;
    world.delete("deleted");
    world.update("updated", &json!({ "size": 2 }));
    world.delete("replaced");
    world.create("replaced");
    world.api.forget_history();
    refusal.remove();
    world.agrees_with(&informer).await;
    world.create("z");
    until("all of it", || story.has("z came")).await;
    let mut received = story.since_synced();
    received.sort();
    let expected =
        ["deleted was missed", "replaced came", "replaced was missed", "updated changed", "z came"].map(String::from);
    assert_eq!(received, expected);
    assert_eq!(informer.status().lists.gone, 1);
}

#[rstest]
#[tokio::test]
async fn a_410_in_the_middle_of_a_watch_leads_to_a_list_that_reports_nothing_twice(
    #[values(Streamed, Paged)] lists: Lists,
) {
    let world = World::new(lists).await;
    world.create("a");
    let (informer, story) = world.follow().await;
    world.strike(WatchFault::Expire).await;
    until("a list", || informer.status().lists.gone == 1).await;
    world.create("b");
    story.is(&["a was there", "synced", "b came"]).await;
}

#[tokio::test]
async fn a_stalled_watch_is_given_up_and_resumed() {
    let world = World::with(Settings { watch_idle: Duration::from_millis(200), ..quick() }).await;
    world.create("a");
    let (informer, story) = world.follow().await;
    world.strike(WatchFault::Stall).await;
    world.create("b");
    story.is(&["a was there", "synced", "b came"]).await;
    assert!(informer.status().watch_errors > 0);
    assert_eq!(informer.status().lists.error, 0);
}

#[tokio::test]
async fn repeated_events_are_reported_once() {
    let world = World::new(Streamed).await;
    world.create("a");
    let (informer, story) = world.follow().await;
    world.strike(WatchFault::Duplicate).await;
    world.update("a", &json!({ "size": 2 }));
    until("the update", || story.has("a changed")).await;
    world.delete("a");
    until("the delete", || story.has("a went")).await;
    world.create("z");
    story.is(&["a was there", "synced", "a changed", "a went", "z came"]).await;
    world.agrees_with(&informer).await;
}

#[tokio::test]
async fn a_state_older_than_what_was_reported_changes_nothing() {
    let world = World::new(Streamed).await;
    world.create("a");
    let (informer, story) = world.follow().await;
    world.strike(WatchFault::Outdated).await;
    world.update("a", &json!({ "size": 2 }));
    until("the update", || story.has("a changed")).await;
    world.delete("a");
    world.create("a");
    world.delete("a");
    world.create("z");
    until("the end", || story.has("z came")).await;
    assert_eq!(informer.status().events.added, 3);
    assert!(!story.has("a was missed"));
    world.agrees_with(&informer).await;
}

#[rstest]
#[tokio::test]
async fn an_object_that_does_not_decode_is_kept_with_its_error_and_holds_up_no_other(
    #[values(Streamed, Paged)] lists: Lists,
) {
    #[derive(Deserialize)]
    struct Widget {
        spec: Spec,
    }
    #[derive(Deserialize)]
    struct Spec {
        size: u32,
    }
    let world = World::new(lists).await;
    world.api.create(&widgets(), widget("good", &json!({ "size": 1 }))).unwrap();
    world.api.create(&widgets(), widget("odd", &json!({ "size": "large" }))).unwrap();
    let informer = world.factory.informer(Query::all(kind()), Projection::<Widget>::serde());
    let story = Story::of(&informer);
    informer.wait_for_sync(PATIENCE).await.unwrap();
    let odd = ObjectKey::new("default", "odd");
    let error = informer.store().get(&odd).unwrap().content.as_ref().err().cloned().unwrap();
    assert!(error.message().contains("invalid type"), "{error}");
    assert_eq!((informer.store().len(), informer.status().undecodable), (2, 1));
    world.update("odd", &json!({ "size": 3 }));
    story.is(&["good was there", "odd was there", "synced", "odd changed"]).await;
    assert_eq!(informer.store().get(&odd).unwrap().decoded().unwrap().spec.size, 3);
    assert_eq!(informer.status().undecodable, 0);
}

#[rstest]
#[case(Streamed, 1)]
#[case(Paged, 20)]
#[tokio::test]
async fn ten_thousand_objects_come_in_pages_of_500_or_as_one_stream(#[case] lists: Lists, #[case] requests: usize) {
    let world = World::new(lists).await;
    for number in 0..10_000 {
        world.create(&format!("widget-{number}"));
    }
    let (informer, _story) = world.follow().await;
    world.agrees_with(&informer).await;
    let of_lists = world
        .server
        .requests()
        .count(|request| request.query.contains("limit=500") || request.query.contains("sendInitialEvents=true"));
    assert_eq!(of_lists, requests);
    assert_eq!(informer.status().events.added, 10_000);
}

#[tokio::test]
async fn a_list_whose_page_token_expires_begins_anew_and_ends_true() {
    let world = World::with(Settings { streaming_lists: false, page_size: 2, ..quick() }).await;
    world.create_all(&["a", "b", "c", "d", "e"]);
    let gate = Fault::new(sandbox::faults::Effect::Hold).on_verb("list").on_path("continue=").unwrap();
    let gate = world.server.faults().add(gate.times(1));
    let informer = world.factory.informer(Query::all(kind()), Projection::<Value>::serde());
    soon("the second page", gate.wait_for_hits(1)).await;
    world.delete("a");
    world.create("f");
    world.api.forget_history();
    gate.release();
    informer.wait_for_sync(PATIENCE).await.unwrap();
    world.agrees_with(&informer).await;
    assert_eq!(informer.status().lists.expired_token, 1);
}

#[rstest]
#[tokio::test]
async fn a_kind_that_is_removed_is_missed_and_found_when_it_is_installed_again(
    #[values(Streamed, Paged)] lists: Lists,
) {
    let world = World::new(lists).await;
    world.create("old");
    let (informer, story) = world.follow().await;
    world.uninstall();
    let missed = || informer.status().reason.is_some_and(|reason| reason.starts_with("not found"));
    until("a reason", missed).await;
    story.is(&["old was there", "synced", "old went"]).await;
    assert!(informer.status().broken_since.is_some());
    world.install();
    world.create("new");
    until("a cure", || informer.status().broken_since.is_none()).await;
    story.is(&["old was there", "synced", "old went", "new came"]).await;
}

#[rstest]
#[tokio::test]
async fn an_informer_of_some_namespaces_knows_those_and_no_other(#[values(Streamed, Paged)] lists: Lists) {
    let world = World::new(lists).await;
    let place = |namespace: &str, name: &str| {
        let mut object = widget(name, &json!({}));
        object["metadata"]["namespace"] = json!(namespace);
        world.api.create(&widgets(), object).unwrap();
    };
    place("default", "a");
    place("kube-public", "b");
    let query = Query::namespaced(kind(), ["default", "kube-system"]);
    let informer = world.factory.informer(query, Projection::<Value>::serde());
    let story = Story::of(&informer);
    informer.wait_for_sync(PATIENCE).await.unwrap();
    story.synced().await;
    place("kube-public", "c");
    place("kube-system", "d");
    story.is(&["a was there", "synced", "d came"]).await;
    assert_eq!(informer.store().keys(), [ObjectKey::new("default", "a"), ObjectKey::new("kube-system", "d")]);
}

#[rstest]
#[tokio::test]
async fn an_object_that_starts_to_match_the_selector_is_added_and_one_that_stops_is_deleted(
    #[values(Streamed, Paged)] lists: Lists,
) {
    let world = World::new(lists).await;
    let label = |name: &str, value: &str| {
        let mut object = Value::clone(&*world.api.get(&widgets(), "default", name).unwrap());
        object["metadata"]["labels"] = json!({ "pool": value });
        world.api.update(&widgets(), object).unwrap();
    };
    world.create_all(&["a", "b"]);
    label("a", "web");
    let informer = world.factory.informer(Query::all(kind()).labels("pool=web"), Projection::<Value>::serde());
    let story = Story::of(&informer);
    informer.wait_for_sync(PATIENCE).await.unwrap();
    story.synced().await;
    label("b", "web");
    story.is(&["a was there", "synced", "b came"]).await;
    label("a", "db");
    story.is(&["a was there", "synced", "b came", "a went"]).await;
}

#[tokio::test]
async fn a_slow_handler_holds_up_the_others_of_its_thread_for_no_more_than_one_call() {
    let world = World::new(Streamed).await;
    for number in 0..50 {
        world.create(&format!("widget-{number}"));
    }
    let (informer, _story) = world.follow().await;
    let received = Arc::new(Mutex::new(Vec::new()));
    let handler = |who: &'static str, delay: Duration| {
        let received = Arc::clone(&received);
        informer.add_handler(move |_: Event<Value>| {
            received.lock().push(who);
            sleep(delay);
        })
    };
    // This test's runtime has a single thread.
    let slow = handler("slow", Duration::from_millis(2));
    let fast = handler("fast", Duration::ZERO);
    soon("both", async { tokio::join!(slow.synced(), fast.synced()) }).await;
    let first = received.lock().iter().position(|who| *who == "fast").unwrap();
    assert!(first <= 1, "the fast handler was called after {first} calls of the slow one");
}
