//! Many APIs on one address, each below a path of its own, as a proxy in front of clusters serves them: a thousand
//! clusters take one port.

use std::{collections::HashMap, io, sync::Arc, time::Duration};

use http::Uri;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::RwLock;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    Server, ServerSettings,
    answer::{Answer, Cut, nowhere},
    serve,
};
use crate::{api::Api, faults::Faults, kubeconfig, requests::Requests};

/// The number of segments of an API's path.
const SEGMENTS: usize = 3;

/// A running server of many APIs. Dropping it ends it, with all its connections.
#[derive(Debug)]
pub struct ApiServers {
    shared: Arc<Shared>,
    listening: Listening,
}

#[derive(Debug)]
struct Shared {
    address: std::net::SocketAddr,
    settings: ServerSettings,
    by_path: RwLock<HashMap<String, Arc<Server>>>,
    ended: CancellationToken,
}

/// One of the APIs of a server.
#[derive(Clone, Debug)]
pub struct ServedApi {
    server: Arc<Server>,
    url: String,
}

impl ApiServers {
    /// Starts a server without any API.
    pub async fn start(settings: ServerSettings) -> io::Result<Self> {
        let listener = TcpListener::bind(settings.address).await?;
        let (address, ended) = (listener.local_addr()?, CancellationToken::new());
        let shared = Arc::new(Shared { address, settings, by_path: RwLock::default(), ended: ended.clone() });
        let answer = async |shared: Arc<Shared>, request| shared.serve(request).await;
        let listening = Listening::start(listener, Arc::clone(&shared), ended, answer);
        Ok(Self { shared, listening })
    }

    /// Serves an API below `/clusters/<namespace>/<name>`.
    #[must_use]
    pub fn add(&self, (namespace, name): (&str, &str), api: Api) -> ServedApi {
        let Shared { address, settings, by_path, ended } = &*self.shared;
        let server = Arc::new(Server::new(api, *address, *settings, ended.clone()));
        let path = format!("/clusters/{namespace}/{name}");
        let url = format!("http://{address}{path}");
        by_path.write().insert(path, Arc::clone(&server));
        ServedApi { server, url }
    }

    /// Ends the server and waits until all its connections are closed.
    pub async fn shutdown(self) {
        self.listening.shutdown().await;
    }
}

impl Shared {
    /// Answers a request as the API below whose path it is.
    async fn serve(&self, mut request: http::Request<Incoming>) -> Result<Answer, Cut> {
        let Some((path, rest)) = split(request.uri()) else { return Ok(nowhere()) };
        let Some(server) = self.by_path.read().get(&path).cloned() else { return Ok(nowhere()) };
        *request.uri_mut() = rest;
        serve(&server, request).await
    }
}

/// Splits a URI into the path of an API and the rest, which that API answers.
fn split(uri: &Uri) -> Option<(String, Uri)> {
    let whole = uri.path_and_query()?.as_str();
    let (at, _) = whole.match_indices('/').nth(SEGMENTS)?;
    let (path, rest) = whole.split_at(at);
    Some((path.to_owned(), rest.parse().ok()?))
}

impl ServedApi {
    /// Returns the API.
    #[must_use]
    pub fn api(&self) -> &Api {
        &self.server.api
    }

    /// Returns its URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns a kubeconfig for the API.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        kubeconfig::kubeconfig(&self.url)
    }

    /// Returns the faults of the API, which concern no other one.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.server.faults
    }

    /// Returns the log of its requests.
    #[must_use]
    pub fn requests(&self) -> &Requests {
        &self.server.requests
    }
}

/// A running listener. Dropping it ends it, with all its connections.
#[derive(Debug)]
pub(super) struct Listening {
    ended: CancellationToken,
    tasks: TaskTracker,
}

impl Listening {
    /// Answers all requests of a listener by `serve`, until `ended` is cancelled.
    pub(super) fn start<T, S, F>(listener: TcpListener, shared: Arc<T>, ended: CancellationToken, serve: S) -> Self
    where
        T: Send + Sync + 'static,
        S: Fn(Arc<T>, http::Request<Incoming>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Result<Answer, Cut>> + Send + 'static,
    {
        let tasks = TaskTracker::new();
        let service = move |request| serve(Arc::clone(&shared), request);
        tasks.spawn(accept(service, listener, ended.clone(), tasks.clone()));
        Self { ended, tasks }
    }

    /// Ends it, and waits until all its connections are closed.
    pub(super) async fn shutdown(self) {
        self.ended.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.ended.cancel();
    }
}

async fn accept<S, F>(service: S, listener: TcpListener, ended: CancellationToken, tasks: TaskTracker)
where
    S: Fn(http::Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Result<Answer, Cut>> + Send + 'static,
{
    loop {
        let accepted = tokio::select! {
            () = ended.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                tasks.spawn(connection(service.clone(), stream, ended.clone()));
            }
            // The likely cause is too many open files, some of which will be closed.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

async fn connection<S, F>(service: S, stream: TcpStream, ended: CancellationToken)
where
    S: Fn(http::Request<Incoming>) -> F + Send + 'static,
    F: Future<Output = Result<Answer, Cut>> + Send + 'static,
{
    // A small answer must not wait for the next one.
    let _ = stream.set_nodelay(true);
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new());
    tokio::select! {
        () = ended.cancelled() => {}
        // The client sees an error on its connection itself.
        _ = builder.serve_connection(TokioIo::new(stream), service_fn(service)) => {}
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("/clusters/team-a/stage/api/v1/nodes?watch=1", Some(("/clusters/team-a/stage", "/api/v1/nodes?watch=1")))]
    #[case("/clusters/team-a/stage/", Some(("/clusters/team-a/stage", "/")))]
    #[case("/clusters/team-a/stage", None)]
    #[case("/api/v1/nodes", None)]
    fn a_path_begins_with_that_of_an_api(#[case] uri: &str, #[case] expected: Option<(&str, &str)>) {
        let split = split(&uri.parse().unwrap()).map(|(path, rest)| (path, rest.to_string()));
        assert_eq!(split.as_ref().map(|(path, rest)| (path.as_str(), rest.as_str())), expected);
    }
}
