//! The policy of requests: timeouts, TCP keepalive, and no retries of kube's own. kube's stock client retries a 429,
//! 503 or 504 up to 15 times for minutes, while the Cluster Autoscaler waits 5 seconds for an answer; it also logs each
//! failure as an error. So the stack is built here, from kube's own layers, without these retries and logs: the callers
//! decide on retries, and log each problem once. An answer has a longest length: kube's
//! client reads an error of any length to its end, so an error is cut at its limit, and its beginning serves as the
//! message.

use std::{io, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, header, uri::Scheme};
use http_body::Body as HttpBody;
use http_body_util::{BodyExt as _, Either, Full, Limited, combinators::MapErr};
use hyper::body::Incoming;
use hyper_rustls::{DefaultServerNameResolver, FixedServerNameResolver, HttpsConnector, ResolveServerName};
use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy::{Client as HttpClient, connect::HttpConnector},
    rt::TokioExecutor,
};
use kube::{
    Client, Config,
    client::{Body, ConfigExt},
};
use rustls::{ClientConfig, client::Resumption, pki_types::ServerName};
use thiserror::Error;
use tower::{BoxError, ServiceBuilder, ServiceExt, service_fn, util::BoxCloneSyncService};

use super::{
    Connector, Proxies,
    error::{in_words, of_server},
    proxy::no_authority,
};

/// The `User-Agent` that this program sends to API servers.
pub const USER_AGENT: &str = concat!("capi-autoscaler-provider/", env!("CARGO_PKG_VERSION"));

/// The maximum length of the response to a short request. The list of one group's Machines is the longest.
const LONGEST_ANSWER: usize = 32 << 20;

/// The number of TLS sessions that are kept for resumption: those of one server.
const SESSIONS: usize = 8;

/// Two clients of one cluster with different timeouts. Cloning shares their connections.
#[derive(Clone)]
pub struct Clients {
    /// For lists and watches: [`Policy::WATCHES`].
    pub watches: Client,
    /// For all short requests, such as writes, discovery and Secrets: [`Policy::WRITES`].
    pub writes: Client,
}

/// The layers of a client, without the queue and the task that a [`Client`] has besides.
pub(super) type Stack = BoxCloneSyncService<Request<Body>, Response<Bounded<Incoming>>, BoxError>;

/// The stacks of both clients of a cluster.
pub(super) struct Stacks {
    pub(super) watches: Stack,
    pub(super) writes: Stack,
    pub(super) namespace: String,
}

/// The timeouts of a client. No client retries by itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Policy {
    /// The time to establish the connection, TLS handshake included.
    pub connect: Duration,
    /// The time from sending a request to the head of its response; `None` means no limit.
    pub answer: Option<Duration>,
    /// The maximum time between two reads of a response.
    pub silence: Duration,
    /// The time for which an unused connection is kept for the next request.
    pub idle: Duration,
    /// The maximum length of an answer in bytes; `None` if the caller has a limit of its own.
    pub longest: Option<usize>,
}

impl Policy {
    /// For writes. The caller's own deadline is 5 seconds, and the connect timeout leaves time for a second attempt
    /// within it. A client waits for the response to a write even after the deadline, since the result must be known.
    pub const WRITES: Self = Self {
        connect: Duration::from_secs(2),
        answer: Some(Duration::from_secs(10)),
        silence: Duration::from_secs(10),
        idle: Duration::from_secs(30),
        longest: Some(LONGEST_ANSWER),
    };

    /// For lists and watches. A watch has no end, but bookmarks come about every minute: after two and a half silent
    /// minutes the watch is dead, even if its TCP connection isn't.
    pub const WATCHES: Self = Self {
        connect: Duration::from_secs(5),
        answer: None,
        silence: Duration::from_secs(150),
        idle: Duration::from_secs(30),
        longest: None,
    };

    /// Builds a client with these timeouts. This makes no request, but needs a running Tokio runtime; the `exec`
    /// program of an operator's own kubeconfig may run here.
    ///
    /// # Errors
    /// When certificates, key or credentials can't be used.
    pub fn client(self, config: Config, proxies: Proxies) -> Result<Client, kube::Error> {
        let connector = connector_of(&config, proxies)?;
        let namespace = config.default_namespace.clone();
        Ok(Client::new(self.stack(config, connector)?, namespace))
    }

    fn stack(self, mut config: Config, connector: HttpsConnector<Connector>) -> Result<Stack, kube::Error> {
        config.headers.push((header::USER_AGENT, HeaderValue::from_static(USER_AGENT)));
        let mut connector = TimeoutConnector::new(connector);
        connector.set_connect_timeout(Some(self.connect));
        connector.set_read_timeout(Some(self.silence));
        connector.set_write_timeout(Some(self.silence));
        // Without this, the idle time of a connection would count against its next response.
        connector.set_reset_reader_on_write(true);
        // Not the whole URL, which may have a password.
        let url = &config.cluster_url;
        let port = url.port_u16().map(|port| format!(":{port}")).unwrap_or_default();
        let server: Arc<str> =
            format!("{}://{}{port}", url.scheme_str().unwrap_or("https"), url.host().unwrap_or_default()).into();
        let http: HttpClient<_, Body> =
            HttpClient::builder(TokioExecutor::new()).pool_idle_timeout(self.idle).build(connector);

        let stack = ServiceBuilder::new()
            .layer(config.base_uri_layer())
            .option_layer(config.auth_layer()?)
            .layer(config.extra_headers_layer()?)
            .map_err(BoxError::from)
            .service(http);
        let stack = stack
            .map_err(move |error| of_server(error, &server))
            .map_future(move |answer| self.limit(answer))
            .and_then(move |answer| bounded(answer, self.longest));
        Ok(BoxCloneSyncService::new(stack))
    }

    /// Waits for the head of a response, within the time limit of this policy.
    ///
    /// # Errors
    /// The error of the response, or a timeout of the kind [`io::ErrorKind::TimedOut`].
    pub async fn limit<T>(self, answer: impl Future<Output = Result<T, BoxError>>) -> Result<T, BoxError> {
        let Some(limit) = self.answer else { return answer.await };
        let answered = tokio::time::timeout(limit, answer).await;
        answered.unwrap_or_else(|_| {
            let message = format!("no answer within {} s", limit.as_secs_f32());
            Err(BoxError::from(io::Error::new(io::ErrorKind::TimedOut, message)))
        })
    }
}

/// Returns the connector of a cluster, which all its clients share with its TLS.
fn connector_of(config: &Config, proxies: Proxies) -> Result<HttpsConnector<Connector>, kube::Error> {
    // This fails only if a crypto provider is already installed, and that one works too.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();

    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(Duration::from_secs(15)));
    tcp.set_keepalive_interval(Some(Duration::from_secs(5)));
    tcp.set_keepalive_retries(Some(3));
    let connector = Connector::new(tcp, proxies).map_err(|error| kube::Error::Service(error.into()))?;
    let names: Arc<dyn ResolveServerName + Send + Sync> = match &config.tls_server_name {
        Some(name) => {
            let name = ServerName::try_from(name.clone()).map_err(|error| kube::Error::Service(error.into()))?;
            Arc::new(FixedServerNameResolver::new(name))
        }
        None => Arc::new(DefaultServerNameResolver::default()),
    };
    Ok(HttpsConnector::new(connector, tls_of(config)?, false, names))
}

/// Returns the TLS of a cluster. A fleet has that of a thousand, so it must stay small: by default it keeps sessions of
/// 32 servers, and the authorities of the system where there is no TLS.
fn tls_of(config: &Config) -> Result<Arc<ClientConfig>, kube::Error> {
    if config.cluster_url.scheme() == Some(&Scheme::HTTP) {
        return Ok(no_authority());
    }
    let mut tls = config.rustls_client_config()?;
    tls.resumption = Resumption::in_memory_sessions(SESSIONS);
    Ok(Arc::new(tls))
}

impl Clients {
    /// Builds both clients from one configuration.
    ///
    /// # Errors
    /// When certificates, key or credentials can't be used.
    pub fn new(config: Config, proxies: Proxies) -> Result<Self, kube::Error> {
        Ok(Stacks::new(config, proxies)?.into_clients())
    }
}

impl Stacks {
    /// Builds both stacks from one configuration, as [`Policy::client`] does.
    ///
    /// # Errors
    /// When certificates, key or credentials can't be used.
    pub(super) fn new(config: Config, proxies: Proxies) -> Result<Self, kube::Error> {
        let connector = connector_of(&config, proxies)?;
        let namespace = config.default_namespace.clone();
        let watches = Policy::WATCHES.stack(config.clone(), connector.clone())?;
        Ok(Self { watches, writes: Policy::WRITES.stack(config, connector)?, namespace })
    }

    pub(super) fn into_clients(self) -> Clients {
        let Self { watches, writes, namespace } = self;
        Clients { watches: Client::new(watches, &*namespace), writes: Client::new(writes, &*namespace) }
    }
}

/// The maximum length of an error in bytes.
const LONGEST_ERROR: usize = 64 << 10;

/// A body of at most a number of bytes, whose errors are in plain words.
pub type Bounded<B> = Either<Full<Bytes>, MapErr<Limited<B>, fn(BoxError) -> BoxError>>;

/// Limits an answer as each of the program's clients does: an error is cut, another answer fails beyond `longest`.
///
/// # Errors
/// If an error can't be read.
pub async fn bounded<B>(answer: Response<B>, longest: Option<usize>) -> Result<Response<Bounded<B>>, BoxError>
where
    B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    if !answer.status().is_client_error() && !answer.status().is_server_error() {
        let limited = |body| Limited::new(body, longest.unwrap_or(usize::MAX));
        return Ok(answer.map(|body| Either::Right(limited(body).map_err(in_words as fn(BoxError) -> BoxError))));
    }
    let (head, mut body) = answer.into_parts();
    let mut error = Vec::new();
    while error.len() < LONGEST_ERROR
        && let Some(frame) = body.frame().await
    {
        if let Ok(data) = frame.map_err(|error| in_words(error.into()))?.into_data() {
            error.extend_from_slice(&data);
        }
    }
    error.truncate(LONGEST_ERROR);
    let error = String::from_utf8_lossy(&error).into_owned();
    Ok(Response::from_parts(head, Either::Left(Full::from(error))))
}

/// A request that would write.
#[derive(Debug, Error)]
#[error("{0} isn't sent: this program is started with --read-only")]
struct NotSent(Method);

impl Clients {
    /// Returns the same clients, limited to requests that read.
    pub fn read_only(&self) -> Self {
        Self { watches: read_only(&self.watches), writes: read_only(&self.writes) }
    }
}

fn read_only(client: &Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    let client = client.clone();
    let service = service_fn(move |request: Request<Body>| {
        let client = client.clone();
        async move {
            if !matches!(*request.method(), Method::GET | Method::HEAD) {
                return Err(BoxError::from(NotSent(request.method().clone())));
            }
            client.send(request).await.map_err(BoxError::from)
        }
    });
    Client::new(service, namespace)
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use super::*;
    use http::{Request, StatusCode};
    use kube::{Client, client};

    /// Returns a client whose server sends endless answers, and the number of bytes sent.
    fn endless(status: u16, part: &'static str, longest: Option<usize>) -> (Client, Arc<AtomicUsize>) {
        let sent = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&sent);
        let service = tower::service_fn(move |_: Request<client::Body>| {
            let counted = Arc::clone(&counted);
            async move {
                let parts = futures::stream::repeat_with(move || {
                    counted.fetch_add(part.len(), Ordering::Relaxed);
                    Ok::<_, io::Error>(part)
                });
                let mut answer = Response::new(axum::body::Body::from_stream(parts));
                *answer.status_mut() = StatusCode::from_u16(status).unwrap();
                Ok::<_, BoxError>(answer)
            }
        });
        (Client::new(service.and_then(move |answer| bounded(answer, longest)), "default"), sent)
    }

    fn request() -> Request<Vec<u8>> {
        Request::get("/api/v1/nodes").body(Vec::new()).unwrap()
    }

    #[tokio::test]
    async fn an_error_without_end_is_read_up_to_its_bound_and_has_its_code() {
        let (client, sent) = endless(503, "äöü of a proxy ", None);
        let error = client.request_stream(request()).await.err().unwrap();
        let kube::Error::Api(status) = &error else { panic!("{error:?}") };
        assert_eq!(status.code, 503);
        assert!(status.message.starts_with("äöü of a proxy"), "{}", status.message);
        let cause = crate::cause(&error);
        assert!(cause.len() < 10_000, "{}", cause.len());
        let sent = sent.load(Ordering::Relaxed);
        assert!((LONGEST_ERROR..2 * LONGEST_ERROR).contains(&sent), "{sent}");
    }

    #[tokio::test]
    async fn an_answer_without_end_fails_at_its_bound_and_says_so() {
        const LONGEST: usize = 100_000;
        let (client, sent) = endless(200, "0123456789", Some(LONGEST));
        let error = client.request_text(request()).await.unwrap_err();
        let cause = crate::cause(&error);
        assert!(cause.contains("the answer is too long"), "{cause}");
        let sent = sent.load(Ordering::Relaxed);
        assert!((LONGEST..2 * LONGEST).contains(&sent), "{sent}");
    }
}
