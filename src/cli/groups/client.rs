//! A client of a server's admin listener: reads its state, and changes its log. Each error names its remedy.

use std::{error::Error as StdError, fmt, io, str::FromStr, time::Duration};

use anyhow::{anyhow, bail, ensure};
use axum::body::Body;
use http::{Method, Request, StatusCode, Uri, uri::Authority};
use hyper_util::{
    client::legacy::{Client as HttpClient, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde::Deserialize;
use tokio::time::timeout;

use super::DEFAULT_SERVER;
use crate::cli::usage::{UsageError, wrong};
use connect::ClusterRef;
use page::state::{FleetState, SCHEMA_VERSION, State};
use rules::text::visible;
use service::listen::{CLUSTERS_PATH, LOG_LEVEL_PATH, LogLevel, STATE_PATH};

/// The maximum size of an answer: more than 100,000 instances need, and less than would exhaust a machine's memory.
const MAX_ANSWER: usize = 256 << 20;
const MAX_QUOTED: usize = 300;

/// The URL of a server: `http://host:port`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(in crate::cli) struct ServerUrl(Authority);

impl FromStr for ServerUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rule = "it has to be a URL such as http://127.0.0.1:8081";
        let text = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let uri: Uri = text.parse().map_err(|error| format!("{rule}: {error}"))?;
        match (uri.scheme_str(), uri.authority(), uri.path_and_query().map(ToString::to_string).as_deref()) {
            (Some("http"), Some(authority), None | Some("/")) if !authority.as_str().contains('@') => {
                Ok(Self(authority.clone()))
            }
            (Some("https"), ..) => Err(format!("{rule}: the admin listener speaks no TLS")),
            _ => Err(rule.to_owned()),
        }
    }
}

impl ServerUrl {
    /// Parses the flag `--server`; an empty value is the default.
    pub(in crate::cli) fn of_flag(text: &str) -> Result<Self, UsageError> {
        let url = if text.trim().is_empty() { DEFAULT_SERVER } else { text.trim() };
        url.parse().map_err(|reason: String| wrong("--server", text, reason))
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.0)
    }
}

/// A client of one server.
#[derive(Debug)]
pub(in crate::cli) struct Client {
    http: HttpClient<HttpConnector, Body>,
    server: ServerUrl,
    timeout: Duration,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Versioned {
    schema_version: u32,
}

impl Client {
    /// Returns a client of a server, with a time limit for each answer.
    pub(in crate::cli) fn new(server: ServerUrl, timeout: Duration) -> Self {
        Self { http: HttpClient::builder(TokioExecutor::new()).build_http(), server, timeout }
    }

    /// Returns the state of the server, or of a Cluster if it serves a fleet, with or without the instances of each
    /// group.
    pub(in crate::cli) async fn state(&self, cluster: Option<&ClusterRef>, instances: bool) -> anyhow::Result<State> {
        let mut query = form_urlencoded::Serializer::new(format!("instances={instances}"));
        query.extend_pairs(cluster.map(|cluster| ("cluster", cluster.to_string())));
        let body = self.ask(Method::GET, (STATE_PATH, &query.finish()), String::new()).await?;
        self.read_versioned(&body)
    }

    /// Returns the Clusters of a server that serves a fleet.
    pub(in crate::cli) async fn clusters(&self) -> anyhow::Result<FleetState> {
        let body = self.ask(Method::GET, (CLUSTERS_PATH, ""), String::new()).await?;
        self.read_versioned(&body)
    }

    fn read_versioned<'a, T: Deserialize<'a>>(&self, body: &'a [u8]) -> anyhow::Result<T> {
        let Versioned { schema_version } = self.read(body)?;
        ensure!(
            schema_version == SCHEMA_VERSION,
            "{} serves its state in schema version {schema_version}, and this program reads {SCHEMA_VERSION}: use the \
             groups subcommand of the server's own version",
            self.server
        );
        self.read(body)
    }

    /// Returns the filter of the server's log, after it was changed to `filter` if there is one.
    pub(in crate::cli) async fn log_level(&self, filter: Option<String>) -> anyhow::Result<LogLevel> {
        let method = if filter.is_some() { Method::PUT } else { Method::GET };
        self.read(&self.ask(method, (LOG_LEVEL_PATH, ""), filter.unwrap_or_default()).await?)
    }

    fn read<'a, T: Deserialize<'a>>(&self, body: &'a [u8]) -> anyhow::Result<T> {
        serde_json::from_slice(body).map_err(|error| {
            anyhow!(
                "the answer of {} can't be read: {}; is it another program?",
                self.server,
                visible(&error.to_string())
            )
        })
    }

    /// Returns the body of a successful answer.
    async fn ask(&self, method: Method, (path, query): (&str, &str), body: String) -> anyhow::Result<Vec<u8>> {
        let (server, limit) = (&self.server, self.timeout);
        let answer = timeout(limit, self.exchange(method, &format!("{path}?{query}"), body)).await;
        let (status, body) =
            answer.map_err(|_| anyhow!("no answer from {server} within {limit:?}: --timeout allows more"))??;
        ensure!(
            status != StatusCode::NOT_FOUND,
            "{server} has no {path}: what answers there is an older version of this program, or its listener for probes \
             and metrics, or another program; --server has to name the server's --admin-listen"
        );
        if status != StatusCode::OK {
            let said = String::from_utf8_lossy(&body);
            let said: String = visible(said.trim()).chars().take(MAX_QUOTED).collect();
            bail!("{server} answered {status}: {said}");
        }
        Ok(body)
    }

    async fn exchange(&self, method: Method, path: &str, body: String) -> anyhow::Result<(StatusCode, Vec<u8>)> {
        let server = &self.server;
        let broken = |error: &(dyn StdError + 'static)| anyhow!("can't ask {server}: {}", chain(error));
        let request = Request::builder().method(method).uri(format!("{server}{path}"));
        let request = request.body(Body::from(body)).map_err(|error| broken(&error))?;
        let response = self.http.request(request).await.map_err(|error| {
            if !is_refused(&error) {
                return broken(&error);
            }
            anyhow!(
                "nothing listens at {server}: start a server (capi-autoscaler-provider serve, whose --admin-listen this \
                 is), or lead the port of one in a Pod here (kubectl port-forward deployment/NAME 8081:8081), or name \
                 another with --server"
            )
        })?;
        let status = response.status();
        let body = axum::body::to_bytes(Body::new(response.into_body()), MAX_ANSWER).await;
        Ok((status, body.map_err(|error| broken(&error))?.into()))
    }
}

fn causes<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(error.source(), |error| (**error).source())
}

fn is_refused(error: &(dyn StdError + 'static)) -> bool {
    causes(error).any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    })
}

/// Returns the text of an error with its causes, without repetitions.
fn chain(error: &(dyn StdError + 'static)) -> String {
    causes(error).fold(error.to_string(), |shown, cause| {
        let cause = cause.to_string();
        if shown.contains(&cause) { shown } else { format!("{shown}: {cause}") }
    })
}
