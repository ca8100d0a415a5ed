//! Why a command was refused or failed, in classes that tell whether a repeat makes sense.

use thiserror::Error;

use super::{Command, api::CallError};
use crate::nodegroup::SizeError;

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
    /// The answer to a deletion whose write of the log may have had no answer: it isn't refused for good then, since it goes on
    /// if the write was done, or arrives yet.
    pub(super) fn unless_logged(self, maybe_logged: bool) -> Self {
        if !maybe_logged {
            return self;
        }
        Self::Unavailable(format!(
            "{self}; it isn't known whether the deletion was logged, since its write had no answer: if it was, it goes on; \
             try again"
        ))
    }

    /// The answer to a smaller target size of which a part was done: it isn't refused for good then.
    pub(super) fn unless_lowered(self, has_lowered: bool) -> Self {
        match self {
            Self::Unavailable(_) => self,
            refusal if has_lowered => Self::Unavailable(format!(
                "{refusal}; the size was lowered for the others of what was asked: read it before asking again"
            )),
            refusal => refusal,
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

impl Command {
    pub(super) fn abandoned(&self) -> ScaleError {
        ScaleError::Aborted(format!(
            "{}: the caller's deadline passed before anything was written; nothing was changed",
            self.id
        ))
    }

    /// A rule's refusal as an error of this command.
    pub(super) fn refused(&self, error: &SizeError) -> ScaleError {
        let message = format!("{}: {error}", self.id);
        match error {
            SizeError::Delta { .. } => ScaleError::InvalidArgument(message),
            SizeError::AboveMax { .. } | SizeError::BelowMin { .. } => ScaleError::FailedPrecondition(message),
        }
    }

    /// The API server goes on rejecting a size, though the group is as it was seen.
    pub(super) fn refuses(&self, size: i32, message: &str) -> ScaleError {
        ScaleError::FailedPrecondition(format!("{}: the API server refuses the size {size}: {message}", self.id))
    }

    /// A failed call as an error of this command.
    pub(super) fn failed(&self, error: &CallError) -> ScaleError {
        let id = &self.id;
        match error {
            CallError::Rejected(message) | CallError::Conflict(message) => {
                ScaleError::Aborted(format!("{id}: the object changed meanwhile: {message}; try again"))
            }
            CallError::Busy(message, _) => {
                ScaleError::Unavailable(format!("{id}: the API server is busy: {message}; try again"))
            }
            CallError::Unknown(message, _) => ScaleError::Unavailable(format!(
                "{id}: the API server gave no usable answer: {message}; read the size before asking again"
            )),
            CallError::Unauthorized(message) => ScaleError::Unavailable(format!(
                "{id}: the API server doesn't accept this program's credentials (401): {message}; nothing was changed. \
                 Renew them where this program reads them, and try again"
            )),
            CallError::Missing(message) => ScaleError::NotFound(format!("{id}: the object is gone: {message}")),
            CallError::Forbidden(message) => ScaleError::PermissionDenied(format!(
                "{id}: {message}; grant this program's user get, list, patch and delete on Machines, get and patch on the \
                 group's kind, and patch on its /scale"
            )),
            CallError::Refused(message) => {
                ScaleError::FailedPrecondition(format!("{id}: the API server refuses it: {message}"))
            }
            CallError::NotDiscovered => ScaleError::Unavailable(format!(
                "{id}: discovery hasn't found yet how the API server serves this kind; try again"
            )),
        }
    }
}
