//! The API over HTTP on loopback: the answers of a Kubernetes API server, with the faults that a test injects. It must
//! hold no object and know no rule of the API.

use std::{collections::HashMap, io, net::SocketAddr, ops::Deref, path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Uri, request::Parts};
use http_body_util::BodyExt;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::RwLock;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

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
mod route;
mod table;
#[cfg(test)]
mod tests;
mod watch;

pub use answer::{Answer, Body, Cut};
use answer::{endless_answer, nowhere, refusal_answer, typed};
use handle::{Received, target_of};
use route::token_of;

/// The maximum size of a body, which is that of a real API server.
const LARGEST_BODY: usize = 3 * 1024 * 1024;
/// The number of segments of the path of one among many APIs.
const SEGMENTS: usize = 3;

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

/// What all requests for an API share.
#[derive(Debug, Clone)]
struct Server {
    api: Api,
    address: SocketAddr,
    settings: ServerSettings,
    faults: Faults,
    requests: Requests,
    ended: CancellationToken,
}

impl Server {
    fn new(api: Api, address: SocketAddr, settings: ServerSettings, ended: CancellationToken) -> Self {
        Self { api, address, settings, faults: Faults::new(), requests: Requests::new(), ended }
    }
}

/// The same answers without sockets, in the caller's task, for a simulator that transports requests, answers and watch
/// lines itself. The body of a watch is driven by its reader. There are no faults here: the simulator can lose, delay and
/// change all it transports.
#[derive(Clone, Debug)]
pub struct InProcess(Server);

impl InProcess {
    /// Serves this API; of the settings, only the bookmark interval is used.
    pub fn new(api: Api, settings: ServerSettings) -> Self {
        Self(Server::new(api, SocketAddr::from(([127, 0, 0, 1], 443)), settings, CancellationToken::new()))
    }

    /// Returns the API that is served.
    pub fn api(&self) -> &Api {
        &self.0.api
    }

    /// Returns the verb of a request: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`,
    /// `deletecollection`.
    pub fn verb(parts: &Parts) -> &'static str {
        Received::new(parts.clone(), Bytes::new()).verb
    }

    /// Executes and answers a request.
    pub fn answer(&self, parts: Parts, body: Bytes) -> Answer {
        handle::handle(&self.0, &Received::new(parts, body))
    }
}

/// An API that is served.
#[derive(Clone, Debug)]
pub struct ServedApi {
    server: Server,
    url: String,
}

impl ServedApi {
    /// Returns the API.
    pub fn api(&self) -> &Api {
        &self.server.api
    }

    /// Returns its URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns a kubeconfig for the API.
    pub fn kubeconfig(&self) -> String {
        kubeconfig::kubeconfig(&self.url)
    }

    /// Returns the faults of the API, which concern no other one.
    pub fn faults(&self) -> &Faults {
        &self.server.faults
    }

    /// Returns the log of its requests.
    pub fn requests(&self) -> &Requests {
        &self.server.requests
    }
}

/// A running server of one API. Dropping it ends it, with all its connections.
#[derive(Debug)]
pub struct ApiServer {
    servers: ApiServers,
    served: ServedApi,
}

impl Deref for ApiServer {
    type Target = ServedApi;

    fn deref(&self) -> &ServedApi {
        &self.served
    }
}

impl ApiServer {
    /// Serves an API on a free port of loopback.
    pub async fn start(api: Api) -> io::Result<Self> {
        Self::start_with(api, ServerSettings::default()).await
    }

    /// Serves an API with other settings.
    pub async fn start_with(api: Api, settings: ServerSettings) -> io::Result<Self> {
        let servers = ApiServers::start(settings).await?;
        let served = servers.add_at("", api);
        Ok(Self { servers, served })
    }

    /// Returns the address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.servers.address
    }

    /// Writes the kubeconfig to a file.
    pub fn write_kubeconfig(&self, path: impl AsRef<Path>) -> io::Result<()> {
        std::fs::write(path, self.kubeconfig())
    }

    /// Ends the server and waits until all its connections are closed.
    pub async fn shutdown(self) {
        self.servers.shutdown().await;
    }
}

/// A running server of many APIs on one address, each below a path of its own, as a proxy in front of clusters serves
/// them: a thousand clusters take one port. Dropping it ends it, with all its connections.
#[derive(Debug)]
pub struct ApiServers {
    address: SocketAddr,
    settings: ServerSettings,
    by_path: ByPath,
    ended: CancellationToken,
    tasks: TaskTracker,
}

/// The APIs by their paths; the path of the only API of a server is empty.
type ByPath = Arc<RwLock<HashMap<String, Server>>>;

impl ApiServers {
    /// Starts a server without any API.
    pub async fn start(settings: ServerSettings) -> io::Result<Self> {
        let listener = TcpListener::bind(settings.address).await?;
        let (address, ended, tasks) = (listener.local_addr()?, CancellationToken::new(), TaskTracker::new());
        let by_path = ByPath::default();
        tasks.spawn(accept(Arc::clone(&by_path), listener, ended.clone(), tasks.clone()));
        Ok(Self { address, settings, by_path, ended, tasks })
    }

    /// Serves an API below `/clusters/<namespace>/<name>`.
    pub fn add(&self, (namespace, name): (&str, &str), api: Api) -> ServedApi {
        self.add_at(&format!("/clusters/{namespace}/{name}"), api)
    }

    fn add_at(&self, path: &str, api: Api) -> ServedApi {
        let server = Server::new(api, self.address, self.settings, self.ended.clone());
        self.by_path.write().insert(path.to_owned(), server.clone());
        ServedApi { server, url: format!("http://{}{path}", self.address) }
    }

    /// Ends the server and waits until all its connections are closed.
    pub async fn shutdown(self) {
        self.ended.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Drop for ApiServers {
    fn drop(&mut self) {
        self.ended.cancel();
    }
}

async fn accept(by_path: ByPath, listener: TcpListener, ended: CancellationToken, tasks: TaskTracker) {
    loop {
        let accepted = tokio::select! {
            () = ended.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => drop(tasks.spawn(connection(Arc::clone(&by_path), stream, ended.clone()))),
            // The likely cause is too many open files, some of which will be closed.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

async fn connection(by_path: ByPath, stream: TcpStream, ended: CancellationToken) {
    // A small answer must not wait for the next one.
    let _ = stream.set_nodelay(true);
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new());
    let service = service_fn(|request| route_and_serve(&by_path, request));
    tokio::select! {
        () = ended.cancelled() => {}
        // The client sees an error on its connection itself.
        _ = builder.serve_connection(TokioIo::new(stream), service) => {}
    }
}

async fn route_and_serve(by_path: &ByPath, mut request: http::Request<Incoming>) -> Result<Answer, Cut> {
    let only = by_path.read().get("").cloned();
    if let Some(server) = only {
        return serve(&server, request).await;
    }
    let Some((path, rest)) = split(request.uri()) else { return Ok(nowhere()) };
    let Some(server) = by_path.read().get(&path).cloned() else { return Ok(nowhere()) };
    *request.uri_mut() = rest;
    serve(&server, request).await
}

/// Splits a URI into the path of an API and the rest, which that API answers.
fn split(uri: &Uri) -> Option<(String, Uri)> {
    let whole = uri.path_and_query()?.as_str();
    let (at, _) = whole.match_indices('/').nth(SEGMENTS)?;
    let (path, rest) = whole.split_at(at);
    Some((path.to_owned(), rest.parse().ok()?))
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
    let received = Received::new(parts, body);
    let number = server.requests.note(Request {
        method: received.parts.method.to_string(),
        path: received.parts.uri.path().to_owned(),
        query: received.parts.uri.query().unwrap_or_default().to_owned(),
        body: received.body.clone(),
        verb: received.verb,
        status: None,
    });
    let target = target_of(&received.parts);
    let (method, token) = (received.parts.method.as_str(), token_of(&received.parts.headers));
    let active = server.faults.effects_on(&About { method, verb: received.verb, target: &target, token });
    let answer = with_faults(server, &received, active).await?;
    server.requests.answered(number, answer.status().as_u16());
    Ok(answer)
}

async fn with_faults(server: &Server, received: &Received, active: Vec<ActiveEffect>) -> Result<Answer, Cut> {
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
            Effect::HoldAnswer => answer_gates.push(active.gate),
            // Watches apply these faults themselves.
            Effect::Watch(_) => {}
        }
    }
    let answer = handle::handle(server, received);
    for mut gate in answer_gates {
        let _ = gate.wait_for(|open| *open).await;
    }
    Ok(answer)
}
