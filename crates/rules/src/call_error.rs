//! Failed API calls by class. A class shows if the call may have been applied, and if a retry may help.

use std::time::Duration;

use thiserror::Error;

/// A failed API call.
#[derive(Clone, Debug, Error)]
pub enum CallError {
    /// 422: the object isn't as the call expected, or validation refuses the result.
    #[error("{0}")]
    Rejected(String),
    /// 409: another write came first, or the object was recreated. Or 410: a list has expired. Nothing was done.
    #[error("{0}")]
    Conflict(String),
    /// 429: the server is busy. Nothing was done. Holds the pause that the server asks for, if any.
    #[error("{0}")]
    Busy(String, Option<Duration>),
    /// No answer, or one that doesn't show if the call was applied: a 503 may come from a load balancer that lost the
    /// API server's answer. Holds the pause that the server asks for, if any.
    #[error("{0}")]
    OutcomeUnknown(String, Option<Duration>),
    /// 404 about the object itself: there is none with that name.
    #[error("{0}")]
    Missing(String),
    /// 401: the server doesn't accept the credentials. Nothing was done; the client uses new ones as they arrive.
    #[error("{0}")]
    Unauthorized(String),
    /// 403: a permission is missing.
    #[error("{0}")]
    Forbidden(String),
    /// Refused for good, by an admission webhook or policy for example.
    #[error("{0}")]
    Refused(String),
    /// Discovery hasn't found the kind's path yet, or the path that it found isn't served any more.
    #[error("the API server doesn't serve this kind yet")]
    NotDiscovered,
    /// Not made, since the Cluster isn't served any more.
    #[error("{0}")]
    NotServed(String),
    /// Given up by this program: it can't make the call, or its answers have no end.
    #[error("{0}")]
    GivenUp(String),
    /// Not made, since nobody waits for the command any more.
    #[error("nobody waits for it any more")]
    Abandoned,
}

impl CallError {
    /// All classes, as metric labels.
    pub const LABELS: [&str; 12] = [
        "rejected",
        "conflict",
        "busy",
        "unknown",
        "missing",
        "unauthorized",
        "forbidden",
        "refused",
        "not_discovered",
        "not_served",
        "given_up",
        "abandoned",
    ];

    /// Returns true if nothing was done, and the object isn't known to have changed: the same call may succeed later.
    pub fn is_not_now(&self) -> bool {
        matches!(self, Self::Busy(..) | Self::Unauthorized(_) | Self::NotDiscovered)
    }

    /// Returns true if the call was made.
    pub fn was_sent(&self) -> bool {
        !matches!(self, Self::NotServed(_) | Self::GivenUp(_) | Self::Abandoned | Self::NotDiscovered)
    }

    /// Returns the class as a metric label.
    pub fn label(&self) -> &'static str {
        let [
            rejected,
            conflict,
            busy,
            unknown,
            missing,
            unauthorized,
            forbidden,
            refused,
            not_discovered,
            not_served,
            given_up,
            abandoned,
        ] = Self::LABELS;
        match self {
            Self::Rejected(_) => rejected,
            Self::Conflict(_) => conflict,
            Self::Busy(..) => busy,
            Self::OutcomeUnknown(..) => unknown,
            Self::Missing(_) => missing,
            Self::Unauthorized(_) => unauthorized,
            Self::Forbidden(_) => forbidden,
            Self::Refused(_) => refused,
            Self::NotDiscovered => not_discovered,
            Self::NotServed(_) => not_served,
            Self::GivenUp(_) => given_up,
            Self::Abandoned => abandoned,
        }
    }
}
