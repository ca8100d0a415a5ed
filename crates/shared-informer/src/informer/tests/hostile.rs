//! Tests of API servers whose lists, pages, events and watches never end: each is aborted at a limit with a reason,
//! the known objects stay, and memory stays bounded.

use std::sync::atomic::{AtomicUsize, Ordering};

use testkit::CapturedLog;

use super::*;

const MOST: usize = 100;

fn bounded() -> Settings {
    Settings { max_objects: MOST, page_size: 10, ..paged() }
}

fn page_of(begin: usize, count: usize) -> Vec<Value> {
    (begin..begin + count).map(|n| widget(&format!("team-a/w{n}"), 10, 1)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_list_without_end_is_given_up_and_nothing_of_it_piles_up() {
    let (factory, mut api) = factory_with(bounded());
    let informer = informer(&factory);
    let mut named = 0;
    for _ in 0..4 {
        let mut call = api.list().await;
        assert!(informer.store().is_empty(), "nothing of the list before is left");
        for page in 1..=MOST / 10 {
            // Other objects each time, under a new token.
            call.page(10, &page_of(named, 10), Some(&format!("t{page}")));
            named += 10;
            call = api.page(&format!("t{page}")).await;
        }
        call.page(10, &page_of(named, 10), Some("one more"));
        named += 10;
        until("its end", || reason(&informer).contains("there are more than 100 objects")).await;
    }
    // Once the server behaves, its whole list is stored.
    api.list().await.page(20, &page_of(0, 5), None);
    let _watch = api.watch_from(20).await.open();
    until("all of the list", || informer.store().len() == 5).await;
}

#[tokio::test(start_paused = true)]
async fn pages_without_objects_have_no_endless_list_either() {
    let (factory, mut api) = factory_with(bounded());
    let informer = informer(&factory);
    let mut call = api.list().await;
    for page in 0..MOST {
        call.page(10, &[], Some(&format!("t{page}")));
        call = api.page(&format!("t{page}")).await;
    }
    call.page(10, &[], Some("one more"));
    until("its end", || reason(&informer).contains("there are more than 100 objects")).await;
    api.list().await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_brings_objects_without_end_is_given_up_and_what_is_known_stays() {
    let mut scene = synced_with(bounded(), &page_of(0, 5)).await;
    for n in 5..MOST + 5 {
        scene.watch.put(&widget(&format!("team-a/w{n}"), 10 + n as u64, 1));
    }
    until("its end", || reason(&scene.informer).contains("there are more than 100 objects")).await;
    assert_eq!(scene.informer.store().len(), MOST);
    assert!(scene.informer.store().get(&key("team-a/w0")).is_some());
    // Changes of known objects still arrive.
    let watch = scene.api.watch_from(MOST as u64 + 9).await.open();
    watch.put(&widget("team-a/w0", 500, 7));
    until("the change", || held(&scene.informer).contains(&"team-a/w0=7".to_owned())).await;
}

/// The memory of the objects in these tests.
const MOST_BYTES: usize = 10_000;

fn bounded_in_bytes() -> Settings {
    Settings { max_bytes: MOST_BYTES, page_size: 10, ..paged() }
}

const TOO_LARGE: &str = "the kept fields of all objects have more than 10000 bytes";

#[tokio::test(start_paused = true)]
async fn objects_are_watched_up_to_a_bound_of_bytes_and_what_is_known_stays() {
    let (factory, mut api) = factory_with(bounded_in_bytes());
    let informer = weighing(&factory);
    api.list().await.page(10, &[widget("team-a/w0", 10, 0), widget("team-a/w1", 10, 0)], None);
    let watch = api.watch_from(10).await.open();
    until("both", || informer.store().len() == 2).await;
    let rest = i64::try_from(MOST_BYTES - informer.store().amount().bytes).unwrap();
    watch.put(&widget("team-a/w0", 11, rest));
    until("the bound", || informer.store().amount().bytes == MOST_BYTES).await;
    assert_eq!(reason(&informer), "");
    watch.put(&widget("team-a/w1", 12, 1));
    until("the reason", || reason(&informer).contains(TOO_LARGE)).await;
    assert_eq!(held(&informer), [format!("team-a/w0={rest}"), "team-a/w1=0".to_owned()]);
    // A new object is beyond the bound too, while what is known may get smaller.
    let watch = api.watch_from(11).await.open();
    watch.put(&widget("team-a/w2", 13, 0));
    let watch = api.watch_from(11).await.open();
    watch.put(&widget("team-a/w0", 14, 1));
    watch.put(&widget("team-a/w2", 15, 0));
    until("the others", || held(&informer) == ["team-a/w0=1", "team-a/w1=0", "team-a/w2=0"]).await;
}

#[tokio::test(start_paused = true)]
async fn objects_are_listed_up_to_a_bound_of_bytes_and_nothing_beyond_piles_up() {
    let (factory, mut api) = factory_with(bounded_in_bytes());
    let informer = weighing(&factory);
    let page =
        |names: [&str; 2], version: u64, size: i64| names.map(|name| widget(&format!("team-a/{name}"), version, size));
    api.list().await.page(10, &page(["a0", "a1"], 10, 0), None);
    let watch = api.watch_from(10).await.open();
    until("both", || informer.store().len() == 2).await;
    let half = i64::try_from((MOST_BYTES - informer.store().amount().bytes) / 2).unwrap();
    watch.error(410, "too old");
    api.list().await.page(20, &page(["a0", "a1"], 20, half), None);
    let watch = api.watch_from(20).await.open();
    until("the bound", || informer.store().amount().bytes > MOST_BYTES - 2).await;
    assert_eq!(reason(&informer), "");
    watch.error(410, "too old");
    // Other objects each time, then the same ones, but larger; and at last as many bytes as a list may have.
    let rounds = [("b0", "b1", 2), ("c0", "c1", 2), ("a0", "a0", 2), ("a1", "a1", 2), ("d0", "d1", 2), ("e0", "e1", 0)];
    let mut call = api.list().await;
    for (round, (first, second, more)) in rounds.into_iter().enumerate() {
        let version = 30 + round as u64;
        call.page(version, &page([first, second], version, half + more), Some("more"));
        // The list is given up, so that another one begins.
        call = api.list().await;
        assert!(reason(&informer).contains(TOO_LARGE), "{} in round {round}", reason(&informer));
        let bytes = informer.store().amount().bytes;
        assert!(bytes <= MOST_BYTES + 10, "{bytes} bytes after round {round}");
        let names = informer.store().keys();
        assert_eq!(names, [key("team-a/a0"), key("team-a/a1")], "what is known stays, and nothing else");
    }
    // Once the server behaves, its whole list is stored.
    call.page(50, &page(["a0", "f0"], 50, 5), None);
    let _watch = api.watch_from(50).await.open();
    until("all of the list", || held(&informer) == ["team-a/a0=5", "team-a/f0=5"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_streamed_list_has_the_bound_of_bytes_too() {
    let (factory, mut api) = factory_with(Settings { streaming_lists: true, ..bounded_in_bytes() });
    let informer = weighing(&factory);
    let stream = api.call().await.open();
    let object = |n: usize| widget(&format!("team-a/w{n}"), 10, 1_000);
    let mut sent = 0;
    while stream.lines.send(Ok(format!(r#"{{"type":"ADDED","object":{}}}{}"#, object(sent), "\n").into_bytes())).is_ok()
    {
        sent += 1;
        assert!(sent < 100, "it is read on and on");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(sent <= 12, "{sent}");
    until("the reason", || reason(&informer).contains(TOO_LARGE)).await;
    assert!(informer.store().is_empty(), "nothing of the list is left");
}

/// An event is applied when no other has come with it.
#[tokio::test(start_paused = true)]
async fn white_space_without_end_delays_no_event() {
    const PARTS: usize = 10_000;
    let mut scene = synced(&[widget("one/a", 1, 1)]).await;
    let lines = scene.watch.lines.clone();
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    scene.watch.put(&widget("one/a", 11, 5));
    let server = tokio::spawn(async move {
        while counted.fetch_add(1, Ordering::Relaxed) < PARTS {
            lines.send(Ok(b" ".to_vec())).unwrap();
            tokio::task::yield_now().await;
        }
    });
    assert_eq!(scene.seen.next().await, "one/a:1>5");
    let sent = sent.load(Ordering::Relaxed);
    assert!(sent < PARTS / 10, "the event is delayed by {sent} parts of white space");
    server.await.unwrap();
}

/// Each answer beyond a limit costs as much as the limit allows.
#[tokio::test(start_paused = true)]
async fn an_answer_beyond_a_limit_is_asked_for_again_after_the_longest_pause() {
    let (factory, mut api) = factory_with(Settings { streaming_lists: true, ..bounded() });
    let informer = informer(&factory);
    let longest = Settings::default().backoff_max;
    let mut failed_at = tokio::time::Instant::now();
    for attempt in 0..3 {
        let stream = api.call().await.open();
        assert!(attempt == 0 || failed_at.elapsed() >= longest / 2, "{:?}", failed_at.elapsed());
        for object in page_of(0, MOST + 1) {
            stream.send("ADDED", &object);
        }
        until("its end", || reason(&informer).contains("there are more than 100 objects")).await;
        stream.lines.closed().await;
        failed_at = tokio::time::Instant::now();
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_page_that_is_too_long_half_as_many_objects_are_asked_for() {
    let (factory, mut api) = factory_with(Settings { max_page_bytes: 10_000, page_size: 8, ..paged() });
    let informer = informer(&factory);
    let large = |n: usize| {
        let mut large = widget(&format!("team-a/w{n}"), 10, 1);
        large["metadata"]["annotations"] = json!({"large": "x".repeat(4_000)});
        large
    };
    let asked = |call: &Call| call.parameter("limit").unwrap();
    let call = api.list().await;
    assert_eq!(asked(&call), "8");
    call.page(10, &(0..8).map(large).collect::<Vec<_>>(), Some("later"));
    let call = api.list().await;
    assert_eq!(asked(&call), "4");
    call.page(10, &(0..4).map(large).collect::<Vec<_>>(), Some("later"));
    let call = api.list().await;
    assert_eq!(asked(&call), "2");
    call.page(10, &(0..2).map(large).collect::<Vec<_>>(), Some("small"));
    let call = api.page("small").await;
    assert_eq!(asked(&call), "2");
    call.page(10, &page_of(2, 2), Some("more"));
    let call = api.page("more").await;
    assert_eq!(asked(&call), "4", "what follows is short");
    call.page(10, &page_of(4, 4), None);
    let _watch = api.watch_from(10).await.open();
    until("all", || informer.store().len() == 8).await;
}

#[tokio::test(start_paused = true)]
async fn a_page_without_end_is_read_up_to_its_bound() {
    let (factory, mut api) = factory_with(Settings { max_page_bytes: 10_000, page_size: 1, ..paged() });
    let informer = informer(&factory);
    let endless = api.list().await.open();
    endless.raw(r#"{"kind":"WidgetList","items":["#);
    let mut sent = 0;
    while endless.lines.send(Ok(vec![b'['; 1_000])).is_ok() {
        sent += 1;
        assert!(sent < 100, "it is read on and on");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    until("the reason", || reason(&informer).contains("a page of the list is longer than 10000 bytes")).await;
    assert!(sent <= 12, "{sent}");
}

/// Brackets are parsed without a stack of their depth, and the error concerns one object.
#[tokio::test(start_paused = true)]
async fn a_million_brackets_are_one_object_that_does_not_decode() {
    const BRACKETS: usize = 1 << 20;
    let (factory, mut api) = factory_with(paged());
    let informer = informer(&factory);
    let nested = format!("{}{}", "[".repeat(BRACKETS), "]".repeat(BRACKETS));
    let odd = |version: u64| {
        let mut odd = widget("team-a/odd", version, 0);
        odd["spec"] = json!("NESTED");
        odd.to_string().replace("\"NESTED\"", &nested)
    };
    let items = format!("{},{}", odd(9), widget("team-a/fine", 9, 1));
    let list = format!(r#"{{"kind":"WidgetList","metadata":{{"resourceVersion":"10"}},"items":[{items}]}}"#);
    api.list().await.text(200, &list);
    let watch = api.watch_from(10).await.open();
    until("both", || informer.store().len() == 2).await;
    assert_eq!(informer.store().undecodable().len(), 1);
    watch.raw(&format!(r#"{{"type":"MODIFIED","object":{}}}"#, odd(11)));
    watch.put(&widget("team-a/fine", 12, 2));
    until("the other", || held(&informer).contains(&"team-a/fine=2".to_owned())).await;
    assert_eq!(reason(&informer), "");
}

/// The watch is busy, but reports no change.
#[tokio::test(start_paused = true)]
async fn a_watch_that_repeats_without_end_is_given_up() {
    let scene = synced_with(bounded(), &page_of(0, 5)).await;
    let mut api = scene.api;
    let mut watch = scene.watch;
    for _ in 0..3 {
        let mut sent = 0;
        while watch
            .lines
            .send(Ok(format!(r#"{{"type":"MODIFIED","object":{}}}{}"#, widget("team-a/w1", 10, 1), "\n").into_bytes()))
            .is_ok()
        {
            sent += 1;
            assert!(sent < 40_000, "it is heard on and on");
            if sent % 1_000 == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        assert!(sent > 10_000, "{sent}");
        assert!(reason(&scene.informer).contains("again and again"), "{}", reason(&scene.informer));
        let call = api.call().await;
        if !call.is_watch() {
            // A list replaces the watch.
            call.page(30, &page_of(0, 5), None);
            return;
        }
        watch = call.open();
    }
    panic!("no list takes its place");
}

/// A new version after each of them hides them from the count of repeated events.
#[tokio::test(start_paused = true)]
async fn objects_without_names_that_come_without_end_have_few_lines_a_minute_and_a_sum() {
    let scene = synced_with(Settings { watch_idle: Duration::from_secs(3600), ..paged() }, &page_of(0, 1)).await;
    let (said, _log) = CapturedLog::begin();
    for n in 0..1_000 {
        scene.watch.put(&json!({}));
        scene.watch.put(&widget("team-a/w0", 11 + n, 1));
    }
    until("all of them", || scene.informer.status().nameless == 1_000).await;
    let lines = |said: String| said.lines().filter(|line| line.contains("skipped items")).count();
    assert_eq!(lines(said.take()), 1);
    tokio::time::sleep(Duration::from_secs(60)).await;
    scene.watch.put(&json!({}));
    until("one more", || scene.informer.status().nameless == 1_001).await;
    let sum = said.take();
    assert!(sum.contains("items=1000"), "{sum}");
    assert_eq!(lines(sum), 1);
}
