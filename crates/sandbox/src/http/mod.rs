//! The API over HTTP on loopback: the answers of a Kubernetes API server, with the faults that a test injects. It must
//! hold no object and know no rule of the API.

use std::{io, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{
    api::{Api, Refusal},
    clock::after,
    faults::{About, ActiveEffect, Effect, Faults},
    kubeconfig,
    requests::{Request, Requests},
};

mod answer;
mod discovery;
mod handle;
mod in_process;
mod many;
mod route;
mod table;
#[cfg(test)]
mod tests;
mod watch;

pub use answer::{Answer, Body, Cut};
use answer::{endless_answer, refusal_answer, typed};
use handle::{Received, target_of};
pub use in_process::InProcess;
use many::Listening;
pub use many::{ApiServers, ServedApi};
use route::{Query, Route, token_of};

/// The maximum size of a body, which is that of a real API server.
const LARGEST_BODY: usize = 3 * 1024 * 1024;

/// The settings of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerSettings {
    /// The address to listen on. Port 0 takes any free one.
    pub address: SocketAddr,
    /// The maximum time between two bookmarks of a watch, if it wants any.
    pub bookmark_interval: Duration,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self { address: SocketAddr::from(([127, 0, 0, 1], 0)), bookmark_interval: Duration::from_secs(30) }
    }
}

/// A running server. Dropping it ends it, with all its connections.
#[derive(Debug)]
pub struct ApiServer {
    server: Arc<Server>,
    listening: Listening,
}

/// The state that all connections share.
#[derive(Debug)]
struct Server {
    api: Api,
    address: SocketAddr,
    settings: ServerSettings,
    faults: Faults,
    requests: Requests,
    ended: CancellationToken,
}

impl ApiServer {
    /// Serves an API on a free port of loopback.
    pub async fn start(api: Api) -> io::Result<Self> {
        Self::start_with(api, ServerSettings::default()).await
    }

    /// Serves an API with other settings.
    pub async fn start_with(api: Api, settings: ServerSettings) -> io::Result<Self> {
        let listener = TcpListener::bind(settings.address).await?;
        let ended = CancellationToken::new();
        let server = Arc::new(Server::new(api, listener.local_addr()?, settings, ended.clone()));
        let answer = async |server: Arc<Server>, request| serve(&server, request).await;
        let listening = Listening::start(listener, Arc::clone(&server), ended, answer);
        Ok(Self { server, listening })
    }

    /// Returns the API that is served.
    #[must_use]
    pub fn api(&self) -> &Api {
        &self.server.api
    }

    /// Returns the address that the server listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.server.address
    }

    /// Returns `http://` and the address.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.server.address)
    }

    /// Returns a kubeconfig for the server.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        kubeconfig::kubeconfig(&self.url())
    }

    /// Writes the kubeconfig to a file.
    pub fn write_kubeconfig(&self, path: impl AsRef<Path>) -> io::Result<()> {
        std::fs::write(path, self.kubeconfig())
    }

    /// Returns the faults of the server.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.server.faults
    }

    /// Returns the log of requests.
    #[must_use]
    pub fn requests(&self) -> &Requests {
        &self.server.requests
    }

    /// Ends the server and waits until all its connections are closed.
    pub async fn shutdown(self) {
        self.listening.shutdown().await;
    }
}

impl Server {
    fn new(api: Api, address: SocketAddr, settings: ServerSettings, ended: CancellationToken) -> Self {
        Self { api, address, settings, faults: Faults::new(), requests: Requests::new(), ended }
    }
}

/// Answers a request, with the faults that match it; an error cuts the connection.
async fn serve(server: &Server, request: http::Request<Incoming>) -> Result<Answer, Cut> {
    let (parts, body) = request.into_parts();
    let body = http_body_util::Limited::new(body, LARGEST_BODY).collect().await;
    let body = match body {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            let message = format!("the body is larger than {LARGEST_BODY} bytes");
            return Ok(refusal_answer(&Refusal::new(413, "RequestEntityTooLarge", message)));
        }
        Err(_) => return Err(Cut),
    };
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    let route = Route::parse(parts.uri.path());
    let verb = route.verb(&parts.method, &query);
    let received = Received { parts, route, query, verb, body };
    let number = note(server, &received);
    let target = target_of(&received.parts);
    let about = About {
        method: received.parts.method.as_str(),
        verb,
        target: &target,
        token: token_of(&received.parts.headers),
    };
    let active = server.faults.effects_on(&about);
    let answer = with_faults(server, &received, active).await?;
    server.requests.answered(number, answer.status().as_u16());
    Ok(answer)
}

fn note(server: &Server, received: &Received) -> u64 {
    server.requests.note(Request {
        method: received.parts.method.to_string(),
        path: received.parts.uri.path().to_owned(),
        query: received.parts.uri.query().unwrap_or_default().to_owned(),
        body: received.body.clone(),
        verb: received.verb,
        status: None,
    })
}

async fn with_faults(server: &Server, received: &Received, active: Vec<ActiveEffect>) -> Result<Answer, Cut> {
    let mut cut_after = false;
    let mut answer_gates = Vec::new();
    for mut active in active {
        match active.effect {
            Effect::Delay(by) => {
                let clock = server.api.clock();
                clock.wait_until(after(clock.now(), by)).await;
            }
            Effect::Hold => {
                // A hold without a handle can't be released any more.
                let _ = active.gate.wait_for(|open| *open).await;
            }
            Effect::Answer { status, body } => return Ok(typed(status, "application/json", body)),
            Effect::Endless { opening, part } => return Ok(endless_answer(&opening, part, active.gate)),
            Effect::CutBefore => return Err(Cut),
            Effect::CutAfter => cut_after = true,
            Effect::HoldAnswer => answer_gates.push(active.gate),
            // Watches apply these faults themselves.
            Effect::Watch(_) => {}
        }
    }
    let answer = handle::handle(server, received);
    for mut gate in answer_gates {
        let _ = gate.wait_for(|open| *open).await;
    }
    if cut_after { Err(Cut) } else { Ok(answer) }
}
