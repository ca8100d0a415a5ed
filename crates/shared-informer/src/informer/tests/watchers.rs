//! Tests of observing an informer: its failures, its handlers' queues, its counts, and its listers.

use std::sync::mpsc as blocking;

use parking_lot::Mutex;

use super::*;
use crate::{Phase, WatchError};

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handlers_queue_is_seen_and_never_longer_than_there_are_objects() {
    let mut scene = synced(&[]).await;
    let (allow, go_on) = blocking::channel::<()>();
    let go_on = Mutex::new(go_on);
    let (sender, mut received) = mpsc::unbounded_channel();
    let registration = scene.informer.add_named_handler("slow", move |event: Event<Widget>| {
        let _ = sender.send(shown(&event));
        let _ = go_on.lock().recv();
    });
    scene.watch.put(&widget("one/first", 11, 1));
    assert_eq!(soon("an event", received.recv()).await.unwrap(), "+one/first=1");
    for round in 0..50 {
        for name in ["one/a", "one/b", "one/c"] {
            scene.watch.put(&widget(name, 12 + round, 1));
        }
    }
    scene.watch.put(&widget("one/last", 100, 1));
    while scene.seen.next().await != "+one/last=1" {}
    assert_eq!(registration.queued(), 4);
    let handlers = scene.informer.status().handlers;
    let shown: Vec<_> = handlers.iter().map(|handler| (&*handler.name, handler.queued)).collect();
    assert_eq!(shown, [("unnamed", 0), ("slow", 4)]);
    drop((allow, registration));
    let informer = &scene.informer;
    until("one handler", || informer.status().handlers.len() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_store_keeps_no_informer_alive_and_stays_readable() {
    let Scene { factory, informer, seen, watch, .. } = synced(&[widget("one/a", 1, 1)]).await;
    let store = Arc::clone(informer.store());
    drop((informer, seen));
    watch.closed().await;
    until("no task", || factory.tasks_left() == 0).await;
    assert_eq!(store.len(), 1);
}

/// The kind of this informer is known only at run time.
#[tokio::test(start_paused = true)]
async fn any_kind_is_held_as_plain_json() {
    let (factory, mut api) = factory();
    let query = Query::namespaced(widgets(), ["one"]).labels("app=web").fields("metadata.name=a");
    let informer = factory.informer(query, Projection::<Value>::serde());
    let call = api.list().await;
    assert_eq!(call.parameter("labelSelector").as_deref(), Some("app%3Dweb"));
    assert_eq!(call.parameter("fieldSelector").as_deref(), Some("metadata.name%3Da"));
    call.page(10, &[widget("one/a", 1, 7)], None);
    informer.wait_for_sync(PATIENCE).await.unwrap();
    let object = informer.store().get(&key("one/a")).unwrap();
    assert_eq!(object.decoded().unwrap()["spec"]["size"], 7);
}
