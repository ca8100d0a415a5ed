//! `/debug/log-level` on the admin listener: shows the log filter, and changes it at run time. It is the only page
//! there that changes anything, so a change must come from a process of this machine, whatever the address of the
//! listener.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Extension, Router,
    extract::{DefaultBodyLimit, FromRequest as _, FromRequestParts, Request, State},
    http::{
        HeaderMap, StatusCode,
        header::{HOST, ORIGIN},
        request::Parts,
        uri::Authority,
    },
    middleware,
    response::{IntoResponse, Response},
    routing::get,
};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::{
    admin::{JSON, check_request},
    hosts::{AllowedHosts, is_loopback},
    http::{Peer, TEXT, page},
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
pub trait LogLevels: Send + Sync {
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

async fn change(_: MayChange, State(levels): State<Levels>, request: Request) -> Response {
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

/// A request that is allowed to change something. Its head alone decides, before its body is read.
struct MayChange;

impl<S: Send + Sync> FromRequestParts<S> for MayChange {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        // The extension is missing only where another server serves the router.
        let peer = Extension::<Peer>::from_request_parts(parts, state).await.map_err(IntoResponse::into_response)?;
        match refusal(peer.0.0, &parts.headers) {
            None => Ok(Self),
            Some(why) => Err(page(StatusCode::FORBIDDEN, TEXT, why)),
        }
    }
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
#[allow(clippy::unwrap_used)]
mod tests {
    use axum::http::HeaderValue;
    use rstest::rstest;

    use super::*;

    fn named(host: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(HOST, HeaderValue::from_static(host))])
    }

    #[rstest]
    #[case::loopback("127.0.0.1:1", true)]
    #[case::loopback_of_ipv6("[::1]:1", true)]
    #[case::mapped_loopback("[::ffff:127.0.0.1]:1", true)]
    #[case::another_machine("192.0.2.7:1", false)]
    #[case::another_machine_by_ipv6("[2001:db8::7]:1", false)]
    fn only_processes_of_this_machine_change_the_level(#[case] peer: SocketAddr, #[case] may: bool) {
        assert_eq!(refusal(peer, &named("localhost:8081")).is_none(), may);
    }

    #[rstest]
    #[case("localhost", true)]
    #[case("LOCALHOST.:8081", true)]
    #[case("127.0.0.2:8081", true)]
    #[case("[::1]:8081", true)]
    #[case("status.example.com", false)]
    #[case("localhost.example.com", false)]
    #[case("192.0.2.7:8081", false)]
    #[case("", false)]
    fn only_by_a_name_of_loopback(#[case] host: &'static str, #[case] may: bool) {
        let peer = "127.0.0.1:1".parse().unwrap();
        assert_eq!(refusal(peer, &named(host)).is_none(), may);
    }

    #[test]
    fn nobody_changes_the_level_through_a_proxy() {
        for header in ["forwarded", "via", "x-real-ip", "true-client-ip", "x-forwarded-for", "x-forwarded-server"] {
            let mut headers = named("localhost");
            headers.insert(header, HeaderValue::from_static("192.0.2.7"));
            assert!(refusal("127.0.0.1:1".parse().unwrap(), &headers).is_some(), "{header}");
        }
    }
}
