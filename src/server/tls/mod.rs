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
pub use self::{
    certificates::{Certificates, TlsStanding},
    error::TlsError,
    inspect::{CertificateFacts, Inspection, inspect},
    metrics::TlsMetrics,
    names::{AllowedName, NameError},
};

/// The files that TLS is made of, as Secret mounts have them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TlsFiles {
    /// The server's certificate in PEM, followed by those that lead to its authority.
    pub certificate: PathBuf,
    /// Its private key in PEM.
    pub key: PathBuf,
    /// Who has to have issued clients' certificates.
    pub clients: ClientFiles,
}

/// Which clients may connect.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ClientFiles {
    /// Whoever reaches the listener.
    Any,
    /// Who shows a certificate of an authority in this PEM file; when names are given, with one of them.
    Authority {
        /// The file.
        file: PathBuf,
        /// The names that may connect; empty allows every name.
        names: Vec<AllowedName>,
    },
}
