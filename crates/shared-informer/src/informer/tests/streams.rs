//! Tests of streamed lists, and of servers that don't support them.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio_util::sync::CancellationToken;

use super::*;
use crate::{Store, informer::queue::Slot};

fn end_of_list(version: u64) -> Value {
    json!({ "metadata": {
        "resourceVersion": version.to_string(), "annotations": { "k8s.io/initial-events-end": "true" },
    } })
}

fn streaming() -> Settings {
    Settings::default()
}

impl Api {
    /// Returns the next request, which must be for a streamed list.
    async fn stream(&mut self) -> Call {
        let call = self.call().await;
        for (name, value) in
            [("watch", "true"), ("sendInitialEvents", "true"), ("resourceVersionMatch", "NotOlderThan")]
        {
            assert_eq!(call.parameter(name).as_deref(), Some(value), "{}", call.request.uri());
        }
        assert_eq!(call.parameter("allowWatchBookmarks").as_deref(), Some("true"));
        assert!(call.parameter("resourceVersion").is_none_or(|version| version.is_empty()));
        call
    }
}

/// Returns an informer whose list is being streamed.
async fn begun() -> (Factory, Api, Informer<Widget>, Seen, Watch) {
    let (factory, mut api) = factory_with(streaming());
    let informer = informer(&factory);
    let seen = Seen::of(&informer);
    let watch = api.stream().await.open();
    (factory, api, informer, seen, watch)
}

#[tokio::test(start_paused = true)]
async fn a_streamed_list_is_complete_with_its_bookmark_and_goes_on_as_the_watch() {
    let (_factory, mut api, informer, mut seen, watch) = begun().await;
    watch.send("ADDED", &widget("one/a", 1, 1));
    watch.send("ADDED", &odd_widget("one/b", 2));
    watch.bookmark(5);
    assert_eq!(seen.take(2).await, ["+one/a=1!", "+one/b=odd!"]);
    assert!(!informer.has_synced(), "another bookmark says nothing of the list");
    watch.send("BOOKMARK", &end_of_list(10));
    assert_eq!(seen.next().await, "synced");
    watch.put(&widget("one/a", 11, 2));
    assert_eq!(seen.next().await, "one/a:1>2");
    let lists = informer.status().lists;
    assert_eq!((lists.first, lists.streamed), (1, 1));
    api.quiet_for(Duration::from_secs(5)).await;
    watch.cut();
    api.watch_from(11).await;
}

#[rstest::rstest]
#[case::feature_gate_is_off(
    422,
    "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
)]
#[case::unknown_parameter(400, "unknown query parameter")]
#[case::not_implemented(501, "not implemented")]
#[tokio::test(start_paused = true)]
async fn a_server_without_streamed_lists_is_asked_for_pages_from_then_on(#[case] code: u16, #[case] message: &str) {
    let (factory, mut api) = factory_with(streaming());
    let informer = informer(&factory);
    api.stream().await.refuse(code, message);
    api.list().await.page(10, &[widget("one/a", 1, 1)], None);
    let watch = api.watch_from(10).await.open();
    informer.wait_for_sync(PATIENCE).await.unwrap();
    let status = informer.status();
    assert_eq!((status.lists.first, status.lists.streamed), (1, 0));
    assert_eq!(status.last_error, None, "that isn't a failure");
    watch.error(410, "too old");
    api.list().await.page(20, &[], None);
    let _watch = api.watch_from(20).await.open();

    // Another API server may serve another kind behind this one.
    let query = Query::namespaced(widgets(), ["two"]);
    let _other: Informer<Widget> = factory.informer(query, Projection::serde());
    api.stream().await;
}

#[tokio::test(start_paused = true)]
async fn an_informer_that_may_list_but_not_watch_lists_in_pages() {
    let (factory, mut api) = factory_with(streaming());
    let informer = informer(&factory);
    api.stream().await.refuse(403, "cannot watch widgets");
    api.list().await.page(10, &[widget("one/a", 1, 1)], None);
    informer.wait_for_sync(PATIENCE).await.unwrap();
    api.watch_from(10).await.refuse(410, "too old");
    // Permissions may have been granted meanwhile.
    api.stream().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_takes_it_for_a_plain_watch_is_asked_for_pages() {
    let (_factory, mut api, informer, mut seen, watch) = begun().await;
    watch.send("ADDED", &widget("one/a", 1, 1));
    assert_eq!(seen.next().await, "+one/a=1!");
    // The server sends bookmarks forever, and never the end of the list.
    let bookmarks = async {
        for version in 5.. {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if watch.lines.is_closed() {
                return;
            }
            watch.bookmark(version);
        }
    };
    let pages = async {
        api.list().await.page(10, &[widget("one/a", 1, 1), widget("one/b", 2, 2)], None);
    };
    futures::join!(bookmarks, pages);
    assert_eq!(seen.until_synced().await, ["+one/b=2!"]);
    assert_eq!(informer.status().lists.streamed, 0);
    api.watch_from(10).await;
}

#[tokio::test(start_paused = true)]
async fn a_streamed_list_whose_end_never_comes_is_given_up_however_busy_it_is() {
    let (_factory, mut api, informer, mut seen, watch) = begun().await;
    let began = tokio::time::Instant::now();
    for version in 1..=200 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if watch.lines.is_closed() {
            break;
        }
        watch.send("ADDED", &widget(&format!("one/{version}"), version, 1));
    }
    assert_eq!(began.elapsed().as_secs(), 121, "it is noticed by the event after two minutes");
    api.list().await.page(1_000, &[widget("one/1", 1, 1)], None);
    seen.until_synced().await;
    assert_eq!(held(&informer), ["one/1=1"]);
    api.watch_from(1_000).await.open().error(410, "too old");
    api.list().await.page(2_000, &[], None);
}

/// What loses the end, such as a proxy, stands before all kinds of the API server. A change before the end is enough: the
/// objects may change all the time, so that the stream is never idle.
#[rstest::rstest]
#[case::modified(Some("MODIFIED"))]
#[case::deleted(Some("DELETED"))]
#[case::silence(None)]
#[tokio::test(start_paused = true)]
async fn a_server_whose_streamed_lists_lose_their_end_is_asked_for_pages_of_all_kinds(#[case] change: Option<&str>) {
    let (factory, mut api, informer, mut seen, watch) = begun().await;
    let began = tokio::time::Instant::now();
    watch.send("ADDED", &widget("one/a", 1, 1));
    if let Some(change) = change {
        watch.send(change, &widget("one/a", 2, 2));
    }
    api.list().await.page(10, &[widget("one/a", 2, 2)], None);
    seen.until_synced().await;
    assert_eq!(began.elapsed().is_zero(), change.is_some(), "{:?}", began.elapsed());
    assert_eq!(held(&informer), ["one/a=2"]);
    api.watch_from(10).await.open().error(410, "too old");
    api.list().await.page(20, &[widget("one/a", 2, 2)], None);
    let _watch = api.watch_from(20).await.open();

    let gadgets = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("example.io", "v1", "Gadget"), "gadgets");
    let (began, clone) = (tokio::time::Instant::now(), factory.clone().with_shared_limit(None));
    let other: Informer<Widget> = clone.informer(Query::all(gadgets), Projection::serde());
    api.list().await.page(20, &[widget("one/g", 3, 3)], None);
    other.wait_for_sync(PATIENCE).await.unwrap();
    assert!(began.elapsed().is_zero(), "{:?}", began.elapsed());
    assert_eq!((held(&other), other.status().lists.streamed), (vec!["one/g=3".to_owned()], 0));
}

#[tokio::test(start_paused = true)]
async fn a_streamed_list_that_is_cut_is_begun_anew_and_given_up_after_three() {
    let (_factory, mut api, informer, mut seen, watch) = begun().await;
    watch.send("ADDED", &widget("one/a", 1, 1));
    watch.cut();
    for _ in 0..2 {
        api.stream().await.open().cut();
    }
    assert!(informer.status().broken_since.is_some() && !informer.has_synced());
    api.list().await.page(10, &[widget("one/b", 2, 2)], None);
    assert_eq!(seen.until_synced().await, ["+one/a=1!", "+one/b=2!", "-one/a=1?"]);
    assert_eq!(informer.status().broken_since, None);
}

#[tokio::test(start_paused = true)]
async fn a_proxy_that_holds_answers_back_is_asked_for_pages_this_once() {
    let (factory, mut api) = factory_with(streaming());
    let informer = informer(&factory);
    let began = tokio::time::Instant::now();
    let held_back = api.stream().await;
    api.list().await.page(10, &[widget("one/a", 1, 1)], None);
    assert_eq!(began.elapsed().as_secs(), 10);
    informer.wait_for_sync(PATIENCE).await.unwrap();
    drop(held_back);
    api.watch_from(10).await.open().error(410, "too old");
    api.stream().await;
}

#[tokio::test(start_paused = true)]
async fn a_streamed_list_without_a_version_is_not_believed() {
    let (_factory, mut api, informer, _seen, watch) = begun().await;
    watch.send("BOOKMARK", &json!({ "metadata": { "annotations": { "k8s.io/initial-events-end": "true" } } }));
    api.list().await.page(10, &[], None);
    informer.wait_for_sync(PATIENCE).await.unwrap();
    assert_eq!(informer.status().lists.streamed, 0);
}

/// Sends a complete list of this many objects, a hundred in each part.
fn send_many(watch: &Watch, objects: usize) {
    let line = |number| json!({ "type": "ADDED", "object": widget(&format!("one/{number}"), 1, 1) }).to_string();
    let lines: Vec<_> = (0..objects).map(line).collect();
    lines.chunks(100).for_each(|part| watch.raw(&part.join("\n")));
    watch.send("BOOKMARK", &end_of_list(10));
}

/// Counts its events, and the objects by which the store was ahead of it.
struct Lagging {
    store: Arc<Store<Widget>>,
    received: usize,
    behind: Arc<AtomicUsize>,
}

impl Handler<Widget> for Lagging {
    fn handle(&mut self, _: Event<Widget>) {
        self.received += 1;
        self.behind.fetch_max(self.store.len() - self.received, Ordering::Relaxed);
    }
}

/// The whole list is there at once, and the reader has the only thread until it waits.
#[tokio::test(start_paused = true)]
async fn a_streamed_list_comes_no_faster_than_handlers_take_it_in() {
    const OBJECTS: usize = 5_000;
    let (_factory, _api, informer, _seen, watch) = begun().await;
    let behind = Arc::new(AtomicUsize::new(0));
    let handler = Lagging { store: Arc::clone(informer.store()), received: 0, behind: Arc::clone(&behind) };
    let registration = informer.add_handler(handler);
    send_many(&watch, OBJECTS);
    registration.synced().await;
    assert_eq!(informer.store().len(), OBJECTS);
    let behind = behind.load(Ordering::Relaxed);
    assert!((1_000..1_500).contains(&behind), "at most {behind} of {OBJECTS} waited");
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_stands_still_delays_a_streamed_list_for_a_while_only() {
    let (_factory, _api, informer, mut seen, watch) = begun().await;
    // Nobody empties this slot.
    let stuck = Arc::new(Slot::new("stuck".into(), &CancellationToken::new()));
    informer.store().add_handler(Arc::clone(&stuck));
    let began = tokio::time::Instant::now();
    send_many(&watch, 3_000);
    assert_eq!(seen.until_synced().await.len(), 3_000);
    assert_eq!(began.elapsed().as_secs(), 10);
    assert_eq!(stuck.gauge.status().queued, 3_000);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_is_removed_while_it_lags_delays_nobody() {
    let (_factory, _api, informer, mut seen, watch) = begun().await;
    let stuck = Arc::new(Slot::new("stuck".into(), &CancellationToken::new()));
    informer.store().add_handler(Arc::clone(&stuck));
    send_many(&watch, 3_000);
    let began = tokio::time::Instant::now();
    seen.next().await;
    stuck.removed.cancel();
    informer.store().remove_handler(&stuck);
    assert_eq!(seen.until_synced().await.len(), 2_999);
    assert!(began.elapsed().is_zero(), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_list_in_pages_waits_for_handlers_too() {
    let (factory, mut api) = factory();
    let informer = informer(&factory);
    let stuck = Arc::new(Slot::new("stuck".into(), &CancellationToken::new()));
    informer.store().add_handler(Arc::clone(&stuck));
    let page = |name: &str| (0..1_001).map(|number| widget(&format!("one/{name}{number}"), 1, 1)).collect::<Vec<_>>();
    let began = tokio::time::Instant::now();
    api.list().await.page(10, &page("a"), Some("b"));
    api.quiet_for(Duration::from_secs(4)).await;
    stuck.pop();
    let next = api.page("b").await;
    assert_eq!(began.elapsed().as_secs(), 4, "a thousand may wait");
    next.page(10, &page("b"), Some("c"));
    api.page("c").await.page(10, &[], None);
    assert_eq!(began.elapsed().as_secs(), 10, "of all pages together");
    informer.wait_for_sync(PATIENCE).await.unwrap();
    assert_eq!(stuck.gauge.status().queued, 2_001);
}
