//! `/debug/log-level` on the admin listener: shows the log filter, and changes it at run time. It is the only page
//! there that changes anything, so a change must come from a process of this machine, whatever the address of the
//! listener.

use std::{fmt, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Extension, Router,
    extract::{DefaultBodyLimit, FromRequest as _, Request, State},
    http::{
        HeaderMap, StatusCode,
        header::{HOST, ORIGIN},
        uri::Authority,
    },
    middleware,
    response::{IntoResponse, Response},
    routing::get,
};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::{
    admin::JSON,
    hosts::{AllowedHosts, check_request, is_loopback},
    http::{PeerAddress, TEXT, page},
};

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
