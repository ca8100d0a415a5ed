//! The admin listener: the status page for people, and for their tools `/debug/state`, the whole live state, and
//! `/debug/clusters`, the Clusters of a fleet. It has the metrics too, for those who forward this port alone. It shows
//! more than probes do (names of Machines and Nodes, messages of API servers), so it stays on loopback unless a flag says
//! otherwise, and never answers a request that a page of another site makes. It must hold no secrets, change nothing but
//! the log filter (log_level.rs), and knows nothing of the pages' content.

use std::sync::Arc;

use axum::{
    Router,
    extract::{RawQuery, Request, State},
    http::{
        HeaderName, HeaderValue, StatusCode,
        header::{CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_FRAME_OPTIONS},
    },
    middleware,
    response::Response,
    routing::get,
};
use percent_encoding::percent_decode_str;
use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{
    hosts::{AllowedHosts, check_request},
    http::{TEXT, metrics_router, page, with_permit},
    metrics::SharedRegistry,
};

/// The path of the live state.
pub const STATE_PATH: &str = "/debug/state";

/// The path of the Clusters of a fleet.
pub const CLUSTERS_PATH: &str = "/debug/clusters";

pub(super) const JSON: &str = "application/json";

/// The pages of the admin listener: the data for programs, and the status pages for people.
pub trait AdminPages: Send + Sync {
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

    /// Returns the page of a percent-decoded path, with the view that the query of its URL asks for. It may take long.
    fn page(&self, path: &str, query: &str) -> StatusAnswer;

    /// Returns the style sheet of the pages.
    fn style(&self) -> &'static str;
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

/// The path of the style sheet that the pages link to.
pub const STYLE_PATH: &str = "/style.css";

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
/// The maximum number of concurrent pages, since each takes a core while it is built.
const SIDE_BY_SIDE: usize = 2;
/// The policy forbids scripts, foreign content and framing, and limits forms to this listener. `data:` is for the empty
/// icon.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
);

/// A page, as HTML.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum StatusAnswer {
    /// The requested page.
    Found(String),
    /// There is no such page.
    Missing(String),
    /// The query is invalid.
    Wrong(String),
}

/// A source of pages, of which a number are built and sent at a time, since each takes a core and some memory.
#[derive(Clone)]
struct Pages {
    source: Arc<dyn AdminPages>,
    turns: Arc<Semaphore>,
}

impl Pages {
    fn new(source: Arc<dyn AdminPages>, at_once: usize) -> Self {
        Self { source, turns: Arc::new(Semaphore::new(at_once)) }
    }

    /// Makes a page, and returns it with its turn. One that was begun is completed even if its client is gone, and keeps
    /// its turn until then.
    async fn make<T: Send + 'static>(
        self,
        ask: impl FnOnce(&dyn AdminPages) -> T + Send + 'static,
    ) -> Result<(T, OwnedSemaphorePermit), String> {
        // The semaphore is never closed.
        let turn = self.turns.acquire_owned().await.map_err(|error| error.to_string())?;
        let made = tokio::task::spawn_blocking(move || (ask(&*self.source), turn)).await;
        made.map_err(|error| format!("can't make the page: {error}"))
    }
}

/// Returns the pages of the listener, for requests that name one of `hosts`. Other paths answer 404, and methods other
/// than GET and HEAD answer 405.
pub fn admin_router(pages: Arc<dyn AdminPages>, registry: SharedRegistry, hosts: AllowedHosts) -> Router {
    let debug = Router::new()
        .route(STATE_PATH, get(state))
        .route(CLUSTERS_PATH, get(clusters))
        .with_state(Pages::new(Arc::clone(&pages), 1));
    let people = Router::new()
        .route("/", get(status))
        .route("/groups/{kind}/{namespace}/{name}", get(status))
        .route(STYLE_PATH, get(style))
        .fallback(status)
        .with_state(Pages::new(pages, SIDE_BY_SIDE));
    let routes = debug.merge(people).merge(metrics_router(registry));
    routes.layer(middleware::from_fn_with_state(Arc::new(hosts), check_request))
}

async fn state(State(pages): State<Pages>, RawQuery(query): RawQuery) -> Response {
    json(pages.make(move |source| source.state(&query.unwrap_or_default())).await)
}

async fn clusters(State(pages): State<Pages>) -> Response {
    json(pages.make(|source| source.clusters()).await)
}

fn json(made: Result<(Result<Vec<u8>, DebugError>, OwnedSemaphorePermit), String>) -> Response {
    let (code, why) = match made {
        Ok((Ok(json), turn)) => return page(StatusCode::OK, JSON, with_permit(json, turn)),
        Ok((Err(error @ DebugError::Query(_)), _)) => (StatusCode::BAD_REQUEST, error.to_string()),
        Ok((Err(error @ DebugError::Write(_)), _)) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        Err(why) => (StatusCode::INTERNAL_SERVER_ERROR, why),
    };
    page(code, TEXT, why + "\n")
}

/// Answers with the page of the request's path.
async fn status(State(pages): State<Pages>, RawQuery(query): RawQuery, request: Request) -> Response {
    let path = percent_decode_str(request.uri().path()).decode_utf8_lossy().into_owned();
    guarded(match pages.make(move |source| source.page(&path, &query.unwrap_or_default())).await {
        Ok((StatusAnswer::Found(html), turn)) => page(StatusCode::OK, HTML, with_permit(html, turn)),
        Ok((StatusAnswer::Missing(html), turn)) => page(StatusCode::NOT_FOUND, HTML, with_permit(html, turn)),
        Ok((StatusAnswer::Wrong(html), turn)) => page(StatusCode::BAD_REQUEST, HTML, with_permit(html, turn)),
        Err(why) => page(StatusCode::INTERNAL_SERVER_ERROR, TEXT, why + "\n"),
    })
}

async fn style(State(pages): State<Pages>) -> Response {
    guarded(page(StatusCode::OK, CSS, pages.source.style()))
}

fn guarded(mut response: Response) -> Response {
    let headers: [(HeaderName, HeaderValue); 3] = [
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    ];
    response.headers_mut().extend(headers);
    response
}
