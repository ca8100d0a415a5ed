//! The errors of refused and failed commands, in classes that say whether a retry makes sense.

use thiserror::Error;
use tonic::Code;

/// The reason why a command was refused or failed; each text names the group, the rule and the remedy.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum ScaleError {
    /// The request itself is wrong; a retry is refused again.
    #[error("{0}")]
    InvalidArgument(String),
    /// There is no such group or Node.
    #[error("{0}")]
    NotFound(String),
    /// The group's state or bounds forbid it now.
    #[error("{0}")]
    FailedPrecondition(String),
    /// The command gave way to another write and changed nothing; a retry may succeed.
    #[error("{0}")]
    Aborted(String),
    /// The command would be carried out, but this server may not write.
    #[error("{0}")]
    ReadOnly(String),
    /// This program lacks a permission.
    #[error("{0}")]
    PermissionDenied(String),
    /// The API server didn't do it, or didn't report whether it did; a retry may succeed.
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

    /// Returns the class as a metric label.
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
    /// Returns the answer to a request that failed in part while the rest goes on. It must neither be a final refusal
    /// nor claim that nothing was changed.
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

    /// Returns the gRPC code of the answer. No other mapping may exist.
    pub fn grpc_code(&self) -> Code {
        match self {
            Self::InvalidArgument(_) => Code::InvalidArgument,
            Self::NotFound(_) => Code::NotFound,
            Self::FailedPrecondition(_) | Self::ReadOnly(_) => Code::FailedPrecondition,
            Self::Aborted(_) => Code::Aborted,
            Self::PermissionDenied(_) => Code::PermissionDenied,
            Self::Unavailable(_) => Code::Unavailable,
        }
    }
}

/// Returns the name of a gRPC code in the protocol.
pub fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}
