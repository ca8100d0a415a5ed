//! Tests of resyncs: each handler has its own period, and none waits for another.

use super::*;
use crate::HandlerOptions;

/// Adds a handler with resyncs. Its events are recorded as text, resyncs with a leading `=`.
fn received_of(
    informer: &Informer<Widget>,
    period: Duration,
) -> (mpsc::UnboundedReceiver<String>, Registration<Widget>) {
    let (sender, received) = mpsc::unbounded_channel();
    let handler = move |event: Event<Widget>| {
        let text = if event.is_resync() { format!("={}", event.key()) } else { shown(&event) };
        let _ = sender.send(text);
    };
    let options = HandlerOptions::named("resynced").resync(period);
    (received, informer.add_handler_with(options, handler))
}

async fn take(received: &mut mpsc::UnboundedReceiver<String>, count: usize) -> Vec<String> {
    let mut taken = Vec::new();
    for _ in 0..count {
        taken.push(soon("an event", received.recv()).await.unwrap());
    }
    taken
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_asked_for_it_receives_everything_again_each_period() {
    let mut scene = synced(&[widget("one/a", 1, 1), widget("one/b", 2, 2)]).await;
    let period = Duration::from_secs(30);
    let (mut received, _registration) = received_of(&scene.informer, period);
    assert_eq!(take(&mut received, 2).await, ["+one/a=1!", "+one/b=2!"]);
    for _ in 0..3 {
        let began = tokio::time::Instant::now();
        assert_eq!(take(&mut received, 2).await, ["=one/a", "=one/b"]);
        let took = began.elapsed();
        assert!(took > period.mul_f64(0.89) && took <= period, "{took:?}");
    }
    scene.watch.put(&widget("one/a", 11, 5));
    scene.watch.delete(&widget("one/b", 12, 2));
    assert_eq!(take(&mut received, 3).await, ["one/a:1>5", "-one/b=2", "=one/a"]);
    // The other handler has no resync.
    assert_eq!(scene.seen.take(2).await, ["one/a:1>5", "-one/b=2"]);
    assert!(scene.seen.received.try_recv().is_err());
    let resyncs: Vec<_> = scene.informer.status().handlers.iter().map(|handler| handler.resyncs).collect();
    assert_eq!(resyncs, [0, 4]);
}

#[tokio::test(start_paused = true)]
async fn a_resync_waits_for_the_first_list() {
    let (factory, mut api) = factory();
    let informer = informer(&factory);
    let (mut received, _registration) = received_of(&informer, Duration::from_secs(10));
    api.list().await.page(10, &[widget("one/a", 1, 1)], Some("next"));
    let last = api.page("next").await;
    assert_eq!(take(&mut received, 1).await, ["+one/a=1!"]);
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert!(received.try_recv().is_err());
    last.page(10, &[widget("one/b", 2, 2)], None);
    assert_eq!(take(&mut received, 3).await, ["+one/b=2!", "=one/a", "=one/b"]);
}

/// More objects than one batch: changes are delivered in between, and never followed by an earlier state.
#[tokio::test(start_paused = true)]
async fn news_come_between_the_parts_of_a_long_resync() {
    let objects: Vec<_> = (0..1000).map(|n| widget(&format!("one/{n:04}"), 1, 1)).collect();
    let scene = synced(&objects).await;
    let (mut received, registration) = received_of(&scene.informer, Duration::from_secs(30));
    take(&mut received, 1000).await;
    assert_eq!(take(&mut received, 1).await, ["=one/0000"]);
    assert!(registration.queued() < 200, "{} are queued", registration.queued());
    scene.watch.delete(&widget("one/0999", 11, 1));
    let rest = take(&mut received, 999).await;
    let deleted = rest.iter().position(|event| event == "-one/0999=1").unwrap();
    assert!(deleted < 990, "it came last, at {deleted}");
    assert!(!rest.contains(&"=one/0999".to_owned()), "it is gone");
}

#[tokio::test(start_paused = true)]
async fn a_period_that_never_ends_is_no_resync_and_no_trouble() {
    let mut scene = synced(&[widget("one/a", 1, 1)]).await;
    let (mut received, registration) = received_of(&scene.informer, Duration::MAX);
    assert_eq!(take(&mut received, 1).await, ["+one/a=1!"]);
    tokio::time::advance(Duration::from_secs(3600)).await;
    scene.watch.put(&widget("one/a", 11, 5));
    assert_eq!(take(&mut received, 1).await, ["one/a:1>5"]);
    assert_eq!((scene.seen.next().await.as_str(), registration.queued()), ("one/a:1>5", 0));
}
