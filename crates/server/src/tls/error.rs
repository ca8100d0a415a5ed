//! The reasons why TLS can't be served from files. Each message names the file, the defect and the remedy, and must
//! never show the content of a key file.

use std::{io, path::PathBuf};

use jiff::Timestamp;
use thiserror::Error;

/// The reason why the files can't be used.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file that can't be read.
    #[error("{}: can't read it: {error}: give the path of a file that this program may read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        error: io::Error,
    },
    /// A file with the wrong content.
    #[error("{}: {reason}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The defect, with the remedy.
        reason: &'static str,
    },
    /// A certificate that doesn't parse.
    #[error("{}: its certificate can't be used: {reason}: make it anew", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// Its defect.
        reason: String,
    },
    /// A certificate that has expired, or isn't valid yet.
    #[error("{}: its certificate is valid from {from} to {until} only: renew it, or set the clock", path.display())]
    Dates {
        /// The file.
        path: PathBuf,
        /// The start of its validity.
        from: Timestamp,
        /// The end of its validity.
        until: Timestamp,
    },
    /// A key that doesn't match the certificate, or is of an unsupported kind.
    #[error(
        "{} and {}: they can't be used together: {reason}: give the certificate and the key that belong to each other",
        certificate.display(), key.display()
    )]
    Pair {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// The defect.
        reason: String,
    },
}
