//! TLS of the gRPC listener: certificate, key and client authority from files that are followed when they change, and
//! the client names that may connect. A bad new file must never replace a working one, and the content of a key file
//! must never be logged or returned.

mod accept;
mod load;
mod names;

use std::{fmt, io, path::PathBuf, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use jiff::Timestamp;
use parking_lot::RwLock;
use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::{Registry, Unit},
};
use rustls::ServerConfig;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::{task::spawn_blocking, time::MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

pub(super) use self::accept::{HandshakeRates, Handshakes, accept};
use self::{
    accept::Refused,
    load::{Contents, Loaded},
};
#[cfg(test)]
pub(super) use self::{
    accept::{AUTHENTICATED_LATELY, HANDSHAKE, HANDSHAKES_AT_ONCE, OF_ONE_ADDRESS, Rate},
    names::client_of,
};
pub use self::{
    load::{CertificateFacts, Inspection, inspect},
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

// Follows the files by reading their content at intervals: this detects every kind of change, such as a swapped symlink of a
// Secret mount, and misses none.

/// The interval at which the files are read. Kubernetes takes up to a minute to update a changed Secret in its mounts.
const PERIOD: Duration = Duration::from_secs(10);

impl Certificates {
    /// Loads the files, and follows them in a task on the current Tokio runtime until `ended` is cancelled.
    ///
    /// # Errors
    /// If a file can't be read or used now. Later a bad file leaves the configuration in force, which is logged and
    /// shown by a metric.
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
        let follower = Follower::new(files, contents, certificates.clone());
        tokio::spawn(async move {
            ended.run_until_cancelled(follower.run(period)).await;
        });
        Ok(certificates)
    }
}

struct Follower {
    files: Arc<TlsFiles>,
    /// The contents of the files from which the configuration in force was built.
    used: Contents,
    /// The expiry of the certificate in force; `None` once the expiry was logged.
    until: Option<Timestamp>,
    /// The problem found when the files were last read, which is logged once.
    reported: Option<String>,
    certificates: Certificates,
}

impl Follower {
    fn new(files: TlsFiles, used: Contents, certificates: Certificates) -> Self {
        let until = Some(certificates.standing().server_until);
        Self { files: Arc::new(files), used, until, reported: None, certificates }
    }

    async fn run(mut self, period: Duration) {
        let mut ticks = tokio::time::interval(period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first tick is immediate, and the files have just been read.
        ticks.tick().await;
        loop {
            ticks.tick().await;
            self.reload().await;
            self.log_expiry(Timestamp::now());
        }
    }

    async fn reload(&mut self) {
        let files = Arc::clone(&self.files);
        // A volume may hang, and must not block the runtime.
        let Ok(read) = spawn_blocking(move || load::read_unmixed(&files)).await else { return };
        match read {
            // The files are just being changed: the next read finds them complete.
            Ok(None) => return,
            Ok(Some(contents)) if contents == self.used => self.reported = None,
            Ok(Some(contents)) => match load::load(&self.files, &contents, Timestamp::now()) {
                Ok(loaded) => self.replace(contents, loaded),
                Err(error) => self.report_failure(&error),
            },
            Err(error) => self.report_failure(&error),
        }
        self.certificates.metrics.set_failing(self.reported.is_some());
        self.certificates.standing.write().failing.clone_from(&self.reported);
    }

    fn replace(&mut self, contents: Contents, loaded: Loaded) {
        self.used = contents;
        self.until = Some(loaded.server_until);
        self.reported = None;
        self.certificates.metrics.loaded(&loaded);
        *self.certificates.standing.write() = TlsStanding::of(&loaded);
        self.certificates.metrics.count_reload(true);
        info!(valid_until = %loaded.server_until, "TLS files have changed and are in force for new connections");
        self.certificates.config.store(loaded.config);
    }

    /// Logs the expiry of the certificate in force, which no change of the files reveals.
    fn log_expiry(&mut self, now: Timestamp) {
        if let Some(until) = self.until.filter(|until| *until < now) {
            self.until = None;
            let certificate = self.files.certificate.display();
            error!(
                valid_until = %until,
                "the certificate in force has expired, and clients refuse it: put a new one into {certificate}"
            );
        }
    }

    /// Keeps the configuration in force, and logs the problem once. A half-written file is logged as well; a later read
    /// finds it complete.
    fn report_failure(&mut self, error: &TlsError) {
        let text = error.to_string();
        if self.reported.as_ref() != Some(&text) {
            self.certificates.metrics.count_reload(false);
            warn!("TLS files can't be used, what was in force stays so: {text}");
            self.reported = Some(text);
        }
    }
}

// Metrics: the expiry of certificates, the result of reloads, and the reasons for refused clients. All labels are closed
// sets.

/// One label, as its name and value.
type Label = [(&'static str, &'static str); 1];

/// Metrics of TLS.
#[derive(Clone, Debug, Default)]
pub struct TlsMetrics {
    expiry: Family<Label, Gauge>,
    reloads: Family<Label, Counter>,
    failing: Gauge,
    refused: Family<Label, Counter>,
}

impl TlsMetrics {
    /// Registers the metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register_with_unit(
            "tls_certificate_expiry_timestamp",
            "Last moment of the certificate in force, and of the client authority that lasts longest, in Unix time",
            Unit::Seconds,
            metrics.expiry.clone(),
        );
        registry.register("tls_reloads", "Changed TLS files, by whether they could be used", metrics.reloads.clone());
        registry.register(
            "tls_reload_failing",
            "1 while the TLS files can't be used and older ones are in force",
            metrics.failing.clone(),
        );
        registry.register(
            "tls_refused_connections",
            "Connections that ended before their TLS handshake did, by reason",
            metrics.refused.clone(),
        );
        for result in ["ok", "error"] {
            let _ = metrics.reloads.get_or_create(&[("result", result)]);
        }
        for refused in Refused::ALL {
            let _ = metrics.refused.get_or_create(&[("reason", refused.as_str())]);
        }
        metrics
    }

    fn loaded(&self, loaded: &Loaded) {
        let set = |certificate, until: Option<Timestamp>| {
            if let Some(until) = until {
                self.expiry.get_or_create(&[("certificate", certificate)]).set(until.as_second());
            }
        };
        set("server", Some(loaded.server_until));
        set("client_authority", loaded.clients_until);
    }

    fn count_reload(&self, ok: bool) {
        self.reloads.get_or_create(&[("result", if ok { "ok" } else { "error" })]).inc();
    }

    fn set_failing(&self, failing: bool) {
        self.failing.set(i64::from(failing));
    }

    fn count_refused(&self, refused: Refused) {
        self.refused.get_or_create(&[("reason", refused.as_str())]).inc();
    }
}
