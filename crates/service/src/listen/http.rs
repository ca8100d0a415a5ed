//! Probes and metrics over HTTP: `/livez`, `/readyz` (`?verbose`), `/metrics`. They need no credentials, so they may
//! show names and reasons, and must never show the content of an object or a request, or change anything.

use std::{
    fmt::Write as _,
    io,
    net::{SocketAddr, TcpListener},
    pin::pin,
    sync::Arc,
    time::Instant,
};

use axum::{
    Extension, Router,
    body::Bytes,
    extract::{RawQuery, State},
    http::{
        HeaderName, HeaderValue, StatusCode,
        header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS},
    },
    middleware::map_response,
    response::{IntoResponse, Response},
    routing::get,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
    service::TowerToHyperService,
};
use rules::log_limit::LogLimit;
use tokio::{
    net::TcpStream,
    sync::OwnedSemaphorePermit,
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{
    Check, CheckState, Checks, SharedRegistry,
    connections::{ACCEPT_PAUSE, Limits, OpenConnections, Place},
    metrics::{PROMETHEUS_TEXT, ScrapeError, Scrapes},
};

const MAX_HEADER_BYTES: usize = 16 << 10;
const CROSS_ORIGIN_RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
pub(super) const TEXT: &str = "text/plain; charset=utf-8";

/// The address of the client, an extension of each request.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerAddress(pub(super) SocketAddr);

/// Returns the probes and metrics. Other paths answer 404, and methods other than GET and HEAD answer 405.
pub fn http_router(checks: Arc<dyn Checks>, registry: SharedRegistry) -> Router {
    probe_router(checks).merge(metrics_router(registry))
}

pub(super) fn metrics_router(registry: SharedRegistry) -> Router {
    Router::new().route("/metrics", get(scrape)).with_state(Arc::new(Scrapes::new(registry)))
}

/// Returns the probes alone, for a listener of their own.
pub fn probe_router(checks: Arc<dyn Checks>) -> Router {
    Router::new().route("/livez", get(livez)).route("/readyz", get(readyz)).with_state(checks)
}

/// Serves the pages until `shutdown` is cancelled, and then completes the requests under way. It needs a running Tokio
/// runtime, and cuts its connections when it is dropped. `listener` must be non-blocking.
///
/// # Errors
/// If the runtime can't register the listener.
pub async fn serve_http(listener: TcpListener, router: Router, shutdown: CancellationToken) -> io::Result<()> {
    serve_within(listener, router, Limits::default(), shutdown).await
}

pub(super) async fn serve_within(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let router = protected(router);
    let open = OpenConnections::new(limits);
    let mut connections = JoinSet::new();
    let mut logged = LogLimit::new(1);
    let accepting = async {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    let (place, evicted) = open.open(peer.ip().into(), None, false);
                    if let Some(client) = evicted
                        && let Some(more) = logged.allows((), 1, Instant::now())
                    {
                        let Limits { total, per_peer, .. } = limits;
                        warn!(
                            %client, total, per_peer, more,
                            "a client has too many HTTP connections: its oldest are closed"
                        );
                    }
                    let (router, shutdown) = (router.clone(), shutdown.clone());
                    connections.spawn(serve_connection((stream, PeerAddress(peer)), router, limits, (place, shutdown)));
                }
                Err(error) => {
                    warn!(%error, "can't accept an HTTP connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
            while connections.try_join_next().is_some() {}
        }
    };
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = accepting => {}
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
    Ok(())
}

/// Serves one connection. axum's own server doesn't limit the time that a client may take to send a request or read the
/// answer.
async fn serve_connection(
    (stream, peer): (TcpStream, PeerAddress),
    router: Router,
    limits: Limits,
    (place, shutdown): (Place, CancellationToken),
) {
    let router = router.layer(Extension(peer));
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(limits.write));
    let mut builder = Builder::new(TokioExecutor::new()).http1_only();
    builder.http1().timer(TokioTimer::new()).header_read_timeout(limits.headers).max_buf_size(MAX_HEADER_BYTES);
    let serving = builder.serve_connection(TokioIo::new(Box::pin(stream)), TowerToHyperService::new(router));
    let mut serving = pin!(serving);
    let cut = &place.connection.cut;
    tokio::select! {
        _ = serving.as_mut() => return,
        () = cut.cancelled() => return,
        () = sleep(limits.age) => {}
        () = shutdown.cancelled() => {}
    }
    serving.as_mut().graceful_shutdown();
    let last_request = timeout(limits.last_request, serving);
    tokio::select! {
        // An error is the client's: it went away, didn't speak HTTP, or reads too slowly.
        _ = last_request => {}
        () = cut.cancelled() => {}
    }
}

/// Reports that the process answers: a restart could fix nothing else.
async fn livez() -> Response {
    page(StatusCode::OK, TEXT, "ok\n".to_owned())
}

async fn readyz(State(checks): State<Arc<dyn Checks>>, RawQuery(query): RawQuery) -> Response {
    let verbose = query.is_some_and(|query| {
        query.split('&').any(|parameter| parameter == "verbose" || parameter.starts_with("verbose="))
    });
    // `kubectl describe` shows the answer of a failed probe, so it always says what is missing.
    let shown = if verbose { checks.checks() } else { checks.pending() };
    if !shown.iter().all(Check::is_ready) {
        return page(StatusCode::SERVICE_UNAVAILABLE, TEXT, list(&shown, "readyz check failed"));
    }
    let text = if verbose { list(&shown, "readyz check passed") } else { "ok\n".to_owned() };
    page(StatusCode::OK, TEXT, text)
}

async fn scrape(State(scrapes): State<Arc<Scrapes>>) -> Response {
    match scrapes.text().await {
        Ok(text) => page(StatusCode::OK, PROMETHEUS_TEXT, text),
        Err(error @ ScrapeError::Unread) => page(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{error}\n")),
        Err(error @ (ScrapeError::Encode(_) | ScrapeError::Task(_))) => {
            page(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("{error}\n"))
        }
    }
}

/// Formats one line per check, as Kubernetes components do.
fn list(checks: &[Check], verdict: &str) -> String {
    let mut text = String::new();
    for Check { name, state, reason } in checks {
        let (name, why) = (one_line(name), reason.as_deref().map(one_line));
        // Writing to a String can't fail.
        let _ = match (state, why.as_deref()) {
            (CheckState::Ready, None) => writeln!(text, "[+]{name} ok"),
            (CheckState::Ready, Some(why)) => writeln!(text, "[+]{name} ok, but {why}"),
            (CheckState::Pending, why) => writeln!(text, "[-]{name}: {}", why.unwrap_or_default()),
            (CheckState::Informational, why) => {
                writeln!(text, "[~]{name}: {} (not waited for)", why.unwrap_or_default())
            }
        };
    }
    text.push_str(verdict);
    text.push('\n');
    text
}

/// Puts a text on one line: a reason may quote an API server's message, which must not look like further lines.
fn one_line(text: &str) -> String {
    text.split(char::is_control).map(str::trim).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

pub(super) fn page(status: StatusCode, content_type: &'static str, body: impl IntoResponse) -> Response {
    (status, [(CONTENT_TYPE, content_type), (CACHE_CONTROL, "no-store")], body).into_response()
}

/// Adds headers to each answer, those of axum itself included: a browser must not guess that a text is a page, nor show
/// it within a page of another site.
pub(super) fn protected(router: Router) -> Router {
    router.layer(map_response(async |mut response: Response| {
        let headers = response.headers_mut();
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(CROSS_ORIGIN_RESOURCE_POLICY, HeaderValue::from_static("same-origin"));
        response
    }))
}

/// Returns a body that holds a permit until it is sent, or its client is gone.
pub(super) fn with_permit(body: impl Into<Vec<u8>>, permit: OwnedSemaphorePermit) -> Bytes {
    struct WithPermit(Vec<u8>, #[expect(dead_code, reason = "dropped with the body")] OwnedSemaphorePermit);
    impl AsRef<[u8]> for WithPermit {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    Bytes::from_owner(WithPermit(body.into(), permit))
}
