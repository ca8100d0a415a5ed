//! A request and its answer, exactly as on the wire: nothing is retried, decoded or interpreted in between.

use anyhow::{Context, Result, ensure};
use http::{
    HeaderMap, Method, Response,
    header::{ACCEPT, CONTENT_TYPE},
};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::Value;

use super::watch::Watch;

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
