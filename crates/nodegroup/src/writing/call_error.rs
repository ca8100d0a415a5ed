//! Failed calls, by what they leave open: whether it was done, and whether a repeat makes sense.

use std::time::Duration;

/// A failed call.
#[derive(Clone, Debug)]
pub enum CallError {
    /// 422: the object isn't as the call expected, or the server refuses what it would become.
    Rejected(String),
    /// 409: another write came between, or the object is another one by now. Nothing was done.
    Conflict(String),
    /// 429: not now. Nothing was done. The server's wish when to try again, where it had one.
    Busy(String, Option<Duration>),
    /// No answer, or one that leaves open whether it was done: a 503 may come from a load balancer that lost the
    /// API server's answer. The server's wish when to try again, where it had one.
    Unknown(String, Option<Duration>),
    /// 404 about the object itself: there is none of that name.
    Missing(String),
    /// 401: the server doesn't know who asks. Nothing was done; credentials that have changed are followed.
    Unauthorized(String),
    /// 403 for lack of a right.
    Forbidden(String),
    /// Refused for good, by a webhook or an admission policy for example.
    Refused(String),
    /// Discovery hasn't said yet how the kind is served.
    NotDiscovered,
}

impl CallError {
    /// As metric labels.
    pub const LABELS: [&str; 9] = [
        "rejected",
        "conflict",
        "busy",
        "unknown",
        "missing",
        "unauthorized",
        "forbidden",
        "refused",
        "not_discovered",
    ];

    /// As a metric label.
    #[must_use]
    pub fn label(&self) -> &'static str {
        let [rejected, conflict, busy, unknown, missing, unauthorized, forbidden, refused, not_discovered] =
            Self::LABELS;
        match self {
            Self::Rejected(_) => rejected,
            Self::Conflict(_) => conflict,
            Self::Busy(..) => busy,
            Self::Unknown(..) => unknown,
            Self::Missing(_) => missing,
            Self::Unauthorized(_) => unauthorized,
            Self::Forbidden(_) => forbidden,
            Self::Refused(_) => refused,
            Self::NotDiscovered => not_discovered,
        }
    }
}
