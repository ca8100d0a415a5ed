//! Tests of observing an informer: its handlers' queues, its counts, and its listers.

use std::sync::mpsc as blocking;

use parking_lot::Mutex;

use super::*;

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
