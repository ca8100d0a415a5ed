//! Why TLS can't be served from files. Each message names the file, what is wrong and the remedy, and nothing that a
//! key file holds.

use std::{io, path::PathBuf};

use jiff::Timestamp;
use thiserror::Error;

/// Why the files can't be used.
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
    /// A file that isn't what it should be.
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
    /// A certificate that isn't valid any more, or not yet.
    #[error("{}: its certificate is valid from {from} to {until} only: renew it, or set the clock", path.display())]
    Dates {
        /// The file.
        path: PathBuf,
        /// Its first moment.
        from: Timestamp,
        /// Its last moment.
        until: Timestamp,
    },
    /// A key that isn't the certificate's, or a kind that isn't supported.
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
