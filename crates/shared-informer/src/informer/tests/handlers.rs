//! Tests of handlers: the events that they receive, and their isolation from each other.

use std::{
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc as blocking,
    },
    task::{Context, Poll, Wake, Waker},
};

use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    DecodeError, Metadata, Store, informer::progress::Progress, informer::queue::Slot, projection::no_identity,
};

#[tokio::test(start_paused = true)]
async fn a_late_handler_first_sees_what_is_there() {
    let mut scene = synced(&[widget("one/a", 1, 1), widget("one/b", 2, 2)]).await;
    let mut late = Seen::of(&scene.informer);
    assert_eq!(late.until_synced().await, ["+one/a=1!", "+one/b=2!"]);
    scene.watch.put(&widget("one/c", 11, 3));
    assert_eq!(late.next().await, "+one/c=3");
    assert_eq!(scene.seen.next().await, "+one/c=3");
}

#[tokio::test(start_paused = true)]
async fn a_removed_handler_receives_nothing_more() {
    let mut scene = synced(&[]).await;
    let Seen { mut received, registration } = Seen::of(&scene.informer);
    assert_eq!(received.recv().await.as_deref(), Some("synced"));
    drop(registration);
    scene.watch.put(&widget("one/a", 11, 1));
    assert_eq!(scene.seen.next().await, "+one/a=1");
    // Its task has ended and dropped the handler.
    assert_eq!(soon("the end", received.recv()).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_receives_the_next_event_and_harms_nobody() {
    let mut scene = synced(&[]).await;
    let (sender, mut received) = mpsc::unbounded_channel();
    let _registration = scene.informer.add_handler(move |event: Event<Widget>| {
        assert_ne!(&*event.object().metadata.key.name, "bad");
        sender.send(shown(&event)).unwrap();
    });
    scene.watch.put(&widget("one/bad", 11, 1));
    scene.watch.put(&widget("one/good", 12, 2));
    assert_eq!(soon("an event", received.recv()).await.as_deref(), Some("+one/good=2"));
    assert_eq!(scene.seen.take(2).await, ["+one/bad=1", "+one/good=2"]);
    assert_eq!(scene.informer.status().handler_panics, 1);
}

/// A handler that records its events, and returns only when allowed to.
struct Slow {
    received: mpsc::UnboundedSender<String>,
    go_on: blocking::Receiver<()>,
}

impl Handler<Widget> for Slow {
    fn handle(&mut self, event: Event<Widget>) {
        let _ = self.received.send(shown(&event));
        let _ = self.go_on.recv();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_slow_handler_delays_nobody_and_receives_the_sum() {
    let mut scene = synced(&[]).await;
    let (sender, mut received) = mpsc::unbounded_channel();
    let (allow, go_on) = blocking::channel();
    let slow = Slow { received: sender, go_on };
    let registration = scene.informer.add_named_handler("slow", slow);
    scene.watch.put(&widget("one/first", 11, 1));
    assert_eq!(soon("an event", received.recv()).await.as_deref(), Some("+one/first=1"));
    assert_eq!(scene.seen.next().await, "+one/first=1");

    // The handler blocks now, and all others go on.
    for (version, size) in (12..112).zip(1..) {
        scene.watch.put(&widget("one/a", version, size));
    }
    scene.watch.put(&widget("one/brief", 112, 1));
    scene.watch.delete(&widget("one/brief", 113, 1));
    scene.watch.put(&widget("one/first", 114, 2));
    scene.watch.put(&widget("one/first", 115, 3));
    let informer = &scene.informer;
    until("the last event", || {
        informer.store().get(&key("one/first")).is_some_and(|o| o.metadata.resource_version.number() == Some(115))
    })
    .await;
    while !scene.seen.next().await.starts_with("one/first:") {}
    let queued = |name: &str| {
        let handlers = informer.status().handlers;
        handlers.iter().find(|handler| &*handler.name == name).map(|handler| handler.queued)
    };
    assert_eq!(queued("slow"), Some(2), "one for each object, however often it has changed");
    until("the others' queue to be empty", || queued("unnamed") == Some(0)).await;

    drop(allow);
    assert_eq!(soon("an event", received.recv()).await.as_deref(), Some("+one/a=100"));
    assert_eq!(soon("an event", received.recv()).await.as_deref(), Some("one/first:1>3"));
    drop(registration);
    until("one handler", || informer.status().handlers.len() == 1).await;
    scene.factory.shutdown().await;
    assert_eq!(soon("the end", received.recv()).await, None);
}

/// With each event the handler is busy for longer than its turn may last, so that another task has one after it.
#[tokio::test]
async fn a_handler_lets_others_run_after_each_slow_event() {
    const EVENTS: usize = 20;
    let widgets: Vec<_> = (0..EVENTS).map(|number| widget(&format!("one/{number}"), 1, 1)).collect();
    let scene = synced(&widgets).await;
    let turns = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&turns);
    let other = tokio::spawn(async move {
        loop {
            counted.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    });
    let (sender, mut received) = mpsc::unbounded_channel();
    let _registration = scene.informer.add_handler(move |_: Event<Widget>| {
        let begun = std::time::Instant::now();
        while begun.elapsed() < Duration::from_millis(2) {
            std::hint::spin_loop();
        }
        sender.send(turns.load(Ordering::Relaxed)).unwrap();
    });
    let first = received.recv().await.unwrap();
    let mut last = first;
    for _ in 1..EVENTS {
        last = received.recv().await.unwrap();
    }
    other.abort();
    let turns = last - first;
    assert!((10..=20).contains(&turns), "others had {turns} turns");
}

/// Counts its wake-ups.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_is_woken_once_when_all_that_came_together_is_taken_in() {
    let progress = Arc::new(Progress::new(&Query::all(widgets()), CancellationToken::new()));
    let store = Arc::new(Store::<Widget>::new([], (no_identity, None), &Settings::default(), Arc::clone(&progress)));
    let slot = Arc::new(Slot::new("test".into(), &CancellationToken::new()));
    store.add_handler(Arc::clone(&slot));
    let received = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&received);
    let handler = move |_: Event<Widget>| {
        counted.fetch_add(1, Ordering::Relaxed);
    };
    let mut task = Box::pin(slot.run(handler, progress));
    let alarm = Arc::new(Wakes::default());
    let waker = Waker::from(Arc::clone(&alarm));
    let mut run = || task.as_mut().poll(&mut Context::from_waker(&waker));
    assert_eq!((run(), run()), (Poll::Pending, Poll::Pending));
    let before = alarm.0.load(Ordering::Relaxed);
    let woken = || alarm.0.load(Ordering::Relaxed) - before;
    let mut batch = store.batch();
    for name in ["a", "b", "c"] {
        let metadata = Metadata { key: ObjectKey::cluster(name), uid: "".into(), resource_version: "1".into() };
        assert!(batch.put(Object { metadata, content: Err(DecodeError::new("odd")) }));
        assert_eq!(woken(), 0);
    }
    drop(batch);
    assert_eq!(woken(), 1);
    assert_eq!(run(), Poll::Pending);
    assert_eq!(received.load(Ordering::Relaxed), 3);
    drop(store.batch());
    assert_eq!(woken(), 1, "nothing was queued");
}
