//! Tests of sharing and ending informers.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use super::*;
use crate::Spawner;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_same_question_from_many_tasks_is_one_watch() {
    let (factory, mut api) = factory();
    let asking: Vec<_> = (0..50)
        .map(|_| {
            let factory = factory.clone();
            tokio::spawn(async move { informer(&factory) })
        })
        .collect();
    let informers = futures::future::join_all(asking).await;
    api.list().await.page(10, &[widget("one/a", 1, 1)], None);
    let _watch = api.watch_from(10).await.open();
    for informer in &informers {
        let informer = informer.as_ref().unwrap();
        informer.wait_for_sync(PATIENCE).await.unwrap();
        assert_eq!(informer.store().len(), 1);
    }
    assert_eq!(factory.tasks.tracker.len(), 1);
    api.quiet_for(Duration::from_millis(50)).await;
}

#[tokio::test(start_paused = true)]
async fn another_query_type_or_projection_is_another_informer() {
    let (factory, _api) = factory();
    let same = [informer(&factory), informer(&factory)];
    assert_eq!(factory.statuses().len(), 1);
    let query = Query::all(widgets());
    let other_type = factory.informer(query.clone(), Projection::<Value>::serde());
    let other_name = factory.informer(query.clone(), Projection::<Value>::new("bare", |_, _| Ok(Value::Null)));
    let other_query = factory.informer(query.labels("a=b"), Projection::<Value>::serde());
    let statuses = factory.statuses();
    assert_eq!(statuses.len(), 4);
    assert_eq!(statuses[3].selectors, "labels a=b");
    assert_eq!(other_query.query().labels.as_deref(), Some("a=b"));
    drop((same, other_type, other_name, other_query));
    assert!(factory.statuses().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_last_handle_ends_the_watch_and_is_forgotten() {
    let Scene { factory, mut api, informer, seen, watch } = synced(&[widget("one/a", 1, 1)]).await;
    let Seen { mut received, registration } = seen;
    let (clone, store) = (informer.clone(), Arc::clone(informer.store()));
    drop(informer);
    drop(clone);
    watch.put(&widget("one/b", 11, 2));
    assert_eq!(soon("an event", received.recv()).await.unwrap(), "+one/b=2", "a registration is a handle");
    assert_eq!(factory.statuses().len(), 1);

    drop(registration);
    watch.closed().await;
    assert!(factory.statuses().is_empty());
    until("no task", || factory.tasks.tracker.is_empty()).await;
    assert_eq!(store.len(), 2, "the store keeps no informer alive, and stays readable");

    // Another request starts a new informer.
    let _informer = super::informer(&factory);
    api.list().await;
}

#[tokio::test(start_paused = true)]
async fn after_shutdown_no_task_is_left_and_none_begins() {
    let Scene { factory, mut api, informer, seen, watch } = synced(&[widget("one/a", 1, 1)]).await;
    factory.shutdown().await;
    assert!(factory.tasks.tracker.is_empty());
    watch.closed().await;
    assert_eq!(held(&informer), ["one/a=1"], "the store stays readable");
    assert!(informer.status().stopped);

    let late = Seen::of(&informer);
    soon("an end", late.registration.synced()).await;
    assert!(!late.registration.has_synced());
    let query = Query::namespaced(widgets(), ["one"]);
    let another: Informer<Widget> = factory.informer(query, Projection::serde());
    let error = another.wait_for_sync(PATIENCE).await.unwrap_err();
    assert_eq!(error.missing[0].reason, "stopped");
    assert!(factory.tasks.tracker.is_empty());
    api.quiet_for(PATIENCE).await;
    drop(seen);
}

#[tokio::test(start_paused = true)]
async fn an_informer_that_is_not_synced_is_named_with_the_reason() {
    let (factory, mut api) = factory();
    let one: Informer<Widget> = factory.informer(Query::namespaced(widgets(), ["one"]), Projection::serde());
    let two: Informer<Widget> = factory.informer(Query::namespaced(widgets(), ["two"]), Projection::serde());
    let _three: Informer<Widget> = factory.informer(Query::namespaced(widgets(), ["three"]), Projection::serde());
    api.in_namespace("two").await.page(10, &[], None);
    let page = [widget("one/a", 1, 1)];
    api.in_namespace("one").await.page(10, &page, Some("next"));
    api.in_namespace("three").await.refuse(403, "no");
    two.wait_for_sync(PATIENCE).await.unwrap();
    let error = factory.wait_for_sync(Duration::from_millis(100)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "not synced after 100ms: \
         widgets.example.io/v1 (one): the first list is not complete yet, 1 objects so far; \
         widgets.example.io/v1 (three): forbidden: no"
    );
    drop(one);
}

#[tokio::test(start_paused = true)]
async fn clients_that_are_made_for_requests_end_once_the_answer_has_begun() {
    let (service, handle) = mock::pair::<Request<kube::client::Body>, Response<Body>>();
    let mut api = Api { handle, early: Vec::new() };
    let open = Arc::new(());
    let counted = Arc::clone(&open);
    let make = move || {
        let its = Arc::clone(&counted);
        let service = service.clone().map_request(move |request| {
            let _ = &its;
            request
        });
        Client::new(service, "default")
    };
    let factory = Factory::with_clients(make, tokio::runtime::Handle::current(), paged());
    let informer = super::informer(&factory);
    let list = api.list().await;
    assert_eq!(Arc::strong_count(&open), 3, "a client waits for the answer");
    list.page(10, &[widget("one/a", 1, 1)], None);
    let watch = api.watch_from(10).await.open();
    informer.wait_for_sync(PATIENCE).await.unwrap();
    until("no client", || Arc::strong_count(&open) == 2).await;
    watch.put(&widget("one/b", 11, 2));
    until("the event", || informer.store().len() == 2).await;
}

#[tokio::test]
async fn a_wrapper_of_the_spawner_wraps_every_task() {
    let wrapped = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&wrapped);
    let spawner = Spawner::from(Handle::current()).around(move |task| {
        counted.fetch_add(1, Ordering::Relaxed);
        task
    });
    spawner.spawn(async {}).await.unwrap();
    let tracker = TaskTracker::new();
    spawner.spawn_tracked(&tracker, async {});
    tracker.close();
    tracker.wait().await;
    assert_eq!(wrapped.load(Ordering::Relaxed), 2);
}
