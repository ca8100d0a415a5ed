//! Tests of servers that refuse, vanish or send nonsense: the reports, and the rate of requests.

use parking_lot::Mutex;
use testkit::CapturedLog;
use tokio::time::Instant;

use super::*;
use crate::{Phase, WatchError};

#[tokio::test(start_paused = true)]
async fn a_failing_server_is_asked_ever_less_often() {
    let (factory, mut api) = factory();
    let informer = informer(&factory);
    let began = Instant::now();
    for _ in 0..12 {
        api.list().await.refuse(403, "no");
    }
    let took = began.elapsed();
    // 0.5 + 1 + 2 + 4 + 8 + 6 × 10 seconds, less a random part of up to half.
    assert!(took > Duration::from_secs(37) && took < Duration::from_secs(76), "{took:?}");
    api.list().await.page(10, &[], None);
    informer.wait_for_sync(PATIENCE).await.unwrap();
    assert_eq!(informer.status().lists.first, 1, "retries don't count");
}

#[tokio::test(start_paused = true)]
async fn a_cut_watch_is_broken_until_it_is_resumed() {
    let mut scene = synced(&[widget("one/a", 1, 1)]).await;
    let informer = &scene.informer;
    scene.watch.cut();
    let retry = scene.api.watch_from(10).await;
    let since = informer.status().broken_since.unwrap();
    assert!(informer.status().reason.is_some());
    retry.unreachable();
    let retry = scene.api.watch_from(10).await;
    let status = informer.status();
    assert_eq!(status.broken_since, Some(since), "still the same outage");
    assert!(status.reason.unwrap().starts_with("connection refused"));
    assert_eq!(held(informer), ["one/a=1"], "what is known stays known");

    let watch = retry.open();
    until("a cure", || informer.status().broken_since.is_none()).await;
    assert_eq!((informer.status().watch_errors, informer.status().reason), (2, None));
    watch.put(&widget("one/a", 11, 2));
    assert_eq!(scene.seen.next().await, "one/a:1>2");
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_logged_when_it_begins_and_ever_more_rarely_with_its_length() {
    let mut scene = synced(&[]).await;
    let (log, _guard) = CapturedLog::begin();
    scene.watch.cut();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(30 * 60) {
        scene.api.watch_from(10).await.unreachable();
    }
    let said = log.take();
    let lines: Vec<_> = said.lines().filter(|line| line.contains("watch failed")).collect();
    // After 1, 2, 4, 8 and 16 minutes, by the first attempts that follow.
    let [cut, refused, reminders @ ..] = &lines[..] else { panic!("{said}") };
    assert!(reminders.len() == 5 && reminders.iter().all(|line| line.contains(" broken=")), "{said}");
    assert!(!cut.contains(" broken=") && refused.contains("connection refused"), "{said}");
    let _watch = scene.api.watch_from(10).await.open();
    until("a cure", || scene.informer.status().broken_since.is_none()).await;
    assert!(log.take().contains("works again"));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_at_once_is_not_resumed_in_a_hot_loop() {
    let mut scene = synced(&[]).await;
    drop(scene.watch);
    let began = Instant::now();
    for _ in 0..6 {
        drop(scene.api.watch_from(10).await.open());
    }
    assert!(began.elapsed() > Duration::from_secs(7), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_goes_and_comes_back_is_listed_again() {
    let mut scene = synced(&[widget("one/a", 1, 1)]).await;
    scene.watch.cut();
    scene.api.watch_from(10).await.text(404, "404 page not found");
    scene.api.list().await.text(404, "404 page not found");
    assert_eq!(held(&scene.informer), ["one/a=1"], "what is known stays known");
    scene.api.list().await.page(30, &[], None);
    assert_eq!(scene.seen.next().await, "-one/a=1?");
    assert_eq!(scene.informer.status().lists.error, 1);
}

#[rstest::rstest]
#[case::error(r#"{"type":"ERROR","object":{"kind":"Status","code":500,"message":"unable to decode"}}"#)]
#[case::not_json("<html>")]
#[case::unknown_type(r#"{"type":"NEWS","object":{}}"#)]
#[tokio::test(start_paused = true)]
async fn a_watch_that_sends_only_errors_gives_way_to_a_list(#[case] line: &str) {
    let mut scene = synced(&[]).await;
    scene.watch.raw(line);
    for _ in 0..2 {
        scene.api.watch_from(10).await.open().raw(line);
    }
    let list = scene.api.list().await;
    let since = scene.informer.status().broken_since;
    assert!(since.is_some());
    list.page(20, &[], None);
    // From then on a connection proves nothing; an event or a bookmark does.
    let watch = scene.api.watch_from(20).await.open();
    watch.bookmark(21);
    let informer = &scene.informer;
    until("the bookmark", || informer.status().events.bookmarks == 1).await;
    assert_eq!(informer.status().broken_since, None);
    assert_eq!((informer.status().lists.error, informer.status().watch_errors), (1, 3));
}

#[tokio::test(start_paused = true)]
async fn lists_whose_versions_expire_at_once_are_not_repeated_in_a_hot_loop() {
    let mut scene = synced(&[]).await;
    scene.watch.error(410, "too old");
    let began = Instant::now();
    for _ in 0..6 {
        scene.api.list().await.page(20, &[], None);
        scene.api.watch_from(20).await.refuse(410, "too old");
    }
    scene.api.list().await;
    // Six pauses of 0.5, 1, 2, 4, 8 and 10 s, each at least half as long.
    assert!(began.elapsed() > Duration::from_millis(12_700), "{:?}", began.elapsed());
    assert!(scene.informer.status().broken_since.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_list_that_never_answers_is_given_up_and_begun_anew() {
    let (factory, mut api) = factory_with(Settings { list_timeout: Duration::from_secs(10), ..paged() });
    let informer = informer(&factory);
    let _unanswered = api.list().await;
    let retry = api.list().await;
    assert_eq!(informer.status().reason.as_deref(), Some("no answer in 10s"));
    retry.page(10, &[], None);
    informer.wait_for_sync(PATIENCE).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_server_says_when_to_come_again() {
    let (factory, mut api) = factory();
    let _informer = informer(&factory);
    let busy = |seconds: u64| {
        let details = json!({ "retryAfterSeconds": seconds });
        json!({ "kind": "Status", "code": 429, "message": "busy", "details": details }).to_string()
    };
    api.list().await.text(429, &busy(15));
    api.quiet_for(Duration::from_secs(14)).await;
    for _ in 0..8 {
        api.list().await.text(429, &busy(1));
    }
    let answered = Instant::now();
    api.list().await;
    assert!(answered.elapsed() < Duration::from_secs(2), "no longer after many: {:?}", answered.elapsed());
}

#[tokio::test(start_paused = true)]
async fn after_an_outage_an_expired_version_is_listed_again_at_once() {
    let mut scene = synced(&[widget("one/a", 1, 1)]).await;
    scene.watch.cut();
    // A server that has just started may not have loaded its roles yet, and nothing is listed for that.
    for _ in 0..6 {
        scene.api.watch_from(10).await.refuse(403, "no watch for you");
    }
    let retry = scene.api.watch_from(10).await;
    assert_eq!(scene.informer.status().reason.as_deref(), Some("forbidden: no watch for you"));
    retry.refuse(410, "too old");
    let answered = Instant::now();
    scene.api.list().await.page(20, &[widget("one/a", 15, 2)], None);
    assert!(answered.elapsed() < Duration::from_millis(500), "{:?}", answered.elapsed());
    assert_eq!(scene.seen.next().await, "one/a:1>2");
}

#[tokio::test(start_paused = true)]
async fn watches_that_send_little_before_their_version_expires_make_no_hot_loop_of_lists() {
    let mut scene = synced(&[]).await;
    let began = Instant::now();
    let mut watch = scene.watch;
    for _ in 0..8 {
        watch.bookmark(10);
        watch.error(410, "too old");
        scene.api.list().await.page(10, &[], None);
        watch = scene.api.watch_from(10).await.open();
    }
    // The first list is free; each other one costs at least half of the minimum pause.
    assert!(began.elapsed() >= Duration::from_millis(7 * 250), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_gives_the_same_page_again_and_again_is_not_asked_in_a_hot_loop() {
    let (factory, mut api) = factory();
    let informer = informer(&factory);
    let began = Instant::now();
    for _ in 0..20 {
        api.call().await.page(10, &[widget("one/a", 1, 1)], Some("next"));
    }
    assert!(began.elapsed() > Duration::from_secs(10), "{:?}", began.elapsed());
    assert!(!informer.has_synced());
    let reason = informer.status().last_error.unwrap_or_default();
    assert!(reason.contains("same page"), "{reason}");
}

fn recorded(informer: &Informer<Widget>) -> (Arc<Mutex<Vec<WatchError>>>, crate::ErrorHook) {
    let errors = Arc::new(Mutex::new(Vec::new()));
    let record = Arc::clone(&errors);
    let hook = informer.on_error(move |error| record.lock().push(error.clone()));
    (errors, hook)
}

#[tokio::test(start_paused = true)]
async fn a_hook_hears_of_each_failure_until_it_is_dropped() {
    let mut scene = synced(&[]).await;
    let (errors, hook) = recorded(&scene.informer);
    let panics = scene.informer.on_error(|_| panic!("a hook's own trouble"));
    scene.watch.cut();
    scene.api.watch_from(10).await.refuse(410, "too old");
    scene.api.list().await.refuse(503, "not now");
    scene.api.list().await.page(20, &[], None);
    let watch = scene.api.watch_from(20).await.open();
    let heard: Vec<_> = errors.lock().iter().map(|error| (error.phase, error.code)).collect();
    assert_eq!(heard, [(Phase::Watch, None), (Phase::Watch, Some(410)), (Phase::List, Some(503))]);
    let last = errors.lock().pop().unwrap();
    assert_eq!(last.resource, "widgets.example.io/v1");
    assert_eq!((last.namespace, &*last.reason), (None, "server error 503: not now"));
    assert!(last.retry_in > Duration::ZERO);

    drop((hook, panics));
    watch.cut();
    scene.api.watch_from(20).await;
    assert_eq!(errors.lock().len(), 2, "nobody listens any more");
}
