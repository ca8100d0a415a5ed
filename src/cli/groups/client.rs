//! A client of a server's admin listener: reads its state, and changes its log. Each error names its remedy.

use std::{error::Error as StdError, fmt, io, str::FromStr, time::Duration};

use axum::body::Body;
use http::{Method, Request, StatusCode, Uri, uri::Authority};
use hyper_util::{
    client::legacy::{Client as HttpClient, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde::Deserialize;
use thiserror::Error;

use super::{DEFAULT_SERVER, UsageError};
use connect::ClusterRef;
use page::state::{FleetState, SCHEMA_VERSION, State};
use rules::text::visible;
use service::listen::{CLUSTERS_PATH, LOG_LEVEL_PATH, LogLevel, STATE_PATH};

/// The maximum size of an answer: more than 100,000 instances need, and less than would exhaust a machine's memory.
const MAX_ANSWER: usize = 256 << 20;
const MAX_QUOTED: usize = 300;

/// The URL of a server: `http://host:port`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ServerUrl(Authority);

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
        url.parse().map_err(|reason| UsageError::Value {
            flag: "--server",
            variable: "CAPI_AUTOSCALER_SERVER",
            value: text.to_owned(),
            reason,
        })
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.0)
    }
}

/// The reason why a server's state can't be read, or its log can't be changed.
#[derive(Debug, Error)]
pub enum ClientError {
    /// No server listens there.
    #[error(
        "nothing listens at {0}: start a server (capi-autoscaler-provider serve, whose --admin-listen this is), or lead \
         the port of one in a Pod here (kubectl port-forward deployment/NAME 8081:8081), or name another with --server"
    )]
    Refused(ServerUrl),
    /// The connection failed or broke.
    #[error("can't ask {server}: {why}")]
    Transport {
        /// The server that was asked.
        server: ServerUrl,
        /// The error of the operating system or of HTTP.
        why: String,
    },
    /// The answer took too long.
    #[error("no answer from {server} within {limit:?}: --timeout allows more")]
    Timeout {
        /// The server that was asked.
        server: ServerUrl,
        /// The time waited.
        limit: Duration,
    },
    /// The server has no such path.
    #[error(
        "{0} has no {1}: what answers there is an older version of this program, or its listener for probes \
         and metrics, or another program; --server has to name the server's --admin-listen"
    )]
    NotFound(ServerUrl, &'static str),
    /// The server refused the request.
    #[error("{server} answered {status}: {said}")]
    Refusal {
        /// The server that was asked.
        server: ServerUrl,
        /// The HTTP status.
        status: StatusCode,
        /// The text of the server's answer.
        said: String,
    },
    /// The answer can't be parsed.
    #[error("the answer of {server} can't be read: {why}; is it another program?")]
    Garbled {
        /// The server that was asked.
        server: ServerUrl,
        /// The reason why it can't be read.
        why: String,
    },
    /// The state has another schema version.
    #[error(
        "{server} serves its state in schema version {theirs}, and this program reads {SCHEMA_VERSION}: use the groups \
         subcommand of the server's own version"
    )]
    Schema {
        /// The server that was asked.
        server: ServerUrl,
        /// The version of its schema.
        theirs: u32,
    },
}

/// A client of one server.
#[derive(Debug)]
pub struct Client {
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
    #[must_use]
    pub fn new(server: ServerUrl, timeout: Duration) -> Self {
        Self { http: HttpClient::builder(TokioExecutor::new()).build_http(), server, timeout }
    }

    /// Returns the state of the server, or of a Cluster if it serves a fleet, with or without the instances of each
    /// group.
    ///
    /// # Errors
    /// If the server doesn't answer in time and in this program's schema, or doesn't serve that Cluster.
    pub async fn state(&self, cluster: Option<&ClusterRef>, instances: bool) -> Result<State, ClientError> {
        let mut query = form_urlencoded::Serializer::new(format!("instances={instances}"));
        query.extend_pairs(cluster.map(|cluster| ("cluster", cluster.to_string())));
        let body = self.ask(Method::GET, (STATE_PATH, &query.finish()), String::new()).await?;
        self.read_versioned(&body)
    }

    /// Returns the Clusters of a server that serves a fleet.
    ///
    /// # Errors
    /// If the server doesn't answer in time and in this program's schema, or serves no fleet.
    pub async fn clusters(&self) -> Result<FleetState, ClientError> {
        let body = self.ask(Method::GET, (CLUSTERS_PATH, ""), String::new()).await?;
        self.read_versioned(&body)
    }

    fn read_versioned<'a, T: Deserialize<'a>>(&self, body: &'a [u8]) -> Result<T, ClientError> {
        let Versioned { schema_version } = self.read(body)?;
        if schema_version != SCHEMA_VERSION {
            return Err(ClientError::Schema { server: self.server.clone(), theirs: schema_version });
        }
        self.read(body)
    }

    /// Returns the filter of the server's log, after it was changed to `filter` if there is one.
    ///
    /// # Errors
    /// If the server doesn't answer, or refuses the change.
    pub async fn log_level(&self, filter: Option<String>) -> Result<LogLevel, ClientError> {
        let method = if filter.is_some() { Method::PUT } else { Method::GET };
        self.read(&self.ask(method, (LOG_LEVEL_PATH, ""), filter.unwrap_or_default()).await?)
    }

    fn read<'a, T: Deserialize<'a>>(&self, body: &'a [u8]) -> Result<T, ClientError> {
        serde_json::from_slice(body).map_err(|error| ClientError::Garbled {
            server: self.server.clone(),
            why: visible(&error.to_string()).into_owned(),
        })
    }

    /// Returns the body of a successful answer.
    async fn ask(
        &self,
        method: Method,
        (path, query): (&'static str, &str),
        body: String,
    ) -> Result<Vec<u8>, ClientError> {
        let server = || self.server.clone();
        let (status, body) =
            tokio::time::timeout(self.timeout, self.exchange(method, &format!("{path}?{query}"), body))
                .await
                .map_err(|_| ClientError::Timeout { server: server(), limit: self.timeout })??;
        if status == StatusCode::NOT_FOUND {
            return Err(ClientError::NotFound(server(), path));
        }
        if status != StatusCode::OK {
            let said = String::from_utf8_lossy(&body);
            let said = visible(said.trim()).chars().take(MAX_QUOTED).collect();
            return Err(ClientError::Refusal { server: server(), status, said });
        }
        Ok(body)
    }

    async fn exchange(&self, method: Method, path: &str, body: String) -> Result<(StatusCode, Vec<u8>), ClientError> {
        let transport = |why: String| ClientError::Transport { server: self.server.clone(), why };
        let request = Request::builder().method(method).uri(format!("{}{path}", self.server));
        let request = request.body(Body::from(body)).map_err(|error| transport(error.to_string()))?;
        let response = self.http.request(request).await.map_err(|error| {
            if refused(&error) { ClientError::Refused(self.server.clone()) } else { transport(chain(&error)) }
        })?;
        let status = response.status();
        let body = axum::body::to_bytes(Body::new(response.into_body()), MAX_ANSWER).await;
        let body = body.map_err(|error| transport(chain(&error)))?;
        Ok((status, body.into()))
    }
}

fn causes<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(error.source(), |error| (**error).source())
}

fn refused(error: &(dyn StdError + 'static)) -> bool {
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
