//! The configuration in force. New connections use the newest one that could be loaded; existing ones must be left
//! alone.

use std::{fmt, sync::Arc};

use arc_swap::ArcSwap;
use jiff::Timestamp;
use parking_lot::RwLock;
use rustls::ServerConfig;

use super::{AllowedClients, TlsMetrics, load::Loaded};

/// The TLS configuration in force, which follows its files.
#[derive(Clone)]
pub struct Certificates {
    pub(super) config: Arc<ArcSwap<ServerConfig>>,
    pub(super) metrics: TlsMetrics,
    pub(super) standing: Arc<RwLock<TlsStanding>>,
    /// `None` if clients need no certificate.
    pub(super) allowed: Option<Arc<AllowedClients>>,
}

/// The validity of the configuration in force, and the state of its files.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TlsStanding {
    /// The expiry of the server's certificate.
    pub server_until: Timestamp,
    /// The expiry of the client authority, if there is one.
    pub clients_until: Option<Timestamp>,
    /// The reason why the files can't be used, while they can't.
    pub failing: Option<String>,
}

impl Certificates {
    /// Returns the state of the certificates in force.
    #[must_use]
    pub fn standing(&self) -> TlsStanding {
        self.standing.read().clone()
    }

    /// Returns the configuration for the next connection.
    pub(super) fn current(&self) -> Arc<ServerConfig> {
        self.config.load_full()
    }
}

impl TlsStanding {
    pub(super) fn of(loaded: &Loaded) -> Self {
        Self { server_until: loaded.server_until, clients_until: loaded.clients_until, failing: None }
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").finish_non_exhaustive()
    }
}
