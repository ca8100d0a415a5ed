//! Why a command was refused or failed, in classes that tell whether a repeat makes sense.

use thiserror::Error;

/// Why a command was refused or failed; each text names the group, the rule and the remedy.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum ScaleError {
    /// The request itself is wrong; a repeat is refused again.
    #[error("{0}")]
    InvalidArgument(String),
    /// There is no such group or Node.
    #[error("{0}")]
    NotFound(String),
    /// The group's state or bounds forbid it now.
    #[error("{0}")]
    FailedPrecondition(String),
    /// It gave way to something else and changed nothing; a repeat may succeed.
    #[error("{0}")]
    Aborted(String),
    /// It would be done, and this server may not write.
    #[error("{0}")]
    ReadOnly(String),
    /// This program lacks the right.
    #[error("{0}")]
    PermissionDenied(String),
    /// The API server didn't do it, or didn't say whether it did; a repeat may succeed.
    #[error("{0}")]
    Unavailable(String),
}

impl ScaleError {
    /// All classes, as metric labels.
    pub(super) const CODES: [&str; 7] = [
        "invalid_argument",
        "not_found",
        "failed_precondition",
        "aborted",
        "read_only",
        "permission_denied",
        "unavailable",
    ];

    /// The class, as a metric label.
    #[must_use]
    pub fn code(&self) -> &'static str {
        let [invalid_argument, not_found, failed_precondition, aborted, read_only, permission_denied, unavailable] =
            Self::CODES;
        match self {
            Self::InvalidArgument(_) => invalid_argument,
            Self::NotFound(_) => not_found,
            Self::FailedPrecondition(_) => failed_precondition,
            Self::Aborted(_) => aborted,
            Self::ReadOnly(_) => read_only,
            Self::PermissionDenied(_) => permission_denied,
            Self::Unavailable(_) => unavailable,
        }
    }
}

impl ScaleError {
    /// The answer to a deletion whose write of the log had no answer: it isn't refused for good then, since it goes on if the
    /// write was done, or arrives yet.
    pub(super) fn unless_logged(self) -> Self {
        Self::Unavailable(format!(
            "{self}; it isn't known whether the deletion was logged, since its write had no answer: if it was, it goes on; \
             try again"
        ))
    }

    /// The answer to a smaller target size of which a part was done: it isn't refused for good then.
    pub(super) fn unless_lowered(self) -> Self {
        match self {
            Self::Unavailable(_) => self,
            refusal => Self::Unavailable(format!(
                "{refusal}; the size was lowered for the others of what was asked: read it before asking again"
            )),
        }
    }

    /// The answer to a request of which a part failed and the rest goes on: nothing was refused for good, nor left unchanged.
    pub(super) fn of_part(self) -> Self {
        match self {
            Self::InvalidArgument(text)
            | Self::NotFound(text)
            | Self::FailedPrecondition(text)
            | Self::Aborted(text)
            | Self::PermissionDenied(text) => {
                Self::Unavailable(format!("{text}; other Machines that were named with it go"))
            }
            error @ (Self::ReadOnly(_) | Self::Unavailable(_)) => error,
        }
    }

    /// The gRPC code that it is answered with, by its name in the protocol.
    #[must_use]
    pub fn grpc_code(&self) -> &'static str {
        match self {
            Self::InvalidArgument(_) => "INVALID_ARGUMENT",
            Self::NotFound(_) => "NOT_FOUND",
            Self::FailedPrecondition(_) | Self::ReadOnly(_) => "FAILED_PRECONDITION",
            Self::Aborted(_) => "ABORTED",
            Self::PermissionDenied(_) => "PERMISSION_DENIED",
            Self::Unavailable(_) => "UNAVAILABLE",
        }
    }
}
