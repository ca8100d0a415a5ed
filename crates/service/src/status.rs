//! The errors of calls.

use tonic::{Code, Status};

use super::call_log::LONGEST_ID;
use crate::listen::Client;
use scale::ScaleError;

/// The maximum length of an error's message in bytes: clients accept at least 16 KiB of headers.
const LONGEST_MESSAGE: usize = 4096;

pub(super) fn may_only_read(client: &Client) -> Status {
    let name = &client.name;
    Status::permission_denied(format!("client {name} may only read: it is among --tls-read-only-client-names"))
}

pub(super) fn code_of<T>(result: &Result<T, Status>) -> Code {
    result.as_ref().err().map_or(Code::Ok, Status::code)
}

pub(super) fn unknown(id: &str) -> Status {
    let id: String = id.chars().take(LONGEST_ID).collect();
    Status::not_found(format!("node group {id} is not known: ids have the form <Kind>/<namespace>/<name>"))
}

/// Cuts the message of an error, which is sent in a header, encoded to up to three times its length. A header beyond
/// the caller's limit would fail the call without the code that the caller relies on. Ids in requests and messages of
/// API servers may be that long.
pub(super) fn cut(status: Status) -> Status {
    let message = status.message();
    if message.len() <= LONGEST_MESSAGE {
        return status;
    }
    let end = (0..=LONGEST_MESSAGE).rev().find(|end| message.is_char_boundary(*end)).unwrap_or_default();
    Status::new(status.code(), format!("{} (cut)", &message[..end]))
}

/// Maps the error of a command to its code. No other mapping may exist.
pub(super) fn status_of(error: &ScaleError) -> Status {
    let message = error.to_string();
    match error {
        ScaleError::InvalidArgument(_) => Status::invalid_argument(message),
        ScaleError::NotFound(_) => Status::not_found(message),
        ScaleError::FailedPrecondition(_) | ScaleError::ReadOnly(_) => Status::failed_precondition(message),
        ScaleError::Aborted(_) => Status::aborted(message),
        ScaleError::PermissionDenied(_) => Status::permission_denied(message),
        ScaleError::Unavailable(_) => Status::unavailable(message),
    }
}
