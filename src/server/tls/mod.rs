//! TLS of the gRPC listener: certificate, key and client authority from files, followed when they change, and which
//! client names may connect. A bad new file never takes a working one's place.
//!
//! This room must never log or return what a key file holds.

mod accept;
mod certificates;
mod error;
mod follow;
mod inspect;
mod load;
mod metrics;
mod names;

use std::path::PathBuf;

pub(super) use self::accept::accept;
#[cfg(test)]
pub(super) use self::names::client_of;
pub use self::{
    certificates::{Certificates, TlsStanding},
    error::TlsError,
    inspect::{CertificateFacts, Inspection, inspect},
    metrics::TlsMetrics,
    names::{AllowedName, KeyPin, KeyPinError, NameError},
};

/// The files that TLS is made of, as Secret mounts have them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TlsFiles {
    /// The server's certificate in PEM, followed by those that lead to its authority.
    pub certificate: PathBuf,
    /// Its private key in PEM.
    pub key: PathBuf,
    /// The rule for clients' certificates.
    pub clients: ClientFiles,
}

/// The clients of an authority that may connect.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct AllowedClients {
    /// The names of those that may do all; empty allows every name.
    pub names: Vec<AllowedName>,
    /// The names of those that may only read, whatever other names they have.
    pub read_only: Vec<AllowedName>,
    /// The public keys of those that may connect; empty allows every key.
    pub keys: Vec<KeyPin>,
}

/// Which clients may connect.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ClientFiles {
    /// Whoever reaches the listener.
    Any,
    /// Clients with a certificate of an authority in these PEM files; when names or keys are given, with one of each.
    Authority {
        /// The files; at least one.
        files: Vec<PathBuf>,
        /// The names and keys of those that may connect.
        allowed: AllowedClients,
    },
}
