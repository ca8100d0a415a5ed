//! A watch as on the wire: one JSON object per line.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures::{StreamExt, stream::BoxStream};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::Value;

/// The maximum wait for the next event.
const SOON: Duration = Duration::from_secs(15);

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
        let line = tokio::time::timeout(SOON, self.line()).await;
        let line = line.with_context(|| format!("nothing more within {} s on {}", SOON.as_secs(), self.request))??;
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
