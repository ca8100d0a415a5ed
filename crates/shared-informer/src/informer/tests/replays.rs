//! Tests of replays: a handler gets what it asks for once more, in order with the changes.

use super::*;

fn is_large(object: &Object<Widget>) -> bool {
    object.decoded().is_some_and(|widget| widget.spec.size > 1)
}

#[tokio::test(start_paused = true)]
async fn a_replay_delivers_each_matching_object_once_more_and_then_its_mark() {
    let mut scene =
        synced(&[widget("one/a", 1, 1), widget("one/c", 2, 2), widget("one/b", 3, 3), widget("two/d", 4, 4)]).await;
    let mut other = Seen::of(&scene.informer);
    other.until_synced().await;
    scene.seen.registration.replay(Some("one"), 1, is_large);
    assert_eq!(scene.seen.take(3).await, ["one/b:3>3", "one/c:2>2", "replayed 1"]);
    scene.seen.registration.replay(None, 2, is_large);
    assert_eq!(scene.seen.take(4).await, ["one/b:3>3", "one/c:2>2", "two/d:4>4", "replayed 2"]);
    for (namespace, mark) in [(Some("three"), 3), (Some("one"), 4)] {
        scene.seen.registration.replay(namespace, mark, |_| false);
        assert_eq!(scene.seen.next().await, format!("replayed {mark}"));
    }
    scene.seen.registration.replay_all(Some("one"), [5, 6], is_large);
    assert_eq!(scene.seen.take(4).await, ["one/b:3>3", "one/c:2>2", "replayed 5", "replayed 6"]);
    assert!(other.received.try_recv().is_err(), "it didn't ask");
}

#[tokio::test(start_paused = true)]
async fn a_replay_has_what_is_stored_at_the_time() {
    let mut scene = synced(&[widget("one/a", 1, 1), widget("one/b", 2, 2)]).await;
    scene.seen.registration.replay(Some("one"), 1, |_| true);
    assert_eq!(scene.seen.take(3).await, ["one/a:1>1", "one/b:2>2", "replayed 1"]);
    scene.watch.put(&widget("one/a", 11, 5));
    scene.watch.delete(&widget("one/b", 12, 2));
    assert_eq!(scene.seen.take(2).await, ["one/a:1>5", "-one/b=2"]);
    scene.seen.registration.replay(Some("one"), 2, |_| true);
    assert_eq!(scene.seen.take(2).await, ["one/a:5>5", "replayed 2"], "the other one is gone");
}

/// A replay joins the events of an object that wait already: the handler gets each object once.
#[tokio::test(start_paused = true)]
async fn an_object_that_waits_anyway_is_not_delivered_twice() {
    let scene = synced(&[widget("one/a", 1, 1)]).await;
    let mut late = Seen::of(&scene.informer);
    late.registration.replay(None, 1, |_| true);
    late.registration.replay(None, 2, |_| true);
    assert_eq!(late.take(4).await, ["+one/a=1!", "synced", "replayed 1", "replayed 2"]);
}

#[tokio::test(start_paused = true)]
async fn a_replay_before_the_first_list_is_complete_has_what_was_listed() {
    let (factory, mut api) = factory();
    let informer = informer(&factory);
    let mut seen = Seen::of(&informer);
    api.list().await.page(10, &[widget("one/a", 1, 1)], Some("next"));
    let last = api.page("next").await;
    assert_eq!(seen.next().await, "+one/a=1!");
    seen.registration.replay(None, 1, |_| true);
    assert_eq!(seen.take(2).await, ["one/a:1>1", "replayed 1"]);
    last.page(10, &[widget("one/b", 2, 2)], None);
    assert_eq!(seen.take(2).await, ["+one/b=2!", "synced"]);
}
