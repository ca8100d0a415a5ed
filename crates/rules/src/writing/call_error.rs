//! Failed API calls by class. A class shows if the call may have been applied, and if a retry may help.

use std::{fmt, time::Duration};

/// A failed API call.
#[derive(Clone, Debug)]
pub enum CallError {
    /// 422: the object isn't as the call expected, or validation refuses the result.
    Rejected(String),
    /// 409: another write came first, or the object was recreated. Or 410: a list has expired. Nothing was done.
    Conflict(String),
    /// 429: the server is busy. Nothing was done. Holds the pause that the server asks for, if any.
    Busy(String, Option<Duration>),
    /// No answer, or one that doesn't show if the call was applied: a 503 may come from a load balancer that lost the
    /// API server's answer. Holds the pause that the server asks for, if any.
    Unknown(String, Option<Duration>),
    /// 404 about the object itself: there is none with that name.
    Missing(String),
    /// 401: the server doesn't accept the credentials. Nothing was done; the client uses new ones as they arrive.
    Unauthorized(String),
    /// 403: a permission is missing.
    Forbidden(String),
    /// Refused for good, by an admission webhook or policy for example.
    Refused(String),
    /// Discovery hasn't found the kind's path yet, or the path that it found isn't served any more.
    NotDiscovered,
    /// Not made, since the Cluster isn't served any more.
    NotServed(String),
    /// Not made, since nobody waits for the command any more.
    Abandoned,
}

impl CallError {
    /// All classes, as metric labels.
    pub const LABELS: [&str; 11] = [
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
        "abandoned",
    ];

    /// Returns true if nothing was done, and the object isn't known to have changed: the same call may succeed later.
    #[must_use]
    pub fn is_not_now(&self) -> bool {
        matches!(self, Self::Busy(..) | Self::Unauthorized(_) | Self::NotDiscovered)
    }

    /// Returns true if the call was made.
    #[must_use]
    pub fn was_sent(&self) -> bool {
        !matches!(self, Self::NotServed(_) | Self::Abandoned | Self::NotDiscovered)
    }

    /// Returns the class as a metric label.
    #[must_use]
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
            abandoned,
        ] = Self::LABELS;
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
            Self::NotServed(_) => not_served,
            Self::Abandoned => abandoned,
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rejected(why)
            | Self::Conflict(why)
            | Self::Busy(why, _)
            | Self::Unknown(why, _)
            | Self::Missing(why)
            | Self::Unauthorized(why)
            | Self::Forbidden(why)
            | Self::Refused(why)
            | Self::NotServed(why) => f.write_str(why),
            Self::NotDiscovered => f.write_str("the API server doesn't serve this kind yet"),
            Self::Abandoned => f.write_str("nobody waits for it any more"),
        }
    }
}
