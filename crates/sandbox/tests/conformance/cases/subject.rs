//! The API server under test as one case sees it: a namespace of its own, requests, answers and watches exactly as on
//! the wire (nothing is retried, decoded or interpreted in between), and small objects.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures::{StreamExt, stream::BoxStream};
use http::{
    HeaderMap, Method, Response,
    header::{ACCEPT, CONTENT_TYPE},
};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Value, json};

use super::ForgetHistory;

/// The maximum time until a change is visible everywhere, on a busy machine.
const SOON: Duration = Duration::from_secs(20);

/// The API server and the namespace that one case runs on.
pub(super) struct Subject<'a> {
    client: kube::Client,
    namespace: String,
    forget_history: &'a ForgetHistory,
}

impl<'a> Subject<'a> {
    pub(super) async fn new(client: kube::Client, number: usize, forget_history: &'a ForgetHistory) -> Result<Self> {
        let subject = Self { client, namespace: format!("conformance-{number}"), forget_history };
        let namespace = json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": { "name": subject.namespace },
        });
        subject.post("/api/v1/namespaces", &namespace).expect(201).await.context("making a namespace for the case")?;
        Ok(subject)
    }

    /// Returns the namespace of the case.
    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Returns a name for a cluster-scoped object that no other case uses.
    pub(super) fn unique(&self, name: &str) -> String {
        format!("{}-{name}", self.namespace)
    }

    /// Returns the path of a core kind's objects in the case's namespace.
    pub(super) fn core(&self, plural: &str) -> String {
        format!("/api/v1/namespaces/{}/{plural}", self.namespace)
    }

    /// Returns the path of the widgets in the case's namespace.
    pub(super) fn widgets(&self) -> String {
        format!("/apis/{GROUP}/{VERSION}/namespaces/{}/widgets", self.namespace)
    }

    /// Returns the path of a widget in the case's namespace.
    pub(super) fn widget(&self, name: &str) -> String {
        format!("{}/{name}", self.widgets())
    }

    pub(super) fn call(&self, method: Method, path: impl Into<String>) -> Call {
        Call::new(self.client.clone(), method, path.into())
    }

    pub(super) fn get(&self, path: impl Into<String>) -> Call {
        self.call(Method::GET, path)
    }

    pub(super) fn post(&self, path: impl Into<String>, body: &Value) -> Call {
        self.call(Method::POST, path).json(body)
    }

    pub(super) fn put(&self, path: impl Into<String>, body: &Value) -> Call {
        self.call(Method::PUT, path).json(body)
    }

    pub(super) fn delete(&self, path: impl Into<String>) -> Call {
        self.call(Method::DELETE, path)
    }

    pub(super) fn patch(&self, path: impl Into<String>, kind: Patch, body: &Value) -> Call {
        self.call(Method::PATCH, path).patch(kind, body)
    }

    /// Creates a widget and returns it.
    pub(super) async fn create(&self, name: &str, spec: &Value) -> Result<Value> {
        self.post(self.widgets(), &widget(name, spec)).expect(201).await
    }

    /// Changes a widget by a merge patch and returns it.
    pub(super) async fn merge(&self, name: &str, change: &Value) -> Result<Value> {
        self.patch(self.widget(name), Patch::Merge, change).expect(200).await
    }

    /// Makes all resource versions so far too old.
    pub(super) async fn forget_history(&self) -> Result<()> {
        (self.forget_history)().await.context("making the server forget its history")
    }
}

/// Calls `attempt` until it succeeds, and fails with its last error if that takes too long.
pub(super) async fn eventually<T>(what: &str, attempt: impl AsyncFnMut() -> Result<T>) -> Result<T> {
    testkit::attempt::eventually(what, SOON, attempt).await
}

/// Installs the kind Widget and waits until it is served in both versions.
pub(super) async fn install(client: &kube::Client) -> Result<()> {
    let call = |method, path: String| Call::new(client.clone(), method, path);
    call(Method::POST, CRDS.to_owned()).json(&definition("Widget")).expect(201).await?;
    for version in [VERSION, OLD_VERSION] {
        eventually("widgets served", async || {
            let found = call(Method::GET, format!("/apis/{GROUP}/{version}")).expect(200).await?;
            let resources = found["resources"].as_array().context("no resources")?;
            ensure!(resources.len() == 3, "it has {found}");
            let list = call(Method::GET, format!("/apis/{GROUP}/{version}/widgets")).expect(200).await?;
            ensure!(list["kind"] == "WidgetList", "the list is {list}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// The kinds of patches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patch {
    Json,
    Merge,
    Strategic,
}

impl Patch {
    fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json-patch+json",
            Self::Merge => "application/merge-patch+json",
            Self::Strategic => "application/strategic-merge-patch+json",
        }
    }
}

/// A request that hasn't been sent.
#[must_use]
pub(super) struct Call {
    client: kube::Client,
    method: Method,
    path: String,
    query: form_urlencoded::Serializer<'static, String>,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Call {
    pub(super) fn new(client: kube::Client, method: Method, path: String) -> Self {
        let query = form_urlencoded::Serializer::new(String::new());
        Self { client, method, path, query, headers: Vec::new(), body: Vec::new() }
    }

    /// Adds a query parameter, and escapes its value.
    pub(super) fn query(mut self, name: &str, value: &str) -> Self {
        self.query.append_pair(name, value);
        self
    }

    pub(super) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    pub(super) fn accept(self, value: &str) -> Self {
        self.header(ACCEPT.as_str(), value)
    }

    pub(super) fn json(self, body: &Value) -> Self {
        self.body("application/json", body.to_string())
    }

    pub(super) fn patch(self, kind: Patch, body: &Value) -> Self {
        self.body(kind.content_type(), body.to_string())
    }

    pub(super) fn body(mut self, content_type: &str, body: String) -> Self {
        self.body = body.into_bytes();
        self.header(CONTENT_TYPE.as_str(), content_type)
    }

    /// Sends the request and accepts any answer.
    pub(super) async fn answer(self) -> Result<Answer> {
        let (request, response) = self.send().await?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.with_context(|| format!("reading the answer to {request}"))?.to_bytes();
        let text = String::from_utf8(body.to_vec()).with_context(|| format!("the answer to {request}"))?;
        Ok(Answer { request, status: head.status.as_u16(), headers: head.headers, text })
    }

    /// Sends the request and accepts only JSON with this status code.
    pub(super) async fn expect(self, status: u16) -> Result<Value> {
        self.answer().await?.expect(status)
    }

    /// Sends the request and accepts only a refusal with this status code and reason. Returns the Status.
    pub(super) async fn refused(self, status: u16, reason: &str) -> Result<Value> {
        self.answer().await?.refused(status, reason)
    }

    /// Sends the request as a watch.
    pub(super) async fn watch(self) -> Result<Watch> {
        let (request, response) = self.query("watch", "true").send().await?;
        let status = response.status().as_u16();
        ensure!(status == 200, "{request} was answered with {status}, expected 200");
        Ok(Watch::new(request, response.into_body()))
    }

    async fn send(mut self) -> Result<(String, Response<Body>)> {
        let query = self.query.finish();
        let separator = if query.is_empty() { "" } else { "?" };
        let uri = format!("{}{separator}{query}", self.path);
        let request = format!("{} {uri}", self.method);
        let mut built = http::Request::builder().method(self.method).uri(uri);
        for (name, value) in self.headers {
            built = built.header(name, value);
        }
        let built = built.body(Body::from(self.body)).with_context(|| format!("building {request}"))?;
        let response = self.client.send(built).await.with_context(|| format!("sending {request}"))?;
        Ok((request, response))
    }
}

/// An answer that has been read to its end.
#[derive(Debug)]
pub(super) struct Answer {
    /// The request that it answers, for messages.
    pub(super) request: String,
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) text: String,
}

impl Answer {
    /// Returns the value of a header, or an empty string.
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// Returns the JSON, if the answer has this status code.
    pub(super) fn expect(&self, status: u16) -> Result<Value> {
        let Self { request, status: found, text, .. } = self;
        ensure!(*found == status, "{request} was answered with {found}, expected {status}: {text}");
        serde_json::from_str(text).with_context(|| format!("{request} was answered with no JSON: {text}"))
    }

    /// Returns the Status, if the answer is a refusal with this status code and reason.
    pub(super) fn refused(&self, status: u16, reason: &str) -> Result<Value> {
        let value = self.expect(status)?;
        let Self { request, .. } = self;
        let parts = ["apiVersion", "kind", "status", "reason"].map(|name| value[name].as_str().unwrap_or_default());
        ensure!(
            parts == ["v1", "Status", "Failure", reason],
            "{request} was not refused with the reason {reason}: {value}"
        );
        ensure!(value["code"] == status, "the code in the Status is not {status}: {value}");
        let message = value["message"].as_str().unwrap_or_default();
        ensure!(!message.is_empty(), "{request} was refused without a message: {value}");
        Ok(value)
    }
}

/// The maximum wait for the next event.
const NEXT: Duration = Duration::from_secs(15);

/// A line of a watch.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) kind: String,
    pub(super) object: Value,
}

impl Event {
    pub(super) fn name(&self) -> &str {
        self.object["metadata"]["name"].as_str().unwrap_or_default()
    }
}

/// A watch in progress, which ends when it is dropped.
pub(super) struct Watch {
    request: String,
    body: BoxStream<'static, Result<Vec<u8>>>,
    buffer: Vec<u8>,
}

impl Watch {
    pub(super) fn new(request: String, body: Body) -> Self {
        let body = body.into_data_stream().map(|chunk| Ok(chunk?.to_vec())).boxed();
        Self { request, body, buffer: Vec::new() }
    }

    /// Returns the next event, or `None` if the server has ended the watch.
    pub(super) async fn next(&mut self) -> Result<Option<Event>> {
        let line = tokio::time::timeout(NEXT, self.line()).await;
        let line = line.with_context(|| format!("nothing more within {} s on {}", NEXT.as_secs(), self.request))??;
        let Some(line) = line else { return Ok(None) };
        let mut value: Value = serde_json::from_slice(&line)
            .with_context(|| format!("no JSON on {}: {}", self.request, String::from_utf8_lossy(&line)))?;
        let Some(kind) = value["type"].as_str().map(str::to_owned) else {
            bail!("an event without type on {}: {value}", self.request)
        };
        Ok(Some(Event { kind, object: value["object"].take() }))
    }

    /// Returns the object of the next event, which must have this type and name.
    pub(super) async fn expect(&mut self, kind: &str, name: &str) -> Result<Value> {
        let event = self.next().await?;
        self.check(event, kind, name)
    }

    /// Returns the object of the next event that is no bookmark. A server may send one at any time.
    pub(super) async fn expect_after_bookmarks(&mut self, kind: &str, name: &str) -> Result<Value> {
        let mut event = self.next().await?;
        while event.as_ref().is_some_and(|event| event.kind == "BOOKMARK") {
            event = self.next().await?;
        }
        self.check(event, kind, name)
    }

    fn check(&self, event: Option<Event>, kind: &str, name: &str) -> Result<Value> {
        let event = event.with_context(|| format!("{} ended before {kind} {name}", self.request))?;
        ensure!(
            event.kind == kind && event.name() == name,
            "expected {kind} {name} on {}, got {} {}",
            self.request,
            event.kind,
            event.object
        );
        Ok(event.object)
    }

    /// Returns the object of the next event, which must be a bookmark.
    pub(super) async fn bookmark(&mut self) -> Result<Value> {
        self.expect("BOOKMARK", "").await
    }

    /// Waits until the server ends the watch, without another event except bookmarks.
    pub(super) async fn ended(&mut self) -> Result<()> {
        while let Some(event) = self.next().await? {
            ensure!(event.kind == "BOOKMARK", "expected the end of {}, got {event:?}", self.request);
        }
        Ok(())
    }

    async fn line(&mut self) -> Result<Option<Vec<u8>>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let rest = self.buffer.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.buffer, rest);
                line.pop();
                return Ok(Some(line));
            }
            match self.body.next().await {
                Some(chunk) => self.buffer.extend(chunk?),
                None if self.buffer.is_empty() => return Ok(None),
                None => bail!("{} ended within a line", self.request),
            }
        }
    }
}

/// A group that nobody else uses.
pub(super) const GROUP: &str = "conformance.sandbox.test";
/// The version in which objects are stored.
pub(super) const VERSION: &str = "v1";
/// Another served version, with the same fields.
pub(super) const OLD_VERSION: &str = "v1alpha1";

/// The path of CustomResourceDefinitions.
pub(super) const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Returns the definition of a kind with all features under test: two versions, both subresources, columns and names.
pub(super) fn definition(kind: &str) -> Value {
    let singular = kind.to_lowercase();
    let anything = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let spec = json!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "replicas": { "type": "integer", "format": "int32" },
            "colour": { "type": "string" },
        },
    });
    let version = |name: &str| {
        json!({
            "name": name,
            "served": true,
            "storage": name == VERSION,
            "subresources": {
                "status": {},
                "scale": {
                    "specReplicasPath": ".spec.replicas",
                    "statusReplicasPath": ".status.replicas",
                    "labelSelectorPath": ".status.selector",
                },
            },
            "additionalPrinterColumns": [
                { "name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas", "description": "How many there are to be" },
                { "name": "Phase", "type": "string", "jsonPath": ".status.phase" },
                { "name": "Colour", "type": "string", "jsonPath": ".spec.colour", "priority": 1 },
                { "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp" },
            ],
            "schema": { "openAPIV3Schema": { "type": "object", "properties": { "spec": spec, "status": anything } } },
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{singular}s.{GROUP}") },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "listKind": format!("{kind}List"),
                "plural": format!("{singular}s"),
                "singular": singular,
                "shortNames": [format!("{}x", &singular[..2])],
                "categories": ["conformance"],
            },
            "versions": [version(VERSION), version(OLD_VERSION)],
            "conversion": { "strategy": "None" },
        },
    })
}

/// Returns a widget.
pub(super) fn widget(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "Widget",
        "metadata": { "name": name },
        "spec": spec,
    })
}

/// Returns a widget with labels.
pub(super) fn labelled(name: &str, labels: &Value) -> Value {
    let mut widget = widget(name, &json!({}));
    widget["metadata"]["labels"] = labels.clone();
    widget
}

/// Returns a ConfigMap.
pub(super) fn config_map(name: &str, data: &Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": data })
}

/// Returns a Node.
pub(super) fn node(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name } })
}

/// Returns a Pod, which may be bound to a Node.
pub(super) fn pod(name: &str, node: Option<&str>) -> Value {
    let mut spec = json!({ "containers": [{ "name": "main", "image": "registry.invalid/main" }] });
    if let Some(node) = node {
        spec["nodeName"] = json!(node);
    }
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name }, "spec": spec })
}

/// Returns the resource version of an object or list, which must be a decimal number.
pub(super) fn version(object: &Value) -> Result<u64> {
    let text = object["metadata"]["resourceVersion"].as_str();
    let text = text.with_context(|| format!("no resourceVersion in {object}"))?;
    text.parse().with_context(|| format!("the resourceVersion {text:?} is no decimal number"))
}

/// Returns the names of a list's items, in their order.
pub(super) fn names(list: &Value) -> Result<Vec<&str>> {
    let items = list["items"].as_array().with_context(|| format!("no items in {list}"))?;
    Ok(items.iter().map(|item| item["metadata"]["name"].as_str().unwrap_or_default()).collect())
}

/// Returns an Event about a ConfigMap, for cases that need the server's separate store of Events.
pub(super) fn event(name: &str, namespace: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": { "name": name, "namespace": namespace },
        "involvedObject": { "apiVersion": "v1", "kind": "ConfigMap", "name": "a", "namespace": namespace },
        "reason": "Tried",
        "message": "for the suite",
        "type": "Normal",
    })
}
