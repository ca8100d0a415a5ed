//! The configuration in force. New connections use the newest one that could be loaded; existing ones must be left alone.

use std::{fmt, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use jiff::Timestamp;
use parking_lot::RwLock;
use rustls::ServerConfig;
use tokio_util::sync::CancellationToken;

use super::{
    AllowedClients, ClientFiles, TlsError, TlsFiles, TlsMetrics, follow,
    load::{self, Loaded},
};

/// The interval at which the files are read. Kubernetes takes up to a minute to update a changed Secret in its mounts.
const PERIOD: Duration = Duration::from_secs(10);

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
    /// Loads the files, and follows them in a task on the current Tokio runtime until `ended` is cancelled.
    ///
    /// # Errors
    /// If a file can't be read or used now. Later a bad file leaves the configuration in force, which is logged and shown
    /// by a metric.
    pub fn follow(files: TlsFiles, metrics: TlsMetrics, ended: CancellationToken) -> Result<Self, TlsError> {
        Self::follow_every(PERIOD, files, metrics, ended)
    }

    pub(crate) fn follow_every(
        period: Duration,
        files: TlsFiles,
        metrics: TlsMetrics,
        ended: CancellationToken,
    ) -> Result<Self, TlsError> {
        let contents = load::read(&files)?;
        let loaded = load::load(&files, &contents, Timestamp::now())?;
        metrics.loaded(&loaded);
        let standing = Arc::new(RwLock::new(TlsStanding::of(&loaded)));
        let config = Arc::new(ArcSwap::new(loaded.config));
        let allowed = match &files.clients {
            ClientFiles::Authority { allowed, .. } => Some(Arc::new(allowed.clone())),
            ClientFiles::Any => None,
        };
        let certificates = Self { config, metrics, standing, allowed };
        let follower = follow::Follower::new(files, contents, certificates.clone());
        tokio::spawn(async move {
            ended.run_until_cancelled(follower.run(period)).await;
        });
        Ok(certificates)
    }

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
