//! Texts of failed requests, for cluster admins. kube's own text of a connection error stops at "client error
//! (Connect)"; the cause is in the error's source chain.

use std::{error::Error, fmt::Write as _};

/// The maximum number of characters of an API server's message.
const LONGEST: usize = 4096;

/// Returns the cause of a failed request in one line: an API server's message with its code and reason, or the whole
/// chain of a connection's error.
///
/// The text holds the words of the API server or the operating system, and nothing of a request's credentials.
#[must_use]
pub fn cause(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.message.is_empty() => {
            format!("the API server answered {} {}", status.code, status.reason).trim_end().to_owned()
        }
        kube::Error::Api(status) => {
            let message =
                status.message.char_indices().nth(LONGEST).map_or(&*status.message, |(end, _)| &status.message[..end]);
            let mut line = format!("{message} ({}", status.code);
            if !status.reason.is_empty() {
                // Writing to a String can't fail.
                let _ = write!(line, " {}", status.reason);
            }
            line.push(')');
            line
        }
        kube::Error::Service(inner) => chain(inner.as_ref()),
        other => chain(other),
    }
}

/// Joins an error and its sources, without those that repeat earlier text.
pub(super) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut line = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let text = source.to_string();
        if !line.ends_with(&text) {
            line.push_str(": ");
            line.push_str(&text);
        }
        next = source.source();
    }
    line
}
