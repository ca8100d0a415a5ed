//! TLS of the gRPC listener: certificate, key and client authority from files that are followed when they change, and
//! the client names that may connect. A bad new file must never replace a working one, and the content of a key file
//! must never be logged or returned.

mod accept;
mod follow;
mod load;
mod metrics;
mod names;

use std::{fmt, io, path::PathBuf, sync::Arc};

use arc_swap::ArcSwap;
use jiff::Timestamp;
use parking_lot::RwLock;
use rustls::ServerConfig;
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub(super) use self::accept::{HandshakeRates, Handshakes, accept};
use self::load::Loaded;
#[cfg(test)]
pub(super) use self::{
    accept::{AUTHENTICATED_LATELY, HANDSHAKE, HANDSHAKES_AT_ONCE, OF_ONE_ADDRESS, Rate},
    names::client_of,
};
pub use self::{
    load::{CertificateFacts, Inspection, inspect},
    metrics::TlsMetrics,
    names::{AllowedName, NameError},
};

/// The files of TLS, as Secret mounts have them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TlsFiles {
    /// The server's certificate in PEM, followed by its intermediate certificates.
    pub certificate: PathBuf,
    /// Its private key in PEM.
    pub key: PathBuf,
    /// The rule for clients' certificates.
    pub clients: ClientFiles,
}

/// The clients of an authority that may connect.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct AllowedClients {
    /// The names of clients with full access; empty allows every name.
    pub names: Vec<AllowedName>,
    /// The names of clients with read-only access, whatever other names they have.
    pub read_only: Vec<AllowedName>,
}

/// The rule for clients' certificates.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ClientFiles {
    /// Any client that reaches the listener.
    Any,
    /// Clients with a certificate of an authority in these PEM files; if names are given, also with one of them.
    Authority {
        /// The files; at least one.
        files: Vec<PathBuf>,
        /// The names and keys of clients that may connect.
        allowed: AllowedClients,
    },
}

/// The TLS configuration in force, which follows its files.
#[derive(Clone)]
pub struct Certificates {
    config: Arc<ArcSwap<ServerConfig>>,
    metrics: TlsMetrics,
    standing: Arc<RwLock<TlsStanding>>,
    /// `None` if clients need no certificate.
    allowed: Option<Arc<AllowedClients>>,
}

/// The validity of the configuration in force, and the state of its files.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TlsStanding {
    /// The expiry of the server's certificate.
    pub server_until: Timestamp,
    /// The expiry of the client authority, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients_until: Option<Timestamp>,
    /// The reason why the files can't be used, while they can't.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing: Option<String>,
}

impl Certificates {
    /// Returns the state of the certificates in force.
    #[must_use]
    pub fn standing(&self) -> TlsStanding {
        self.standing.read().clone()
    }

    /// Returns the configuration for the next connection.
    fn current(&self) -> Arc<ServerConfig> {
        self.config.load_full()
    }
}

impl TlsStanding {
    fn of(loaded: &Loaded) -> Self {
        Self { server_until: loaded.server_until, clients_until: loaded.clients_until, failing: None }
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").finish_non_exhaustive()
    }
}

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
