//! Tests of reading a store.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    task::{Context, Poll, Wake, Waker},
};

use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    DecodeError, Metadata, Store, UnknownIndex, informer::progress::Progress, informer::queue::Slot,
    projection::no_identity,
};

fn by_size(object: &Object<Widget>) -> Vec<String> {
    object.decoded().map(|widget| widget.spec.size.to_string()).into_iter().collect()
}

fn names(found: &[Arc<Object<Widget>>]) -> Vec<String> {
    found.iter().map(|object| object.key().to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_store_is_read_in_the_order_of_namespace_and_name() {
    let there = [widget("two/a", 1, 1), widget("one/b", 2, 2), widget("one/a", 3, 3)];
    let scene = synced(&there).await;
    let store = scene.informer.store();
    assert_eq!(store.keys(), [key("one/a"), key("one/b"), key("two/a")]);
    assert_eq!(names(&store.list()), ["one/a", "one/b", "two/a"]);
    assert_eq!(names(&store.in_namespace("one")), ["one/a", "one/b"]);
    assert!(store.in_namespace("three").is_empty());
    assert_eq!(store.get(&key("one/b")).unwrap().decoded().unwrap().spec.size, 2);
    assert!(store.get(&key("two/b")).is_none());
    let namespaces: Vec<_> = store.in_namespace("one").iter().map(|o| o.metadata.key.namespace.clone()).collect();
    assert!(arcstr::ArcStr::ptr_eq(&namespaces[0], &namespaces[1]), "shared text");
}

#[tokio::test(start_paused = true)]
async fn an_index_added_late_holds_what_is_there_and_follows() {
    let mut scene = synced(&[widget("one/a", 1, 1), widget("one/b", 2, 1), odd_widget("one/c", 3)]).await;
    let store = scene.informer.store();
    assert_eq!(store.by_index("size", "1").unwrap_err(), UnknownIndex("size".into()));
    assert!(store.add_index("size", by_size));
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
    assert_eq!(names(&store.by_index("brittle", "fine").unwrap()), ["one/b"]);
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
    let store = Arc::new(Store::<Widget>::new([], (no_identity, None), Arc::clone(&progress)));
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
