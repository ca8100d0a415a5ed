//! Tests of the informer over real connections, for behaviour that canned answers can't show.

use std::{convert::Infallible, net::SocketAddr, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::{RawQuery, State},
    response::Response,
    routing::get,
};
use kube::{
    Client, Config,
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};
use shared_informer::{AsOf, Factory, Informer, ObjectKey, Projection, Query, Settings};
use testkit::{PATIENCE, serve_at, soon, until_true as until};
use tokio::{sync::mpsc, task::JoinHandle};
use tokio_stream::wrappers::UnboundedReceiverStream;

type Lines = mpsc::UnboundedSender<Result<String, Infallible>>;

#[derive(Clone)]
struct Api {
    watches: mpsc::UnboundedSender<Lines>,
    /// True if it serves streamed lists, and hands them to the test as well.
    streams: bool,
}

/// Starts an API server with one widget in its list, which hands every watch to the test.
async fn serve(address: SocketAddr, watches: mpsc::UnboundedSender<Lines>) -> (SocketAddr, JoinHandle<()>) {
    serve_api(address, Api { watches, streams: false }).await
}

async fn serve_api(address: SocketAddr, api: Api) -> (SocketAddr, JoinHandle<()>) {
    serve_at(address, Router::new().route("/apis/example.io/v1/widgets", get(answer)).with_state(api)).await
}

async fn answer(State(Api { watches, streams }): State<Api>, RawQuery(query): RawQuery) -> Response {
    let query = query.unwrap_or_default();
    if query.contains("sendInitialEvents=true") && !streams {
        let refusal = Response::builder().status(422).body(Body::from("{}"));
        return refusal.unwrap();
    }
    if query.contains("watch=true") {
        let (lines, body) = mpsc::unbounded_channel();
        watches.send(lines).unwrap();
        return Response::new(Body::from_stream(UnboundedReceiverStream::new(body)));
    }
    let list = json!({ "metadata": { "resourceVersion": "10" }, "items": [widget("a")] });
    Response::new(Body::from(list.to_string()))
}

fn widget(name: &str) -> Value {
    json!({ "metadata": { "name": name, "uid": name, "resourceVersion": "1" } })
}

fn widgets_of(factory: &Factory) -> Informer<Value> {
    let kind = GroupVersionKind::gvk("example.io", "v1", "Widget");
    let widgets = ApiResource::from_gvk_with_plural(&kind, "widgets");
    factory.informer(Query::all(widgets), Projection::serde())
}

fn factory(address: SocketAddr) -> Factory {
    let config = Config::new(format!("http://{address}").parse().unwrap());
    let settings = Settings {
        backoff_min: Duration::from_millis(5),
        backoff_max: Duration::from_millis(20),
        ..Settings::default()
    };
    let client = Client::try_from(config).unwrap();
    Factory::new(client, tokio::runtime::Handle::current(), settings)
}

#[tokio::test]
async fn events_come_as_they_are_sent_and_the_last_handle_closes_the_connection() {
    let (watches, mut opened) = mpsc::unbounded_channel();
    let (address, server) = serve(([127, 0, 0, 1], 0).into(), watches).await;
    let factory = factory(address);
    let informer = widgets_of(&factory);
    informer.wait_for_sync(PATIENCE).await.unwrap();
    let watch = soon("a watch", opened.recv()).await.unwrap();
    let event = json!({ "type": "ADDED", "object": widget("b") });
    watch.send(Ok(format!("{event}\n"))).unwrap();
    until("the event", || informer.store().len() == 2).await;
    drop(informer);
    soon("the end of the watch", watch.closed()).await;
    assert!(factory.statuses().is_empty());
    server.abort();
}

#[tokio::test]
async fn the_state_as_of_a_version_is_known_once_the_list_or_the_watch_reaches_that_version() {
    let (watches, mut opened) = mpsc::unbounded_channel();
    let (address, server) = serve(([127, 0, 0, 1], 0).into(), watches).await;
    let informer = widgets_of(&factory(address));
    let watch = soon("a watch", opened.recv()).await.unwrap();
    let as_of = |name, version| match informer.lister().as_of(&ObjectKey::cluster(name), version) {
        AsOf::Present(_) => "held",
        AsOf::Absent => "absent",
        AsOf::Behind => "behind",
    };
    // The list is of version 10, though its only object was written at 1.
    assert_eq!(
        [("a", 10), ("b", 10), ("a", 11)].map(|(name, version)| as_of(name, version)),
        ["held", "absent", "behind"]
    );
    let mut b = widget("b");
    b["metadata"]["resourceVersion"] = "12".into();
    watch.send(Ok(format!("{}\n", json!({ "type": "ADDED", "object": b })))).unwrap();
    until("the event", || as_of("a", 12) == "held").await;
    assert_eq!([as_of("b", 12), as_of("b", 13)], ["held", "behind"]);
    let bookmark = json!({ "metadata": { "resourceVersion": "20" } });
    watch.send(Ok(format!("{}\n", json!({ "type": "BOOKMARK", "object": bookmark })))).unwrap();
    until("the bookmark", || as_of("b", 20) == "held").await;
    assert_eq!([as_of("c", 20), as_of("c", 21)], ["absent", "behind"]);
    server.abort();
}

#[tokio::test]
async fn nothing_is_known_as_of_a_version_while_all_is_listed_anew() {
    let (watches, mut opened) = mpsc::unbounded_channel();
    let (address, server) = serve_api(([127, 0, 0, 1], 0).into(), Api { watches, streams: true }).await;
    let informer = widgets_of(&factory(address));
    let list = |version: &str| {
        let end = json!({ "metadata": { "resourceVersion": version, "annotations": { "k8s.io/initial-events-end": "true" } } });
        Ok(format!("{}\n", json!({ "type": "BOOKMARK", "object": end })))
    };
    let is_behind = || matches!(informer.lister().as_of(&ObjectKey::cluster("a"), 5), AsOf::Behind);
    let first = soon("a streamed list", opened.recv()).await.unwrap();
    assert!(is_behind());
    first.send(list("10")).unwrap();
    until("the list", || !is_behind()).await;
    let gone = json!({ "kind": "Status", "code": 410, "reason": "Expired", "message": "too old" });
    first.send(Ok(format!("{}\n", json!({ "type": "ERROR", "object": gone })))).unwrap();
    let second = soon("a new list", opened.recv()).await.unwrap();
    assert!(is_behind(), "the backup that was restored may be of version 3");
    second.send(list("3")).unwrap();
    until("the new list", || informer.status().lists.gone == 1 && informer.status().lists.streamed == 2).await;
    assert!(is_behind());
    server.abort();
}

#[tokio::test]
async fn a_streamed_list_and_its_watch_are_one_connection() {
    let (watches, mut opened) = mpsc::unbounded_channel();
    let (address, server) = serve_api(([127, 0, 0, 1], 0).into(), Api { watches, streams: true }).await;
    let factory = factory(address);
    let informer = widgets_of(&factory);
    let watch = soon("a streamed list", opened.recv()).await.unwrap();
    let end = json!({ "metadata": {
        "resourceVersion": "10", "annotations": { "k8s.io/initial-events-end": "true" },
    } });
    for (kind, object) in [("ADDED", widget("a")), ("ADDED", widget("b")), ("BOOKMARK", end), ("ADDED", widget("c"))] {
        watch.send(Ok(format!("{}\n", json!({ "type": kind, "object": object })))).unwrap();
    }
    until("the event after the list", || informer.store().len() == 3).await;
    assert!(informer.has_synced());
    assert_eq!(informer.status().lists.streamed, 1);
    assert!(opened.try_recv().is_err(), "there is one connection");
    factory.shutdown().await;
    server.abort();
}

#[tokio::test]
async fn a_server_that_goes_away_differs_from_a_quiet_one_and_is_found_again() {
    let (watches, mut opened) = mpsc::unbounded_channel();
    let (address, server) = serve(([127, 0, 0, 1], 0).into(), watches.clone()).await;
    let factory = factory(address);
    let informer = widgets_of(&factory);
    let watch = soon("a watch", opened.recv()).await.unwrap();
    until("a quiet watch", || informer.has_synced()).await;
    assert_eq!(informer.status().broken_since, None);

    server.abort();
    assert!(server.await.unwrap_err().is_cancelled());
    drop(watch);
    let refused = || {
        let reason = informer.status().reason;
        reason.is_some_and(|reason| reason.starts_with("connection refused"))
    };
    until("a refusal", refused).await;
    assert!(informer.status().broken_since.is_some());
    assert_eq!(informer.store().len(), 1, "what is known stays known");

    let (_, server) = serve(address, watches).await;
    let _watch = soon("a watch", opened.recv()).await.unwrap();
    until("a cure", || informer.status().broken_since.is_none()).await;
    assert_eq!(informer.status().lists.first, 1);
    factory.shutdown().await;
    server.abort();
}
