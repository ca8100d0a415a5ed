//! The admin listener: `/debug/state`, the whole picture for people and their tools. It shows more than probes do (names
//! of Machines and Nodes, messages of API servers), so it stays on loopback unless a flag says otherwise, and answers
//! nobody whom a browser was led here by. It holds no secrets and changes nothing.

use std::{net::IpAddr, sync::Arc};

use axum::{
    Router,
    extract::{RawQuery, Request, State},
    http::{StatusCode, Uri, header::HOST, uri::Authority},
    middleware::{self, Next},
    response::Response,
    routing::get,
};
use thiserror::Error;
use tokio::sync::Semaphore;

use super::http::{TEXT, page};

/// The path of the picture.
pub const STATE_PATH: &str = "/debug/state";

pub(super) const JSON: &str = "application/json";

/// What can be asked for on the admin listener.
pub trait DebugPages: Send + Sync {
    /// The whole picture as JSON, narrowed by the query of the URL. It may take long.
    ///
    /// # Errors
    /// When the query can't be understood, or the answer not be written.
    fn state(&self, query: &str) -> Result<Vec<u8>, DebugError>;
}

/// Why there is no picture.
#[derive(Debug, Error)]
pub enum DebugError {
    /// The query can't be understood.
    #[error("{0}")]
    Query(String),
    /// The answer can't be written.
    #[error("can't write the state: {0}")]
    Write(#[from] serde_json::Error),
}

#[derive(Clone)]
struct Admin {
    pages: Arc<dyn DebugPages>,
    /// One answer is made at a time: a large one takes a core and some memory.
    turn: Arc<Semaphore>,
}

/// The pages of the listener on `address`. Other paths are 404, methods other than GET and HEAD 405.
pub fn admin_router(pages: Arc<dyn DebugPages>, address: IpAddr) -> Router {
    Router::new()
        .route(STATE_PATH, get(state))
        .with_state(Admin { pages, turn: Arc::new(Semaphore::new(1)) })
        .layer(middleware::from_fn_with_state(address, check_host))
}

async fn state(State(admin): State<Admin>, RawQuery(query): RawQuery) -> Response {
    // The semaphore is never closed.
    let Ok(turn) = admin.turn.acquire_owned().await else {
        return page(StatusCode::SERVICE_UNAVAILABLE, TEXT, "ending\n".to_owned());
    };
    let made = tokio::task::spawn_blocking(move || {
        let answer = admin.pages.state(&query.unwrap_or_default());
        drop(turn);
        answer
    });
    match made.await {
        Ok(Ok(json)) => page(StatusCode::OK, JSON, json),
        Ok(Err(error @ DebugError::Query(_))) => page(StatusCode::BAD_REQUEST, TEXT, format!("{error}\n")),
        Ok(Err(error @ DebugError::Write(_))) => page(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("{error}\n")),
        Err(error) => page(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("can't make the state: {error}\n")),
    }
}

/// A web page may let its own name lead to a loopback address and then read whatever listens there as its own (DNS
/// rebinding). Its requests still carry that name, so no name is answered but those of loopback.
pub(super) async fn check_host(State(address): State<IpAddr>, request: Request, next: Next) -> Response {
    match wrong_host(&request, address) {
        None => next.run(request).await,
        Some(host) => page(
            StatusCode::MISDIRECTED_REQUEST,
            TEXT,
            format!(
                "host {host:?} isn't answered here: ask by a loopback address or localhost, or by the IP address that \
                 is listened on\n"
            ),
        ),
    }
}

/// The host that a request names and that isn't answered; empty when it names none.
fn wrong_host(request: &Request, address: IpAddr) -> Option<String> {
    let mut headers = request.headers().get_all(HOST).iter();
    let (header, more) = (headers.next(), headers.next());
    let (Some(header), None) = (header, more) else { return Some(String::new()) };
    let shown = || String::from_utf8_lossy(header.as_bytes()).into_owned();
    let Some(host) = header.to_str().ok().and_then(|text| text.parse::<Authority>().ok()) else {
        return Some(shown());
    };
    if !is_answered(host.host(), address) {
        return Some(shown());
    }
    // A request line may name a host of its own, and would win over the header.
    let line = Uri::host(request.uri())?;
    (!is_answered(line, address)).then(|| line.to_owned())
}

/// A name can be led anywhere, an address can't: so the names of loopback are answered, and addresses that are
/// listened on.
fn is_answered(host: &str, listened_on: IpAddr) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    if host.eq_ignore_ascii_case("localhost") {
        return true;
    }
    let literal = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    match literal.parse::<IpAddr>().map(|ip| ip.to_canonical()) {
        Ok(ip) => ip.is_loopback() || listened_on.is_unspecified() || ip == listened_on.to_canonical(),
        Err(_) => false,
    }
}
