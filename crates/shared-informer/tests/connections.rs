//! Tests of the informer over real connections, for behaviour that canned answers can't show.
#![allow(clippy::unwrap_used)]

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
use shared_informer::{Factory, Informer, Projection, Query, Settings};
use testkit::{PATIENCE, serve_at, soon, until_true as until};
use tokio::{sync::mpsc, task::JoinHandle};
use tokio_stream::wrappers::UnboundedReceiverStream;

type Lines = mpsc::UnboundedSender<Result<String, Infallible>>;

/// Starts an API server with one widget in its list, which hands every watch to the test.
async fn serve(address: SocketAddr, watches: mpsc::UnboundedSender<Lines>) -> (SocketAddr, JoinHandle<()>) {
    serve_at(address, Router::new().route("/apis/example.io/v1/widgets", get(answer)).with_state(watches)).await
}

async fn answer(State(watches): State<mpsc::UnboundedSender<Lines>>, RawQuery(query): RawQuery) -> Response {
    let query = query.unwrap_or_default();
    if query.contains("sendInitialEvents=true") {
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
