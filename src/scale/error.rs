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
    /// This program lacks the right.
    #[error("{0}")]
    PermissionDenied(String),
    /// The API server didn't do it, or didn't say whether it did; a repeat may succeed.
    #[error("{0}")]
    Unavailable(String),
}

impl ScaleError {
    /// The class, as a metric label.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::InvalidArgument(_) => "invalid_argument",
            Self::NotFound(_) => "not_found",
            Self::FailedPrecondition(_) => "failed_precondition",
            Self::Aborted(_) => "aborted",
            Self::PermissionDenied(_) => "permission_denied",
            Self::Unavailable(_) => "unavailable",
        }
    }
}
