//! Probes and metrics over HTTP: `/livez`, `/readyz` (`?verbose`), `/metrics`. They need no credentials, so they
//! show names and reasons and never what an object or a request holds; and they change nothing.

use std::{
    fmt::{Display, Write as _},
    io,
    net::{SocketAddr, TcpListener},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use axum::{
    Extension, Router,
    extract::{RawQuery, State},
    http::{
        HeaderMap, StatusCode,
        header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS},
    },
    response::{IntoResponse, Response},
    routing::get,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
    service::TowerToHyperService,
};
use tokio::{net::TcpStream, sync::Semaphore, task::JoinSet};
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{
    Check, CheckState, Checks, SharedRegistry,
    metrics::{TextForm, encode},
};

/// Probes and a few scrapers need no more; others wait.
const MAX_CONNECTIONS: usize = 128;
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client may leave an answer unread: until then it is held in memory.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_HEADER_BYTES: usize = 16 << 10;
/// Before the next try when no connection can be accepted, for want of file descriptors for example.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
pub(super) const TEXT: &str = "text/plain; charset=utf-8";

/// Who asks; each request has it as an extension.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) SocketAddr);

#[derive(Clone)]
struct Pages {
    checks: Arc<dyn Checks>,
    registry: SharedRegistry,
}

/// The pages. Other paths are 404, and methods other than GET and HEAD 405.
pub fn http_router(checks: Arc<dyn Checks>, registry: SharedRegistry) -> Router {
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(scrape))
        .with_state(Pages { checks, registry })
}

/// Serves the pages until `shutdown` is cancelled, and the requests under way after it. It needs a running Tokio
/// runtime; dropping it cuts its connections. `listener` must be non-blocking.
///
/// # Errors
/// When the runtime can't take the listener.
pub async fn serve_http(listener: TcpListener, router: Router, shutdown: CancellationToken) -> io::Result<()> {
    serve_within(listener, router, Limits { write: WRITE_TIMEOUT }, shutdown).await
}

/// What a client may take; tests are less patient.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// For an answer, without reading any of it.
    pub(super) write: Duration,
}

pub(super) async fn serve_within(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    let accepting = async {
        // The semaphore is never closed.
        while let Ok(slot) = Arc::clone(&slots).acquire_owned().await {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    let (router, shutdown) = (router.clone(), shutdown.clone());
                    connections.spawn(async move {
                        serve_connection((stream, Peer(peer)), router, limits, shutdown).await;
                        drop(slot);
                    });
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

/// axum's own server sets no limit on how long a client may take to send a request, or to read the answer.
async fn serve_connection(
    (stream, peer): (TcpStream, Peer),
    router: Router,
    limits: Limits,
    shutdown: CancellationToken,
) {
    let router = router.layer(Extension(peer));
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(limits.write));
    let mut builder = Builder::new(TokioExecutor::new()).http1_only();
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).max_buf_size(MAX_HEADER_BYTES);
    let serving = builder.serve_connection(TokioIo::new(Box::pin(stream)), TowerToHyperService::new(router));
    let mut serving = pin!(serving);
    let asked = tokio::select! {
        _ = serving.as_mut() => return,
        () = shutdown.cancelled() => serving.as_mut(),
    };
    asked.graceful_shutdown();
    // An error is the client's: it went away, or sent no HTTP.
    let _ = serving.await;
}

/// The process answers, and that is all a restart could mend.
async fn livez() -> Response {
    page(StatusCode::OK, TEXT, "ok\n".to_owned())
}

async fn readyz(State(pages): State<Pages>, RawQuery(query): RawQuery) -> Response {
    let checks = pages.checks.checks();
    let verbose = query.is_some_and(|query| {
        query.split('&').any(|parameter| parameter == "verbose" || parameter.starts_with("verbose="))
    });
    if checks.iter().all(Check::is_ready) {
        let text = if verbose { list(&checks, "readyz check passed") } else { "ok\n".to_owned() };
        return page(StatusCode::OK, TEXT, text);
    }
    // A failed probe's answer is shown by kubectl describe: say what is missing even when not asked to.
    let shown: Vec<_> = checks.into_iter().filter(|check| verbose || !check.is_ready()).collect();
    page(StatusCode::SERVICE_UNAVAILABLE, TEXT, list(&shown, "readyz check failed"))
}

async fn scrape(State(pages): State<Pages>, headers: HeaderMap) -> Response {
    let form = TextForm::accepted(headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()));
    // Those of a large fleet take some milliseconds, which watches and writes on this runtime shall not wait for.
    let made = tokio::task::spawn_blocking(move || encode(&pages.registry, form));
    let failed = |error: &dyn Display| {
        page(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("can't write the metrics: {error}\n"))
    };
    match made.await {
        Ok(Ok(text)) => page(StatusCode::OK, form.content_type(), text),
        Ok(Err(error)) => failed(&error),
        Err(error) => failed(&error),
    }
}

/// One line per check, as Kubernetes' own components write them.
fn list(checks: &[Check], verdict: &str) -> String {
    let mut text = String::new();
    for Check { name, state } in checks {
        // Writing to a String can't fail.
        let _ = match state {
            CheckState::Ready => writeln!(text, "[+]{} ok", one_line(name)),
            CheckState::Pending(why) => writeln!(text, "[-]{}: {}", one_line(name), one_line(why)),
            CheckState::Informational(why) => {
                writeln!(text, "[~]{}: {} (not waited for)", one_line(name), one_line(why))
            }
        };
    }
    text.push_str(verdict);
    text.push('\n');
    text
}

/// A reason may quote an API server's message, which must not look like further lines.
fn one_line(text: &str) -> String {
    text.split(char::is_control).map(str::trim).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

pub(super) fn page(status: StatusCode, content_type: &'static str, body: impl IntoResponse) -> Response {
    // A browser must not guess that a text is a page.
    let headers = [(CONTENT_TYPE, content_type), (CACHE_CONTROL, "no-store"), (X_CONTENT_TYPE_OPTIONS, "nosniff")];
    (status, headers, body).into_response()
}
