//! Follows the files by reading their content at intervals: this detects every kind of change, such as a swapped
//! symlink of a Secret mount, and misses none.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use jiff::Timestamp;
use parking_lot::RwLock;
use tokio::{task::spawn_blocking, time::MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::{
    Certificates, ClientFiles, TlsError, TlsFiles, TlsMetrics, TlsStanding,
    load::{self, Contents, Loaded},
};

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
