//! The server as a client sees it, as far as the conformance suite can't test it on a real server too.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures::{StreamExt, TryStreamExt};
use http::{Method, Response};
use http_body_util::BodyExt;
use jiff::Timestamp;
use kube::client::Body;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::{
    api::{KindSpec, Resource},
    clock::Clock,
    faults::{Fault, WatchFault},
};

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

#[rstest]
#[case::protobuf(Method::POST, "/api/v1/namespaces", "application/vnd.kubernetes.protobuf", "`kubectl create -f`")]
#[case::apply(Method::PATCH, "/api/v1/namespaces/a", "application/apply-patch+yaml", "without `--server-side`")]
#[tokio::test]
async fn a_body_that_is_not_read_is_refused_with_the_command_that_sends_another(
    #[case] method: Method,
    #[case] path: &str,
    #[case] content_type: &str,
    #[case] remedy: &str,
) -> Result<()> {
    let world = World::start().await?;
    let request = http::Request::builder().method(method).uri(path).header("content-type", content_type);
    let response = world.client.send(request.body(Body::from(b"k8s\0".to_vec()))?).await?;
    ensure!(response.status() == 415, "{}", response.status());
    let status: Value = serde_json::from_slice(&response.into_body().collect().await?.to_bytes())?;
    ensure!(status["message"].as_str().is_some_and(|message| message.contains(remedy)), "{status}");
    Ok(())
}

#[rstest]
#[case::dependents_first(Method::DELETE, "/a?propagationPolicy=Foreground", 422)]
#[case::older_state(Method::GET, "?resourceVersion=1&resourceVersionMatch=Exact", 422)]
#[case::older_state_by_a_limit(Method::GET, "?resourceVersion=1&limit=1", 422)]
#[case::all_of_a_kind(Method::DELETE, "", 405)]
#[tokio::test]
async fn what_is_not_supported_is_refused(
    #[case] method: Method,
    #[case] rest: &str,
    #[case] status: u16,
) -> Result<()> {
    let world = World::start().await?;
    world.create("a")?;
    assert_eq!(world.send(method, &format!("{MACHINES}{rest}"), None).await?.status().as_u16(), status);
    assert_eq!(world.get(&format!("{MACHINES}/a")).await?.0, 200);
    Ok(())
}

#[tokio::test]
async fn an_answer_that_is_made_up_comes_as_often_as_was_said() -> Result<()> {
    let world = World::start().await?;
    let busy = Fault::refuse(429, "TooManyRequests", "slow down");
    let fault = world.server.faults().add(busy.on_verb("list").times(2));
    assert_eq!(world.get(MACHINES).await?.0, 429);
    let (status, body) = world.get(MACHINES).await?;
    assert_eq!((status, &body["reason"]), (429, &json!("TooManyRequests")));
    assert_eq!(world.get(MACHINES).await?.0, 200);
    assert_eq!(fault.hits(), 2);
    Ok(())
}

#[tokio::test]
async fn a_fault_strikes_only_what_it_is_for() -> Result<()> {
    let world = World::start().await?;
    let refusal = Fault::refuse(503, "ServiceUnavailable", "not now");
    world.server.faults().add(refusal.clone().on_path("^/api/v1/nodes\\?limit=")?);
    world.server.faults().add(refusal.on_method("POST"));
    assert_eq!(world.get("/api/v1/nodes").await?.0, 200);
    assert_eq!(world.get("/api/v1/nodes?limit=1").await?.0, 503);
    assert_eq!(world.post("a").await?, 503);
    world.server.faults().clear();
    assert_eq!(world.post("a").await?, 201);
    world.server.faults().add(Fault::refuse(503, "ServiceUnavailable", "not now").on_writes());
    assert_eq!((world.get(MACHINES).await?.0, world.post("b").await?), (200, 503));
    Ok(())
}

#[tokio::test]
async fn a_fault_spares_requests_with_the_token_that_it_names() -> Result<()> {
    let world = World::start().await?;
    let refusal = Fault::refuse(401, "Unauthorized", "Unauthorized").without_token("new").on_path("^/api/v1/nodes")?;
    world.server.faults().add(refusal);
    let status = async |token: Option<&str>| -> Result<u16> {
        let mut request = http::Request::get("/api/v1/nodes");
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        Ok(world.client.send(request.body(Body::empty())?).await?.status().as_u16())
    };
    assert_eq!((status(None).await?, status(Some("old")).await?, status(Some("new")).await?), (401, 401, 200));
    assert_eq!(world.get(MACHINES).await?.0, 200);
    Ok(())
}

#[tokio::test]
async fn an_endless_answer_has_numbered_parts_until_the_fault_is_removed() -> Result<()> {
    let world = World::start().await?;
    let rest = "x".repeat(1_000);
    let part = format!("{{number}} {rest}\n").into();
    let fault = world.server.faults().add(Fault::new(Effect::Endless { opening: "0 ".into(), part }).on_verb("watch"));
    let mut watch = world.watch("").await?;
    assert_eq!(watch.line().await?, Some(format!("0 1 {rest}\n")));
    for number in 2..1_000 {
        assert_eq!(watch.line().await?, Some(format!("{number} {rest}\n")));
    }
    fault.remove();
    while watch.line().await?.is_some() {}
    assert_eq!((fault.hits(), world.get(MACHINES).await?.0), (1, 200));
    Ok(())
}

#[tokio::test]
async fn a_delay_is_over_when_the_clock_says_so() -> Result<()> {
    let world = World::start().await?;
    let fault = world.server.faults().add(Fault::new(Effect::Delay(Duration::from_secs(60))).times(1));
    let answer = world.post("a");
    let advance = async {
        fault.wait_for_hits(1).await;
        ensure!(world.api.get(&World::machines(), "default", "a").is_err(), "it was not delayed");
        // The delay may begin only after this check, so the clock advances until the delay is over.
        loop {
            world.api.clock().advance(Duration::from_secs(60));
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        #[allow(unreachable_code, reason = "gives the block its type")]
        Ok(())
    };
    let status = tokio::select! {
        status = answer => status?,
        ended = advance => bail!("the clock stopped: {ended:?}"),
    };
    assert_eq!(status, 201);
    Ok(())
}

#[tokio::test]
async fn a_request_under_a_hold_fault_takes_effect_only_after_the_release() -> Result<()> {
    let world = World::start().await?;
    let fault = world.server.faults().add(Fault::new(Effect::Hold).on_verb("create"));
    let release = async {
        fault.wait_for_hits(1).await;
        let there = world.api.get(&World::machines(), "default", "a").is_ok();
        fault.release();
        there
    };
    let (status, there) = tokio::join!(world.post("a"), release);
    assert_eq!((status?, there), (201, false));
    Ok(())
}

#[tokio::test]
async fn a_connection_is_cut_before_what_was_asked_is_done() -> Result<()> {
    let world = World::start().await?;
    world.server.faults().add(Fault::new(Effect::CutBefore).times(1));
    assert!(world.post("a").await.is_err());
    assert!(world.api.get(&World::machines(), "default", "a").is_err());
    assert_eq!(world.server.requests().count(|request| request.status.is_none()), 1);
    Ok(())
}

#[tokio::test]
async fn a_watch_that_stalls_goes_on_when_the_fault_is_removed() -> Result<()> {
    let world = World::start().await?;
    let mut watch = world.watch("").await?;
    let fault = world.server.faults().add(Fault::watch(WatchFault::Stall));
    fault.wait_for_hits(1).await;
    world.create("a")?;
    world.label("a", "1")?;
    assert!(tokio::time::timeout(Duration::from_millis(50), watch.line()).await.is_err());
    fault.remove();
    assert_eq!(watch.event().await?, event("ADDED", ""));
    assert_eq!(watch.event().await?, event("MODIFIED", "1"));
    Ok(())
}

#[tokio::test]
async fn a_watch_is_cut() -> Result<()> {
    let world = World::start().await?;
    let mut watch = world.watch("").await?;
    world.server.faults().add(Fault::watch(WatchFault::Cut));
    assert!(watch.line().await.is_err());
    Ok(())
}

#[tokio::test]
async fn events_come_twice() -> Result<()> {
    let world = World::start().await?;
    world.create("a")?;
    world.server.faults().add(Fault::watch(WatchFault::Duplicate));
    let mut watch = world.watch("").await?;
    world.label("a", "1")?;
    assert_eq!(watch.event().await?, event("MODIFIED", "1"));
    assert_eq!(watch.event().await?, event("MODIFIED", "1"));
    Ok(())
}

#[tokio::test]
async fn a_watch_that_runs_is_answered_that_it_has_expired() -> Result<()> {
    let world = World::start().await?;
    let mut watch = world.watch("").await?;
    world.server.faults().add(Fault::watch(WatchFault::Expire).times(1));
    let line: Value = serde_json::from_str(&watch.line().await?.context("it has ended")?)?;
    assert_eq!((&line["type"], &line["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(watch.line().await?, None);
    let mut watch = world.watch("").await?;
    world.create("a")?;
    assert_eq!(watch.event().await?, event("ADDED", ""));
    Ok(())
}

#[tokio::test]
async fn bookmarks_come_to_those_who_want_them() -> Result<()> {
    let settings = ServerSettings { bookmark_interval: Duration::from_millis(20), ..ServerSettings::default() };
    let world = World::start_with(settings).await?;
    let mut watch = world.watch("allowWatchBookmarks=true").await?;
    // A change of another kind moves the bookmark forward too.
    let map = json!({"metadata": {"namespace": "default", "name": "a"}});
    world.api.create(&Resource::core("configmaps"), map)?;
    loop {
        let line: Value = serde_json::from_str(&watch.line().await?.context("it has ended")?)?;
        assert_eq!(line["type"], "BOOKMARK");
        let revision = line["object"]["metadata"]["resourceVersion"].as_str().context("no revision")?;
        if revision.parse::<u64>()? == world.api.revision() {
            return Ok(());
        }
    }
}

#[rstest]
#[case("/clusters/team-a/stage/api/v1/nodes?watch=1", Some(("/clusters/team-a/stage", "/api/v1/nodes?watch=1")))]
#[case("/clusters/team-a/stage/", Some(("/clusters/team-a/stage", "/")))]
#[case("/clusters/team-a/stage", None)]
#[case("/api/v1/nodes", None)]
fn a_path_begins_with_that_of_an_api(#[case] uri: &str, #[case] expected: Option<(&str, &str)>) {
    let split = split(&uri.parse().unwrap()).map(|(path, rest)| (path, rest.to_string()));
    assert_eq!(split.as_ref().map(|(path, rest)| (path.as_str(), rest.as_str())), expected);
}
