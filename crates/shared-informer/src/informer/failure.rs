//! Failures of requests to an API server: their messages, and the properties that the list-watch loop reacts to. Must
//! never quote an object's content.

use std::{error::Error as StdError, io, time::Duration};

use kube::{core::Status, core::request};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

use crate::object::text;

/// The reason for which a request, a list page or a watch failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Failure {
    /// The API server refused, or sent an error within a watch. `code` is 0 if it sent none.
    #[error("{reason}")]
    Api {
        code: u16,
        reason: String,
        /// The time after which the server asks clients to retry.
        retry_after: Option<Duration>,
    },
    /// No answer arrived: connection, TLS, credentials, or a cut body.
    #[error("{0}")]
    Transport(String),
    /// No answer arrived in time.
    #[error("no answer in {0:?}")]
    Timeout(Duration),
    /// The watch sent neither an event nor a bookmark.
    #[error("the watch stalled: no event and no bookmark in {0:?}")]
    Stalled(Duration),
    /// A streamed list goes on as a watch, but its end never came.
    #[error("the streamed list has no end: {0}")]
    Endless(String),
    /// The watch ended before its time.
    #[error("the watch was cut after {0:.1?}")]
    Cut(Duration),
    /// A list page is longer than the limit.
    #[error("a page of the list is longer than {0} bytes")]
    TooLong(usize),
    /// The answer isn't of the requested form.
    #[error("unexpected answer: {0}")]
    Garbled(String),
    /// The answer goes beyond a limit, and the next one most likely does too.
    #[error("unexpected answer: {0}")]
    BeyondLimit(String),
}

impl Failure {
    /// Returns true if the resource version or the token for the next page has expired, or the server never issued
    /// it.
    pub(super) fn is_gone(&self) -> bool {
        matches!(self, Self::Api { code, reason, .. } if *code == 410 || reason.contains("Too large resource version"))
    }

    /// Returns true if reading the answer took all that a limit allows, so that the next attempt has to wait for the
    /// longest pause.
    pub(super) fn is_beyond_limit(&self) -> bool {
        matches!(self, Self::BeyondLimit(_))
    }

    /// Returns true if the server's answer is itself the failure.
    pub(super) fn is_reported(&self) -> bool {
        matches!(self, Self::Api { .. } | Self::TooLong(_) | Self::Garbled(_) | Self::BeyondLimit(_))
    }

    /// Returns true if the failure is typical of a server without streamed lists, of one that doesn't allow this
    /// client to watch, or of one behind a proxy that buffers answers. The list is then requested in pages at once.
    pub(super) fn refuses_streams(&self) -> bool {
        match self {
            Self::Api { code, .. } => matches!(code, 400 | 403 | 404 | 405 | 406 | 410 | 415 | 422 | 501),
            // Pages have the same limits of objects and bytes.
            other => matches!(other, Self::Garbled(_) | Self::TooLong(_) | Self::Timeout(_)),
        }
    }

    /// Returns true if the server will refuse every streamed list of this kind.
    pub(super) fn lacks_streams(&self) -> bool {
        matches!(self, Self::Api { code: 400 | 405 | 406 | 415 | 422 | 501, .. })
    }

    /// Returns true if a streamed list had begun and its end didn't come. What loses it, such as a proxy, stands before
    /// all kinds.
    pub(super) fn loses_end(&self) -> bool {
        matches!(self, Self::Stalled(_) | Self::Endless(_))
    }

    /// Returns true if the same request may succeed later. Missing permissions count, since they are granted from
    /// outside.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::Api { code, .. } => matches!(code, 401 | 403 | 408 | 429 | 500..=599),
            other => matches!(other, Self::Transport(_) | Self::Timeout(_) | Self::Stalled(_) | Self::Cut(_)),
        }
    }

    pub(super) fn garbled(what: &str, error: &dyn StdError) -> Self {
        Self::Garbled(first_line(&format!("{what}: {error}")))
    }

    /// Creates a failure for objects whose kept fields have too many bytes.
    pub(super) fn beyond(objects: &str, max_bytes: usize) -> Self {
        Self::BeyondLimit(format!(
            "the kept fields of {objects} have more than {max_bytes} bytes: delete or shorten some, or let this process \
             read fewer of them"
        ))
    }

    pub(super) fn code(&self) -> Option<u16> {
        if let Self::Api { code: code @ 1.., .. } = self { Some(*code) } else { None }
    }

    pub(super) fn retry_after(&self) -> Option<Duration> {
        if let Self::Api { retry_after, .. } = self { *retry_after } else { None }
    }

    /// Converts an error of kube's client, for a resource named as by `Query::resource_name`.
    pub(super) fn of_client(error: &kube::Error, resource: &str) -> Self {
        match error {
            kube::Error::Api(status) => Self::of_status(status, resource),
            other => Self::Transport(chain(other)),
        }
    }

    fn of_status(status: &Status, resource: &str) -> Self {
        let retry_after = status.details.as_ref().map_or(0, |d| d.retry_after_seconds);
        Self::from_parts(status.code, &status.message, &status.reason, u64::from(retry_after), resource)
    }

    /// Converts an error within a watch: the JSON of a `Status`, read leniently.
    pub(super) fn of_watch(json: &str, resource: &str) -> Self {
        let status: Value = serde_json::from_str(json).unwrap_or_default();
        let code = status["code"].as_u64().unwrap_or(0);
        let retry_after = status["details"]["retryAfterSeconds"].as_u64().unwrap_or(0);
        Self::from_parts(
            u16::try_from(code).unwrap_or(0),
            &text(&status["message"]).unwrap_or_default(),
            &text(&status["reason"]).unwrap_or_default(),
            retry_after,
            resource,
        )
    }

    fn from_parts(code: u16, message: &str, kind: &str, retry_after: u64, resource: &str) -> Self {
        let message = first_line(if message.is_empty() { kind } else { message });
        let reason = match code {
            401 => format!("unauthorized: {message}"),
            403 => format!("forbidden: {message}"),
            404 => format!("not found: the API server doesn't serve {resource} ({message})"),
            410 => format!("gone: {message}"),
            429 => format!("too many requests: {message}"),
            500..=599 => format!("server error {code}: {message}"),
            0 if message.is_empty() => "refused without a reason".into(),
            0 => message,
            other => format!("refused with {other}: {message}"),
        };
        Self::Api { code, reason, retry_after: (retry_after > 0).then(|| Duration::from_secs(retry_after)) }
    }
}

/// The last request without an answer that was logged. While an API server is down, the requests for all kinds fail by the
/// same cause, and one line about it is enough.
#[derive(Debug, Default)]
pub(super) struct Unanswered(Mutex<Option<(String, Instant)>>);

/// The time for which the same cause isn't logged again.
const ONE_CAUSE: Duration = Duration::from_secs(30);

impl Unanswered {
    /// Returns false if the same cause was logged lately, of whichever kind.
    pub(super) fn is_news(&self, failure: &Failure) -> bool {
        let Failure::Transport(why) = failure else { return true };
        let (mut last, now) = (self.0.lock(), Instant::now());
        let is_known = last.as_ref().is_some_and(|(known, at)| known == why && now.duration_since(*at) < ONE_CAUSE);
        if !is_known {
            *last = Some((why.clone(), now));
        }
        !is_known
    }
}

impl From<request::Error> for Failure {
    fn from(error: request::Error) -> Self {
        Self::Garbled(chain(&error))
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Transport(chain(&error))
    }
}

/// Returns the first line: an error page of a proxy can be long.
fn first_line(message: &str) -> String {
    const LIMIT: usize = 300;
    let line = message.lines().next().unwrap_or_default().trim();
    match line.char_indices().nth(LIMIT) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

/// Joins an error and its sources, outermost first, without repetitions.
fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut shown = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(io) = error.downcast_ref::<io::Error>()
            && io.kind() == io::ErrorKind::ConnectionRefused
        {
            let said = io.to_string();
            return if said.starts_with("connection refused") { said } else { format!("connection refused: {said}") };
        }
        let message = error.to_string();
        if shown.is_empty() {
            shown = message;
        } else if !shown.contains(&message) {
            shown = format!("{shown}: {message}");
        }
        // An `io::Error` reports its inner error's source as its own, which would skip the inner error.
        let held = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = match held {
            Some(held) => Some(held),
            None => error.source(),
        };
    }
    first_line(&shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: u16, message: &str) -> kube::Error {
        kube::Error::Api(Status::failure(message, "Reason").with_code(code).boxed())
    }

    #[rstest::rstest]
    #[case(401, "Unauthorized", "unauthorized: Unauthorized")]
    #[case(403, "widgets is forbidden", "forbidden: widgets is forbidden")]
    #[case(404, "404 page not found", "not found: the API server doesn't serve widgets/v1 (404 page not found)")]
    #[case(429, "slow down", "too many requests: slow down")]
    #[case(503, "", "server error 503: Reason")]
    #[case(0, "something", "something")]
    #[case(418, "<html>\nteapot</html>", "refused with 418: <html>")]
    fn refusals_are_reported_in_words(#[case] code: u16, #[case] message: &str, #[case] expected: &str) {
        let failure = Failure::of_client(&status(code, message), "widgets/v1");
        assert_eq!(failure.to_string(), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn one_cause_is_logged_once_for_all_kinds() {
        let (unanswered, refused) = (Unanswered::default(), Failure::Transport("refused".to_owned()));
        assert!(unanswered.is_news(&refused));
        assert!(!unanswered.is_news(&refused), "of the next kind");
        tokio::time::advance(ONE_CAUSE).await;
        assert!(unanswered.is_news(&refused), "it lasts");
        assert!(unanswered.is_news(&Failure::Transport("cut".to_owned())), "another cause");
        let forbidden = Failure::of_client(&status(403, "no"), "machines");
        assert!(unanswered.is_news(&forbidden) && unanswered.is_news(&forbidden), "each kind has its own rights");
    }

    #[test]
    fn a_refused_connection_is_named_first() {
        let refused = io::Error::new(io::ErrorKind::ConnectionRefused, "tcp connect error");
        let error = kube::Error::Service(Box::new(io::Error::other(refused)));
        let failure = Failure::of_client(&error, "widgets/v1");
        assert_eq!(failure.to_string(), "connection refused: tcp connect error");
    }

    #[rstest::rstest]
    #[case::expired(r#"{"code":410,"message":"too old resource version: 1 (2)","reason":"Expired"}"#, true)]
    #[case::from_the_future(r#"{"code":504,"message":"Timeout: Too large resource version: 9, current: 2"}"#, true)]
    #[case::internal(r#"{"code":500,"message":"oops"}"#, false)]
    #[case::odd("[]", false)]
    fn a_version_the_server_does_not_have_is_gone(#[case] json: &str, #[case] gone: bool) {
        assert_eq!(Failure::of_watch(json, "widgets/v1").is_gone(), gone);
    }

    #[test]
    fn a_servers_wish_to_be_left_alone_is_read() {
        let json = r#"{"code":429,"details":{"retryAfterSeconds":7}}"#;
        let failure = Failure::of_watch(json, "widgets/v1");
        assert_eq!(failure.retry_after(), Some(Duration::from_secs(7)));
    }
}
