//! The admin listener: the status page for people, and for their tools `/debug/state`, the whole live state, and
//! `/debug/clusters`, the Clusters of a fleet. It shows more than probes do (names of Machines and Nodes, messages of
//! API servers), so it stays on loopback unless a flag says otherwise, and never answers a request that a page of
//! another site makes. It must hold no secrets and change nothing.

use std::sync::Arc;

use axum::{
    Router,
    extract::{RawQuery, Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode},
    middleware::{self, Next},
    response::Response,
    routing::get,
};
use thiserror::Error;
use tokio::sync::Semaphore;

use super::{
    hosts::AllowedHosts,
    http::{TEXT, page, with_permit},
    status::{STYLE_PATH, Status, StatusPages, status, style},
};

/// The path of the live state.
pub const STATE_PATH: &str = "/debug/state";

/// The path of the Clusters of a fleet.
pub const CLUSTERS_PATH: &str = "/debug/clusters";

pub(super) const JSON: &str = "application/json";

/// The data behind the pages of the admin listener.
pub trait DebugPages: Send + Sync {
    /// Returns the whole live state as JSON, narrowed by the query of the URL. It may take long.
    ///
    /// # Errors
    /// If the query can't be understood, or the answer can't be written.
    fn state(&self, query: &str) -> Result<Vec<u8>, DebugError>;

    /// Returns the Clusters of a fleet as JSON.
    ///
    /// # Errors
    /// If there is no fleet, or the answer can't be written.
    fn clusters(&self) -> Result<Vec<u8>, DebugError>;
}

/// The reason why there is no answer.
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
    /// One answer is built and sent at a time, since a large one takes a core and some memory.
    turn: Arc<Semaphore>,
}

/// Returns the pages of the listener, for requests that name one of `hosts`. Other paths answer 404, and methods other
/// than GET and HEAD answer 405.
pub fn admin_router(pages: Arc<dyn DebugPages>, people: Arc<dyn StatusPages>, hosts: AllowedHosts) -> Router {
    let debug = Router::new()
        .route(STATE_PATH, get(state))
        .route(CLUSTERS_PATH, get(clusters))
        .with_state(Admin { pages, turn: Arc::new(Semaphore::new(1)) });
    let people = Router::new()
        .route("/", get(status))
        .route("/groups/{kind}/{namespace}/{name}", get(status))
        .route(STYLE_PATH, get(style))
        .fallback(status)
        .with_state(Status::new(people));
    debug.merge(people).layer(middleware::from_fn_with_state(Arc::new(hosts), check_request))
}

async fn state(State(admin): State<Admin>, RawQuery(query): RawQuery) -> Response {
    answer(admin, move |pages| pages.state(&query.unwrap_or_default())).await
}

async fn clusters(State(admin): State<Admin>) -> Response {
    answer(admin, |pages| pages.clusters()).await
}

async fn answer(
    admin: Admin,
    ask: impl FnOnce(&dyn DebugPages) -> Result<Vec<u8>, DebugError> + Send + 'static,
) -> Response {
    // The semaphore is never closed.
    let Ok(turn) = admin.turn.acquire_owned().await else {
        return page(StatusCode::SERVICE_UNAVAILABLE, TEXT, "ending\n".to_owned());
    };
    // An answer that was begun is completed even if its client is gone, and keeps its turn until then.
    let made = tokio::task::spawn_blocking(move || (ask(&*admin.pages), turn));
    match made.await {
        Ok((Ok(json), turn)) => page(StatusCode::OK, JSON, with_permit(json, turn)),
        Ok((Err(error @ DebugError::Query(_)), _)) => page(StatusCode::BAD_REQUEST, TEXT, format!("{error}\n")),
        Ok((Err(error @ DebugError::Write(_)), _)) => {
            page(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("{error}\n"))
        }
        Err(error) => page(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("can't make the state: {error}\n")),
    }
}

/// Lets requests pass that name an allowed host and aren't made by a page of another site.
pub(super) async fn check_request(State(hosts): State<Arc<AllowedHosts>>, request: Request, next: Next) -> Response {
    match hosts.wrong_host(&request) {
        None if is_cross_site(request.headers(), request.method()) => {
            page(StatusCode::FORBIDDEN, TEXT, "requests of other sites' pages aren't answered\n")
        }
        None => next.run(request).await,
        Some(host) => page(
            StatusCode::MISDIRECTED_REQUEST,
            TEXT,
            format!(
                "host {host:?} isn't answered here: ask by a loopback address or localhost, by the IP address that is \
                 listened on, or by a name that --admin-allowed-hosts gives\n"
            ),
        ),
    }
}

/// Returns true if the browser marks the request as made by a page of another origin. Following a link to this listener
/// is allowed.
fn is_cross_site(headers: &HeaderMap, method: &Method) -> bool {
    let value = |name: &str| headers.get(name).map(HeaderValue::as_bytes);
    let is_link = || *method == Method::GET && value("sec-fetch-mode") == Some(b"navigate");
    let is_framed = || value("sec-fetch-dest") != Some(b"document");
    match value("sec-fetch-site") {
        None | Some(b"same-origin" | b"none") => false,
        Some(_) => !is_link() || is_framed(),
    }
}
