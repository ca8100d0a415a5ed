//! TLS of the gRPC listener: certificate, key and client authority from files that are followed when they change, and
//! the client names that may connect. A bad new file must never replace a working one, and the content of a key file
//! must never be logged or returned.

mod accept;
mod certificates;
mod error;
mod follow;
mod inspect;
mod load;
mod metrics;
mod names;

use std::path::PathBuf;

pub(super) use self::accept::{Handshakes, accept};
#[cfg(test)]
pub(super) use self::{
    accept::{HANDSHAKE, HANDSHAKES_AT_ONCE, OF_ONE_ADDRESS},
    names::client_of,
};
pub use self::{
    certificates::{Certificates, TlsStanding},
    error::TlsError,
    inspect::{CertificateFacts, Inspection, inspect},
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
