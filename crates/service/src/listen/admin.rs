//! The admin listener: the status page for people, and for their tools `/debug/state`, the whole live state, and
//! `/debug/clusters`, the Clusters of a fleet. It has the metrics too, for those who forward this port alone. It shows
//! more than probes do (names of Machines and Nodes, messages of API servers), so it stays on loopback unless a flag says
//! otherwise, and never answers a request that a page of another site makes. It must hold no secrets, change nothing but
//! the log filter, and knows nothing of the pages' content.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use axum::{
    Extension, Router,
    extract::{DefaultBodyLimit, FromRequest as _, RawQuery, Request, State},
    http::{
        HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri,
        header::{CONTENT_SECURITY_POLICY, HOST, ORIGIN, REFERRER_POLICY, X_FRAME_OPTIONS},
        uri::Authority,
    },
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::get,
};
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use super::{
    http::{PeerAddress, TEXT, metrics_router, page, with_permit},
    metrics::SharedRegistry,
};

/// The path of the live state.
pub const STATE_PATH: &str = "/debug/state";

/// The path of the Clusters of a fleet.
pub const CLUSTERS_PATH: &str = "/debug/clusters";

const JSON: &str = "application/json";

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

// The requests that are answered, by the hosts that they name and by the page that made them. A web page may point its own
// name to a loopback address and then read whatever listens there as its own (DNS rebinding). Its requests still carry that
// name, so only the names of loopback and those that the operator gives are answered.

/// The maximum length of a DNS name.
const LONGEST: usize = 253;

/// The allowed hosts.
#[derive(Clone, Debug)]
pub struct AllowedHosts {
    /// The address of the listener.
    pub listened_on: IpAddr,
    /// Further names, and addresses that lead to the listener.
    pub names: Vec<HostName>,
}

/// A host name or an IP address, without a port and in lower case.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HostName(String);

/// The error of a text that isn't a host name.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("it has to be a DNS name or an IP address without scheme, port and path, such as status.example.com")]
pub struct HostNameError;

impl FromStr for HostName {
    type Err = HostNameError;

    fn from_str(text: &str) -> Result<Self, HostNameError> {
        let name = text.to_ascii_lowercase();
        if bare(&name).parse::<IpAddr>().is_ok() {
            return Ok(Self(bare(&name).to_owned()));
        }
        let is_label = |label: &str| {
            let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
            !label.is_empty() && label.bytes().all(is_inner) && !label.starts_with('-') && !label.ends_with('-')
        };
        let name = name.strip_suffix('.').unwrap_or(&name);
        if name.len() <= LONGEST && name.split('.').all(is_label) {
            Ok(Self(name.to_owned()))
        } else {
            Err(HostNameError)
        }
    }
}

impl AllowedHosts {
    /// Allows the names of loopback and the address of the listener.
    pub fn on(listened_on: IpAddr) -> Self {
        Self { listened_on, names: Vec::new() }
    }

    /// Returns the host that a request names if it isn't allowed; empty if it names none, or several.
    fn wrong_host(&self, request: &Request) -> Option<String> {
        let mut headers = request.headers().get_all(HOST).iter();
        let (header, more) = (headers.next(), headers.next());
        let (Some(header), None) = (header, more) else { return Some(String::new()) };
        let shown = || String::from_utf8_lossy(header.as_bytes()).into_owned();
        let Some(host) = header.to_str().ok().and_then(|text| text.parse::<Authority>().ok()) else {
            return Some(shown());
        };
        if !self.answers(host.host()) {
            return Some(shown());
        }
        // A request line may name a host of its own, and would win over the header.
        let line = Uri::host(request.uri())?;
        (!self.answers(line)).then(|| line.to_owned())
    }

    /// Returns true if the host is allowed. Anyone can point a name at any address, so only the names of loopback, the
    /// addresses of the listener, and the hosts that the operator gives are allowed.
    fn answers(&self, host: &str) -> bool {
        let host = host.strip_suffix('.').unwrap_or(host);
        let is_given = self.names.iter().any(|name| name.0.eq_ignore_ascii_case(bare(host)));
        if is_given || is_loopback(host) {
            return true;
        }
        match bare(host).parse::<IpAddr>().map(|ip| ip.to_canonical()) {
            Ok(ip) => self.listened_on.is_unspecified() || ip == self.listened_on.to_canonical(),
            Err(_) => false,
        }
    }
}

/// Returns true for a name or an address of loopback.
fn is_loopback(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let is_address = || bare(host).parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback());
    host.eq_ignore_ascii_case("localhost") || is_address()
}

/// Removes the brackets that an IPv6 address has in URLs.
fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// Lets requests pass that name an allowed host and aren't made by a page of another site.
async fn check_request(State(hosts): State<Arc<AllowedHosts>>, request: Request, next: Next) -> Response {
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

// The log filter, which is shown and changed at run time. Nothing else here changes anything, so a change must come from a
// process of this machine, whatever the address of the listener.

/// The path of the log level.
pub const LOG_LEVEL_PATH: &str = "/debug/log-level";

const LONGEST_FILTER: usize = 4096;
/// The time that a client has to send a filter.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// The log filter in force.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LogLevel {
    /// The filter in force.
    pub filter: String,
    /// The filter that the program was started with.
    pub start: String,
}

/// The log filter of this process.
pub trait LogLevels: fmt::Debug + Send + Sync {
    /// Returns the filter in force.
    fn level(&self) -> LogLevel;

    /// Changes the log filter until the next start.
    ///
    /// # Errors
    /// If the filter is wrong, with the reason.
    fn change(&self, filter: &str) -> Result<(), String>;
}

type Levels = Arc<dyn LogLevels>;

/// Returns the page, for requests that name one of `hosts`: GET shows, and PUT changes.
pub fn log_level_router(levels: Levels, hosts: AllowedHosts) -> Router {
    Router::new()
        .route(LOG_LEVEL_PATH, get(show).put(change))
        .with_state(levels)
        .layer(DefaultBodyLimit::max(LONGEST_FILTER))
        .layer(middleware::from_fn_with_state(Arc::new(hosts), check_request))
}

async fn show(State(levels): State<Levels>) -> Response {
    level_response(&levels)
}

async fn change(State(levels): State<Levels>, Extension(peer): Extension<PeerAddress>, request: Request) -> Response {
    // Its head alone decides, before its body is read.
    if let Some(why) = refusal(peer.0, request.headers()) {
        return page(StatusCode::FORBIDDEN, TEXT, why);
    }
    let filter = match timeout(BODY_TIMEOUT, String::from_request(request, &())).await {
        Ok(Ok(filter)) => filter,
        Ok(Err(refused)) => return refused.into_response(),
        Err(_) => return page(StatusCode::REQUEST_TIMEOUT, TEXT, timeout_message()),
    };
    match levels.change(&filter) {
        Ok(()) => level_response(&levels),
        Err(why) => page(StatusCode::BAD_REQUEST, TEXT, format!("the log level stays as it is: {why}\n")),
    }
}

fn timeout_message() -> String {
    let seconds = BODY_TIMEOUT.as_secs();
    format!("the log level stays as it is: its filter wasn't sent within {seconds} s; send it at once\n")
}

/// Returns true for a header by which a proxy shows that it forwards a request.
fn is_of_proxy(name: &str) -> bool {
    matches!(name, "forwarded" | "via" | "x-real-ip" | "true-client-ip") || name.starts_with("x-forwarded-")
}

/// Returns the reason why a client may not change anything.
fn refusal(peer: SocketAddr, headers: &HeaderMap) -> Option<&'static str> {
    if headers.contains_key(ORIGIN) {
        return Some("the log level isn't changed from web pages\n");
    }
    let is_loopback = peer.ip().to_canonical().is_loopback() && names_loopback(headers);
    if is_loopback && !headers.keys().any(|name| is_of_proxy(name.as_str())) {
        return None;
    }
    Some(
        "the log level is only changed from a loopback address, by its name, and not through a proxy: ask on the server's own \
         machine, or by kubectl port-forward\n",
    )
}

/// Returns true if a request names a host of loopback.
fn names_loopback(headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()?.parse::<Authority>().ok());
    host.is_some_and(|host| is_loopback(host.host()))
}

fn level_response(levels: &Levels) -> Response {
    match serde_json::to_string(&levels.level()) {
        Ok(json) => page(StatusCode::OK, JSON, json + "\n"),
        Err(error) => page(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("can't write the log level: {error}\n")),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("status.example.com", true)]
    #[case("Status.Example.COM.", true)]
    #[case("capi-autoscaler.team_a", true)]
    #[case("10.0.0.5", true)]
    #[case("2001:db8::1", true)]
    #[case("[2001:db8::1]", true)]
    #[case("status.example.com:8081", false)]
    #[case("http://status.example.com", false)]
    #[case("status.example.com/", false)]
    #[case("*.example.com", false)]
    #[case("a..b", false)]
    #[case("-a", false)]
    #[case("", false)]
    #[case("user@host", false)]
    fn a_host_is_a_name_or_an_address(#[case] text: &str, #[case] is_one: bool) {
        assert_eq!(text.parse::<HostName>().is_ok(), is_one, "{text}");
    }
}
