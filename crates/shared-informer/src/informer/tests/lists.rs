//! Tests of lists: pages, completeness, unusual items.

use super::*;
use crate::UnknownIndex;

#[tokio::test(start_paused = true)]
async fn synced_is_said_only_after_the_last_page() {
    let (factory, mut api) = factory();
    let informer = informer(&factory);
    let mut seen = Seen::of(&informer);
    let first = api.list().await;
    assert_eq!(first.parameter("limit").as_deref(), Some("500"));
    first.page(10, &[widget("one/a", 1, 1), widget("one/b", 2, 2)], Some("next"));
    let last = api.page("next").await;
    assert_eq!(seen.take(2).await, ["+one/a=1!", "+one/b=2!"]);
    assert!(!informer.has_synced() && !seen.registration.has_synced());
    assert_eq!(informer.status().objects, 2);

    last.page(10, &[widget("two/c", 3, 3)], None);
    assert_eq!(seen.take(2).await, ["+two/c=3!", "synced"]);
    informer.wait_for_sync(PATIENCE).await.unwrap();
    soon("synced", seen.registration.synced()).await;
    assert!(informer.has_synced() && seen.registration.has_synced());
    api.watch_from(10).await;
    let status = informer.status();
    assert_eq!((status.lists.first, status.events.added), (1, 3));
    assert!(status.synced && status.last_list.is_some() && status.broken_since.is_none());
}

#[tokio::test(start_paused = true)]
async fn an_empty_list_is_complete() {
    let (factory, mut api) = factory();
    let informer = informer(&factory);
    api.list().await.text(200, r#"{"metadata":{"resourceVersion":"5"},"items":null}"#);
    informer.wait_for_sync(PATIENCE).await.unwrap();
    assert!(informer.store().is_empty());
    api.watch_from(5).await;
}

#[tokio::test(start_paused = true)]
async fn a_page_that_fails_is_asked_for_again() {
    let (factory, mut api) = factory();
    let informer = informer(&factory);
    api.list().await.page(10, &[widget("one/a", 1, 1)], Some("next"));
    api.page("next").await.refuse(503, "not now");
    until("trouble", || informer.status().broken_since.is_some()).await;
    assert_eq!(informer.status().reason.as_deref(), Some("server error 503: not now"));
    api.page("next").await.unreachable();
    api.page("next").await.page(10, &[widget("one/b", 2, 2)], None);
    informer.wait_for_sync(PATIENCE).await.unwrap();
    assert_eq!(held(&informer), ["one/a=1", "one/b=2"]);
    let status = informer.status();
    assert_eq!((status.lists.first, status.lists.error), (1, 0));
    assert_eq!((status.reason, status.broken_since), (None, None));
    assert!(status.last_error.unwrap().starts_with("connection refused"));
}

#[tokio::test(start_paused = true)]
async fn an_expired_page_token_begins_the_list_anew_and_what_went_meanwhile_is_gone() {
    let (factory, mut api) = factory();
    let informer = informer(&factory);
    let mut seen = Seen::of(&informer);
    api.list().await.page(10, &[widget("one/a", 1, 1), widget("one/b", 2, 2)], Some("next"));
    api.page("next").await.refuse(410, "the provided continue parameter is too old");
    assert_eq!(seen.take(2).await, ["+one/a=1!", "+one/b=2!"]);
    api.list().await.page(20, &[widget("one/b", 2, 2)], Some("other"));
    api.page("other").await.page(20, &[widget("one/c", 3, 3)], None);
    assert_eq!(seen.until_synced().await, ["+one/c=3!", "-one/a=1?"]);
    assert_eq!(informer.status().lists.expired_token, 1);
    api.watch_from(20).await;
}

#[tokio::test(start_paused = true)]
async fn a_list_too_slow_for_pages_is_asked_for_in_one_piece() {
    let (factory, mut api) = factory();
    let informer = informer(&factory);
    for _ in 0..2 {
        api.list().await.page(10, &[widget("one/a", 1, 1)], Some("next"));
        api.page("next").await.refuse(410, "too old");
    }
    let whole = api.list().await;
    assert_eq!(whole.parameter("limit"), None);
    whole.page(20, &[widget("one/a", 1, 1)], None);
    informer.wait_for_sync(PATIENCE).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_refused_page_token_begins_the_list_anew() {
    let (factory, mut api) = factory();
    let informer = informer(&factory);
    api.list().await.page(10, &[], Some("next"));
    api.page("next").await.refuse(400, "invalid continue token");
    api.list().await.page(20, &[], None);
    informer.wait_for_sync(PATIENCE).await.unwrap();
    assert_eq!(informer.status().lists.error, 1);
}

#[rstest::rstest]
#[case::not_json("<html>", "unexpected answer: not a list: ")]
#[case::no_items(r#"{"metadata":{"resourceVersion":"5"}}"#, "unexpected answer: not a list: missing field `items`")]
#[case::no_version(r#"{"metadata":{},"items":[]}"#, "unexpected answer: the list has no resourceVersion")]
#[case::cut_short(r#"{"metadata":{"resourceVersion":"5"},"items":["#, "unexpected answer: not a list: EOF")]
#[tokio::test(start_paused = true)]
async fn an_answer_that_is_no_list_deletes_nothing(#[case] answer: &str, #[case] reason: &str) {
    let mut scene = synced(&[widget("one/a", 1, 1)]).await;
    scene.watch.error(410, "too old");
    scene.api.list().await.text(200, answer);
    let informer = &scene.informer;
    until("trouble", || informer.status().broken_since.is_some()).await;
    let found = informer.status().reason.unwrap();
    assert!(found.starts_with(reason), "{found}");
    assert_eq!(held(informer), ["one/a=1"]);
}

#[tokio::test(start_paused = true)]
async fn an_undecodable_object_is_set_aside_and_recovers() {
    let (factory, mut api) = factory();
    let informer = informer(&factory);
    let mut seen = Seen::of(&informer);
    api.list().await.page(10, &[widget("one/a", 1, 1), odd_widget("one/b", 2)], None);
    assert_eq!(seen.until_synced().await, ["+one/a=1!", "+one/b=odd!"]);
    let undecodable = informer.store().undecodable();
    assert_eq!(undecodable.len(), 1);
    assert_eq!(undecodable[0].0, key("one/b"));
    assert!(undecodable[0].1.message().contains("huge"));
    assert_eq!(informer.status().undecodable, 1);
    assert_eq!(informer.store().get(&key("one/b")).unwrap().metadata.uid, "b".into());

    let watch = api.watch_from(10).await.open();
    watch.put(&widget("one/b", 11, 7));
    assert_eq!(seen.next().await, "one/b:odd>7");
    assert_eq!(informer.status().undecodable, 0);
    watch.put(&odd_widget("one/a", 12));
    assert_eq!(seen.next().await, "one/a:1>odd");
    assert_eq!(informer.status().decode_errors, 2, "each time it comes");
    watch.delete(&odd_widget("one/a", 13));
    assert_eq!(seen.next().await, "-one/a=odd");
    assert!(informer.store().undecodable().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_item_without_a_name_is_counted_and_skipped() {
    let (factory, mut api) = factory();
    let informer = informer(&factory);
    let nameless = [json!({}), json!(null), json!({ "metadata": { "uid": "u" } })];
    api.list().await.page(10, &[&nameless[..], &[widget("one/a", 1, 1)]].concat(), None);
    informer.wait_for_sync(PATIENCE).await.unwrap();
    assert_eq!(held(&informer), ["one/a=1"]);
    assert_eq!(informer.status().nameless, 3);
    let watch = api.watch_from(10).await.open();
    watch.put(&json!({ "metadata": { "resourceVersion": "11" } }));
    until("the item", || informer.status().nameless == 4).await;
}

#[tokio::test(start_paused = true)]
async fn a_projection_that_panics_spoils_one_object_only() {
    let (factory, mut api) = factory();
    let projection = Projection::new("brittle", |metadata, value| {
        assert_ne!(&*metadata.key.name, "b");
        Widget::deserialize(value).map_err(|error| error.to_string())
    });
    let informer = factory.informer(Query::all(widgets()), projection);
    api.list().await.page(10, &[widget("one/a", 1, 1), widget("one/b", 2, 2)], None);
    informer.wait_for_sync(PATIENCE).await.unwrap();
    assert_eq!(held(&informer), ["one/a=1", "one/b=odd"]);
}

#[tokio::test(start_paused = true)]
async fn a_decoding_error_of_a_secret_does_not_quote_its_content() {
    let (factory, mut api) = factory();
    let secrets = ApiResource::erase::<k8s_openapi::api::core::v1::Secret>(&());
    let informer = factory.informer(Query::all(secrets), Projection::<Widget>::serde());
    api.list().await.page(10, &[odd_widget("one/a", 1)], None);
    informer.wait_for_sync(PATIENCE).await.unwrap();
    let (_, error) = informer.store().undecodable().remove(0);
    assert!(!error.message().contains("huge"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn namespaces_are_listed_each_and_synced_together() {
    let (factory, mut api) = factory();
    let query = Query::namespaced(widgets(), ["one", "two"]);
    let informer: Informer<Widget> = factory.informer(query, Projection::serde());
    let mut seen = Seen::of(&informer);
    let one = api.in_namespace("one").await;
    one.page(10, &[widget("one/a", 1, 1), widget("one/b", 1, 1)], None);
    let watch = api.in_namespace("one").await.open();
    assert_eq!(seen.take(2).await, ["+one/a=1!", "+one/b=1!"]);
    assert!(!informer.has_synced());
    let error = informer.wait_for_sync(Duration::ZERO).await.unwrap_err();
    assert_eq!(error.missing[0].namespaces, "two");

    let two = api.in_namespace("two").await;
    two.page(11, &[widget("two/a", 2, 2)], None);
    assert_eq!(seen.until_synced().await, ["+two/a=2!"]);
    assert_eq!(informer.status().lists.first, 2);
    assert_eq!(informer.status().namespaces, "one, two");

    // A list of one namespace doesn't affect the other.
    watch.error(410, "too old");
    api.in_namespace("one").await.page(12, &[widget("one/a", 1, 1)], None);
    assert_eq!(seen.next().await, "-one/b=1?");
    assert_eq!(held(&informer), ["one/a=1", "two/a=2"]);
}

#[tokio::test(start_paused = true)]
async fn no_namespace_is_synced_at_once() {
    let (factory, mut api) = factory();
    let query = Query::namespaced(widgets(), Vec::<String>::new());
    let informer: Informer<Widget> = factory.informer(query, Projection::serde());
    informer.wait_for_sync(Duration::ZERO).await.unwrap();
    let mut seen = Seen::of(&informer);
    assert_eq!(seen.next().await, "synced");
    api.quiet_for(PATIENCE).await;
}

/// A namespace may be forbidden forever: a user that knows this needn't wait for it, and receives its objects
/// nevertheless.
#[tokio::test(start_paused = true)]
async fn the_first_list_of_a_namespace_need_not_be_waited_for() {
    let (factory, mut api) = factory();
    let query = Query::namespaced(widgets(), ["one", "two"]);
    let informer: Informer<Widget> = factory.informer(query, Projection::serde());
    let mut seen = Seen::of(&informer);
    api.in_namespace("one").await.page(10, &[widget("one/a", 1, 1)], None);
    let _watch = api.in_namespace("one").await.open();
    api.in_namespace("two").await.refuse(403, "no");
    until("the refusal", || informer.scopes()[1].broken.is_some()).await;
    until("the list", || informer.scopes()[0].listed).await;
    assert!(!informer.has_synced());
    let broken = informer.scopes()[1].broken.clone().unwrap();
    assert!(broken.forbidden_since.is_some() && broken.reason == "forbidden: no", "{broken:?}");

    informer.stop_waiting_for("two");
    assert_eq!(seen.until_synced().await, ["+one/a=1!"]);
    informer.stop_waiting_for("two");
    assert!(informer.has_synced() && !informer.scopes()[1].listed);
    api.in_namespace("two").await.page(11, &[widget("two/b", 11, 2)], None);
    assert_eq!(seen.take(1).await, ["+two/b=2"], "it is news, and not of the first list");
    until("the end of the refusal", || informer.scopes()[1].broken.is_none()).await;
    assert!(informer.scopes()[1].listed);
    until("idleness", || seen.registration.is_idle()).await;
}

#[tokio::test(start_paused = true)]
async fn a_store_is_read_in_the_order_of_namespace_and_name() {
    let there = [widget("two/a", 1, 1), widget("one/b", 2, 2), widget("one/a", 3, 3)];
    let scene = synced(&there).await;
    let store = scene.informer.store();
    assert_eq!(held(&scene.informer), ["one/a=3", "one/b=2", "two/a=1"]);
    assert!(store.in_namespace("three").is_empty());
    assert_eq!(store.get(&key("one/b")).unwrap().decoded().unwrap().spec.size, 2);
    assert!(store.get(&key("two/b")).is_none());
    let of_one = store.in_namespace("one");
    let [a, b] = &of_one[..] else { panic!("{of_one:?}") };
    assert_eq!((&*a.metadata.key.name, &*b.metadata.key.name), ("a", "b"));
    assert!(arcstr::ArcStr::ptr_eq(&a.metadata.key.namespace, &b.metadata.key.namespace), "shared text");
}

#[tokio::test(start_paused = true)]
async fn an_index_added_late_holds_what_is_there_and_follows() {
    let by_size = |object: &Object<Widget>| object.decoded().map(|widget| widget.spec.size.to_string());
    let names = |found: &[Arc<Object<Widget>>]| found.iter().map(|object| object.key().to_string()).collect::<Vec<_>>();
    let mut scene = synced(&[widget("one/a", 1, 1), widget("one/b", 2, 1), odd_widget("one/c", 3)]).await;
    let store = scene.informer.store();
    assert_eq!(store.by_index("size", "1").unwrap_err(), UnknownIndex("size".into()));
    assert!(store.add_index("size", move |object| by_size(object).into_iter().collect()));
    assert!(!store.add_index("size", |_| Vec::new()), "the first of a name stays");
    assert_eq!(names(&store.by_index("size", "1").unwrap()), ["one/a", "one/b"]);
    scene.watch.put(&widget("one/b", 11, 2));
    scene.watch.put(&widget("one/c", 12, 2));
    scene.watch.delete(&widget("one/a", 13, 1));
    scene.seen.take(3).await;
    assert!(store.by_index("size", "1").unwrap().is_empty());
    assert_eq!(names(&store.by_index("size", "2").unwrap()), ["one/b", "one/c"]);
}

#[tokio::test(start_paused = true)]
async fn an_index_function_that_panics_gives_no_values() {
    let mut scene = synced(&[widget("one/a", 1, 1)]).await;
    let store = scene.informer.store();
    store.add_index("brittle", |object| {
        assert_ne!(object.decoded().unwrap().spec.size, 13);
        vec!["fine".into()]
    });
    scene.watch.put(&widget("one/a", 11, 13));
    scene.watch.put(&widget("one/b", 12, 1));
    scene.seen.take(2).await;
    let fine: Vec<_> = store.by_index("brittle", "fine").unwrap().iter().map(|object| object.key()).collect();
    assert_eq!(fine, [key("one/b")]);
}
