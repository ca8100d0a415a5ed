//! The server as a client sees it, as far as the conformance suite can't test it on a real server too.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures::{StreamExt, TryStreamExt};
use http::{Method, Response};
use http_body_util::BodyExt;
use jiff::Timestamp;
use kube::client::Body;
use serde_json::{Value, json};

use super::*;
use crate::{
    api::{KindSpec, Resource},
    clock::Clock,
};

mod faults;
mod serving;
mod watches;

const MACHINES: &str = "/apis/cluster.x-k8s.io/v1beta2/namespaces/default/machines";

/// A server of Machines, and a client that shows each answer unchanged.
struct World {
    api: Api,
    server: ApiServer,
    client: kube::Client,
}

impl World {
    async fn start() -> Result<Self> {
        Self::start_with(ServerSettings::default()).await
    }

    async fn start_with(settings: ServerSettings) -> Result<Self> {
        let api = Api::new(Clock::driven(Timestamp::UNIX_EPOCH));
        api.define(KindSpec::new("cluster.x-k8s.io", "v1beta2", "Machine").with_version("v1beta1").with_scale());
        let server = ApiServer::start_with(api.clone(), settings).await?;
        let client = client(&server)?;
        Ok(Self { api, server, client })
    }

    fn machines() -> Resource {
        Resource::new("cluster.x-k8s.io", "v1beta2", "machines")
    }

    fn create(&self, name: &str) -> Result<()> {
        self.api.create(&Self::machines(), json!({"metadata": {"namespace": "default", "name": name}}))?;
        Ok(())
    }

    fn label(&self, name: &str, value: &str) -> Result<()> {
        let mut machine = (*self.api.get(&Self::machines(), "default", name)?).clone();
        machine["metadata"]["labels"] = json!({"a": value});
        self.api.update(&Self::machines(), machine)?;
        Ok(())
    }

    async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Response<Body>> {
        let request = http::Request::builder().method(method).uri(path).header("content-type", "application/json");
        let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        Ok(self.client.send(request.body(Body::from(body))?).await?)
    }

    async fn get(&self, path: &str) -> Result<(u16, Value)> {
        let response = self.send(Method::GET, path, None).await?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await?.to_bytes();
        Ok((status, serde_json::from_slice(&body)?))
    }

    async fn post(&self, name: &str) -> Result<u16> {
        let machine = json!({"metadata": {"name": name}});
        Ok(self.send(Method::POST, MACHINES, Some(&machine)).await?.status().as_u16())
    }

    async fn watch(&self, query: &str) -> Result<Lines> {
        let path = format!("{MACHINES}?watch=true&resourceVersion={}&{query}", self.api.revision());
        let response = self.send(Method::GET, &path, None).await?;
        ensure!(response.status() == 200, "the watch was answered with {}", response.status());
        let body = response.into_body().into_data_stream().map_err(anyhow::Error::from);
        Ok(Lines { body: body.map_ok(|piece| piece.to_vec()).boxed(), rest: Vec::new() })
    }
}

fn client(server: &ApiServer) -> Result<kube::Client> {
    let mut config = kube::Config::new(server.url().parse()?);
    config.default_retry = false;
    Ok(kube::Client::try_from(config)?)
}

/// The lines of a watch.
struct Lines {
    body: futures::stream::BoxStream<'static, Result<Vec<u8>>>,
    rest: Vec<u8>,
}

impl Lines {
    /// Returns the next line, or `None` if the watch has ended.
    async fn line(&mut self) -> Result<Option<String>> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Ok(Some(String::from_utf8(line)?));
            }
            match tokio::time::timeout(Duration::from_secs(20), self.body.next()).await.context("nothing came")? {
                Some(piece) => self.rest.extend(piece?),
                None if self.rest.is_empty() => return Ok(None),
                None => bail!("the watch ended within a line"),
            }
        }
    }

    /// Returns the next event: its type, and the value of the object's label.
    async fn event(&mut self) -> Result<(String, String)> {
        let line = self.line().await?.context("the watch has ended")?;
        let event: Value = serde_json::from_str(&line)?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Ok((text(&event["type"]), text(&event["object"]["metadata"]["labels"]["a"])))
    }
}

fn event(kind: &str, label: &str) -> (String, String) {
    (kind.to_owned(), label.to_owned())
}
