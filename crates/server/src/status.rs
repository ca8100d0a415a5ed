//! Serves the status page, with headers that let a browser show it and nothing else. This module must know nothing of
//! the page's content.

use std::sync::Arc;

use axum::{
    extract::{RawQuery, Request, State},
    http::{
        HeaderName, HeaderValue, StatusCode,
        header::{CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_FRAME_OPTIONS},
    },
    response::Response,
};
use tokio::sync::Semaphore;

use super::http::{TEXT, page, with_permit};

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

/// The status pages.
pub trait StatusPages: Send + Sync {
    /// Returns the page of a percent-decoded path, with the view that the query of its URL asks for. It may take long.
    fn page(&self, path: &str, query: &str) -> StatusAnswer;

    /// Returns the style sheet of the pages.
    fn style(&self) -> &'static str;
}

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

#[derive(Clone)]
pub(super) struct Status {
    pages: Arc<dyn StatusPages>,
    turn: Arc<Semaphore>,
}

impl Status {
    pub(super) fn new(pages: Arc<dyn StatusPages>) -> Self {
        Self { pages, turn: Arc::new(Semaphore::new(SIDE_BY_SIDE)) }
    }
}

/// Answers with the page of the request's path.
pub(super) async fn status(State(status): State<Status>, RawQuery(query): RawQuery, request: Request) -> Response {
    // The semaphore is never closed.
    let Ok(turn) = status.turn.acquire_owned().await else {
        return page(StatusCode::SERVICE_UNAVAILABLE, TEXT, "ending\n".to_owned());
    };
    let path = request.uri().path().to_owned();
    // The server builds a page to its end even if the client is gone, and holds the permit until then.
    let made =
        tokio::task::spawn_blocking(move || (status.pages.page(&decoded(&path), &query.unwrap_or_default()), turn));
    let answer = match made.await {
        Ok((StatusAnswer::Found(html), turn)) => page(StatusCode::OK, HTML, with_permit(html, turn)),
        Ok((StatusAnswer::Missing(html), turn)) => page(StatusCode::NOT_FOUND, HTML, with_permit(html, turn)),
        Ok((StatusAnswer::Wrong(html), turn)) => page(StatusCode::BAD_REQUEST, HTML, with_permit(html, turn)),
        Err(error) => page(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("can't make the page: {error}\n")),
    };
    guarded(answer)
}

pub(super) async fn style(State(status): State<Status>) -> Response {
    guarded(page(StatusCode::OK, CSS, status.pages.style()))
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

/// Decodes the percent-encoding of a path, with replacement characters for invalid UTF-8.
fn decoded(path: &str) -> String {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.bytes();
    while let Some(byte) = rest.next() {
        let mut ahead = rest.clone();
        let digits = [ahead.next(), ahead.next()].map(|digit| digit.and_then(|it| char::from(it).to_digit(16)));
        if byte == b'%'
            && let [Some(high), Some(low)] = digits
            && let Ok(value) = u8::try_from(high * 16 + low)
        {
            bytes.push(value);
            rest = ahead;
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    #[rstest]
    #[case("/groups/MachineSet/a/b", "/groups/MachineSet/a/b")]
    #[case("/a%20b%2Fc", "/a b/c")]
    #[case("/%C3%A9", "/é")]
    #[case("/%ff", "/\u{fffd}")]
    #[case("/%4", "/%4")]
    #[case("/%zz%", "/%zz%")]
    fn a_path_is_decoded(#[case] path: &str, #[case] expected: &str) {
        assert_eq!(super::decoded(path), expected);
    }
}
