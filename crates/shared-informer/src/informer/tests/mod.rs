//! Tests of the whole module over HTTP, against an API server scripted by each test. Where time matters the clock is
//! tokio's paused one, which jumps as soon as all tasks are idle: no test waits in real time.

mod handlers;
mod hostile;
mod lifecycle;
mod limit;
mod lists;
mod model;
mod namespaces;
mod outages;
mod streams;
mod watches;

use std::{io, sync::Arc, time::Duration};

use axum::body::Body;
use http::{Request, Response};
use kube::{
    Client,
    core::{ApiResource, GroupVersionKind},
};
use serde::Deserialize;
use serde_json::{Value, json};
use testkit::{PATIENCE, soon, until_true as until};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tower_test::mock;

use super::{Event, Factory, Handler, Informer, Query, Registration, Settings};
use crate::{Object, ObjectKey, Projection};

#[derive(Debug, Deserialize, PartialEq)]
struct Widget {
    spec: Spec,
}

#[derive(Debug, Deserialize, PartialEq)]
struct Spec {
    size: i64,
}

fn widgets() -> ApiResource {
    let kind = GroupVersionKind::gvk("example.io", "v1", "Widget");
    ApiResource::from_gvk_with_plural(&kind, "widgets")
}

/// Returns a widget named `namespace/name`, whose uid is its name.
fn widget(key: &str, version: u64, size: i64) -> Value {
    let (namespace, name) = key.split_once('/').unwrap();
    json!({
        "apiVersion": "example.io/v1",
        "kind": "Widget",
        "metadata": {
            "namespace": namespace, "name": name, "uid": name, "resourceVersion": version.to_string(),
        },
        "spec": { "size": size },
    })
}

/// Returns the widget with another uid, as a new object of the same name.
fn with_uid(mut widget: Value, uid: &str) -> Value {
    widget["metadata"]["uid"] = uid.into();
    widget
}

/// Returns a widget that doesn't decode.
fn odd_widget(key: &str, version: u64) -> Value {
    let mut odd = widget(key, version, 0);
    odd["spec"]["size"] = "huge".into();
    odd
}

/// Returns a factory on the current runtime, and its API server.
fn factory_with(settings: Settings) -> (Factory, Api) {
    let (service, handle) = mock::pair::<Request<kube::client::Body>, Response<Body>>();
    let client = Client::new(service, "default");
    let factory = Factory::new(client, tokio::runtime::Handle::current(), settings);
    let early = Vec::new();
    (factory, Api { handle, early })
}

/// Returns the settings of most tests: lists in pages.
fn paged() -> Settings {
    Settings { streaming_lists: false, ..Settings::default() }
}

fn factory() -> (Factory, Api) {
    factory_with(paged())
}

fn informer(factory: &Factory) -> Informer<Widget> {
    factory.informer(Query::all(widgets()), Projection::serde())
}

/// Returns an informer for which the size of a widget is its number of bytes.
fn weighing(factory: &Factory) -> Informer<Widget> {
    let bytes = |widget: &Widget| usize::try_from(widget.spec.size).unwrap();
    factory.informer(Query::all(widgets()), Projection::serde().with_bytes(bytes))
}

/// Returns an informer that has listed these widgets at version 10, with its recorder and its watch from there.
async fn synced(widgets: &[Value]) -> Scene {
    synced_with(paged(), widgets).await
}

async fn synced_with(settings: Settings, widgets: &[Value]) -> Scene {
    let (factory, mut api) = factory_with(settings);
    let informer = informer(&factory);
    let mut seen = Seen::of(&informer);
    api.list().await.page(10, widgets, None);
    let watch = api.watch_from(10).await.open();
    seen.until_synced().await;
    Scene { factory, api, informer, seen, watch }
}

struct Scene {
    factory: Factory,
    api: Api,
    informer: Informer<Widget>,
    seen: Seen,
    watch: Watch,
}

/// The API server's side.
struct Api {
    handle: mock::Handle<Request<kube::client::Body>, Response<Body>>,
    /// Requests that arrived while another one was awaited.
    early: Vec<Call>,
}

impl Api {
    /// Returns the next request, of any kind.
    async fn call(&mut self) -> Call {
        if !self.early.is_empty() {
            return self.early.remove(0);
        }
        self.next().await
    }

    async fn next(&mut self) -> Call {
        let (request, answer) = soon("a request", self.handle.next_request()).await.unwrap();
        Call { request, answer }
    }

    /// Returns the next request, which must be the first page of a list.
    async fn list(&mut self) -> Call {
        let call = self.call().await;
        assert!(!call.is_watch(), "a watch: {}", call.request.uri());
        assert_eq!(call.parameter("continue"), None);
        assert_eq!(call.parameter("resourceVersion"), None);
        call
    }

    /// Returns the next request, which must be for the page of this token.
    async fn page(&mut self, token: &str) -> Call {
        let call = self.call().await;
        assert_eq!(call.parameter("continue").as_deref(), Some(token));
        call
    }

    /// Returns the next request, which must be a watch from this version.
    async fn watch_from(&mut self, version: u64) -> Call {
        let call = self.call().await;
        assert!(call.is_watch(), "no watch: {}", call.request.uri());
        assert_eq!(call.parameter("allowWatchBookmarks").as_deref(), Some("true"));
        assert_eq!(call.parameter("resourceVersion"), Some(version.to_string()));
        call
    }

    /// Returns the next request for this namespace; others are kept for later.
    async fn in_namespace(&mut self, namespace: &str) -> Call {
        let part = format!("/namespaces/{namespace}/");
        let here = |call: &Call| call.request.uri().path().contains(&part);
        if let Some(position) = self.early.iter().position(here) {
            return self.early.remove(position);
        }
        loop {
            let call = self.next().await;
            if here(&call) {
                return call;
            }
            self.early.push(call);
        }
    }

    /// Asserts that no request arrives in this time.
    async fn quiet_for(&mut self, time: Duration) {
        assert!(self.early.is_empty());
        if let Ok(Some((request, _))) = tokio::time::timeout(time, self.handle.next_request()).await {
            panic!("unexpected request: {}", request.uri());
        }
    }
}

/// A request to answer.
struct Call {
    request: Request<kube::client::Body>,
    answer: mock::SendResponse<Response<Body>>,
}

impl Call {
    fn parameter(&self, name: &str) -> Option<String> {
        let query = self.request.uri().query().unwrap_or_default();
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(found, _)| *found == name).map(|(_, value)| value.to_owned())
    }

    fn is_watch(&self) -> bool {
        self.parameter("watch").as_deref() == Some("true")
    }

    /// Answers with a page of a list.
    fn page(self, version: u64, items: &[Value], next: Option<&str>) {
        let metadata = json!({ "resourceVersion": version.to_string(), "continue": next });
        self.text(200, &json!({ "kind": "WidgetList", "metadata": metadata, "items": items }).to_string());
    }

    fn refuse(self, code: u16, message: &str) {
        let status = json!({ "kind": "Status", "status": "Failure", "code": code, "message": message });
        self.text(code, &status.to_string());
    }

    fn text(self, code: u16, body: &str) {
        let response = Response::builder().status(code).body(Body::from(body.to_owned()));
        self.answer.send_response(response.unwrap());
    }

    /// Refuses the connection.
    fn unreachable(self) {
        self.answer.send_error(io::Error::from(io::ErrorKind::ConnectionRefused));
    }

    /// Answers with an open stream.
    fn open(self) -> Watch {
        let (lines, body) = mpsc::unbounded_channel();
        let body = Body::from_stream(UnboundedReceiverStream::new(body));
        self.answer.send_response(Response::new(body));
        Watch { lines }
    }
}

/// The API server's side of a watch. Dropping it ends the watch properly.
struct Watch {
    lines: mpsc::UnboundedSender<Result<Vec<u8>, io::Error>>,
}

impl Watch {
    fn raw(&self, line: &str) {
        self.lines.send(Ok(format!("{line}\n").into_bytes())).unwrap();
    }

    fn send(&self, r#type: &str, object: &Value) {
        self.raw(&json!({ "type": r#type, "object": object }).to_string());
    }

    fn put(&self, object: &Value) {
        self.send("MODIFIED", object);
    }

    fn delete(&self, object: &Value) {
        self.send("DELETED", object);
    }

    fn bookmark(&self, version: u64) {
        self.send("BOOKMARK", &json!({ "metadata": { "resourceVersion": version.to_string() } }));
    }

    fn error(&self, code: u16, message: &str) {
        self.send("ERROR", &json!({ "kind": "Status", "code": code, "message": message }));
    }

    /// Breaks the connection.
    fn cut(self) {
        let broken = io::Error::from(io::ErrorKind::ConnectionReset);
        self.lines.send(Err(broken)).unwrap();
    }

    /// Waits until the client has closed the watch.
    async fn closed(self) {
        soon("the end of the watch", self.lines.closed()).await;
    }
}

/// The calls that a handler received, as text: `+ns/a=1` added, with `!` when initial; `ns/a:1>2` updated; `-ns/a=2`
/// deleted, with `?` when found by a list; `synced`.
struct Seen {
    received: mpsc::UnboundedReceiver<String>,
    registration: Registration<Widget>,
}

struct Recorder(mpsc::UnboundedSender<String>);

impl Handler<Widget> for Recorder {
    fn handle(&mut self, event: Event<Widget>) {
        let _ = self.0.send(shown(&event));
    }

    fn synced(&mut self) {
        let _ = self.0.send("synced".into());
    }
}

impl Seen {
    fn of(informer: &Informer<Widget>) -> Self {
        let (sender, received) = mpsc::unbounded_channel();
        let registration = informer.add_handler(Recorder(sender));
        Self { received, registration }
    }

    async fn next(&mut self) -> String {
        soon("an event", self.received.recv()).await.unwrap()
    }

    /// Returns the next events.
    async fn take(&mut self, count: usize) -> Vec<String> {
        let mut taken = Vec::new();
        for _ in 0..count {
            taken.push(self.next().await);
        }
        taken
    }

    /// Returns all events up to `synced`.
    async fn until_synced(&mut self) -> Vec<String> {
        let mut taken = Vec::new();
        loop {
            match self.next().await {
                synced if synced == "synced" => return taken,
                event => taken.push(event),
            }
        }
    }
}

fn shown(event: &Event<Widget>) -> String {
    let size = |object: &Arc<Object<Widget>>| match &object.content {
        Ok(widget) => widget.spec.size.to_string(),
        Err(_) => "odd".into(),
    };
    let key = event.key();
    match event {
        Event::Added { object, initial } => {
            format!("+{key}={}{}", size(object), if *initial { "!" } else { "" })
        }
        Event::Updated { old, new } => format!("{key}:{}>{}", size(old), size(new)),
        Event::Deleted { last, found_by_relist } => {
            format!("-{key}={}{}", size(last), if *found_by_relist { "?" } else { "" })
        }
    }
}

/// Returns the content of a store, as `ns/a=1`.
fn held(informer: &Informer<Widget>) -> Vec<String> {
    let held = informer.store().list();
    held.iter().map(|o| shown(&Event::Added { object: Arc::clone(o), initial: false })[1..].to_owned()).collect()
}

/// Returns the reason why an informer is broken; an empty one if it isn't.
fn reason(informer: &Informer<Widget>) -> String {
    informer.scopes().into_iter().find_map(|scope| scope.broken).map(|broken| broken.reason).unwrap_or_default()
}

fn key(key: &str) -> ObjectKey {
    let (namespace, name) = key.split_once('/').unwrap();
    ObjectKey::new(namespace, name)
}
