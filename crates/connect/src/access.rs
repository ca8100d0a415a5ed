//! Clients that follow their cluster's configuration. Kubeconfig files, the certificates they name and a Cluster's
//! Secret are read again periodically, and at once after a 401. Holders of the clients never need to replace them:
//! new requests use the newest configuration, and open watches go on.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use http::{Request, StatusCode};
use kube::{Client, client::Body};
use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until, timeout_at},
};
use tower::service_fn;
use tracing::{info, warn};

use super::{Clients, ConnectError, Pace, Place, Source, WorkloadSource, fingerprint::Fingerprint, source::Loaded};

/// The intervals at which a configuration is read again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Periods {
    /// Files.
    pub(super) files: Duration,
    /// A Secret, with one request each time; `None` for that of its pace.
    pub(super) secret: Option<Duration>,
    /// The minimum time between two reads, however often requests are refused.
    pub(super) min_interval: Duration,
}

impl Default for Periods {
    fn default() -> Self {
        Self { files: Duration::from_secs(10), secret: None, min_interval: Duration::from_secs(2) }
    }
}

/// Clients of a cluster that always use its newest configuration.
#[derive(Clone)]
pub struct Access {
    shared: Arc<Shared>,
    clients: Clients,
}

struct Shared {
    current: ArcSwap<Clients>,
    /// The fingerprint of the configuration that `current` was built from.
    used: Mutex<Fingerprint>,
    /// True if that has a token.
    has_token: AtomicBool,
    /// Notified when an API server answers 401.
    refused: Notify,
}

/// The source that a configuration is read from again.
enum Origin<'a> {
    Own(&'a Source),
    Workload(&'a WorkloadSource, &'a Clients, &'a Pace),
}

const FIRST_PAUSE: Duration = Duration::from_secs(1);

impl Source {
    /// Like [`Source::connect`], with clients that [`Access::follow`] keeps up to date.
    ///
    /// # Errors
    /// As [`Source::connect`].
    pub async fn access(&self) -> Result<Access, ConnectError> {
        Ok(Access::new(self.load().await?))
    }
}

impl WorkloadSource {
    /// Connects, with retries until it works: after 1 second, then after twice as long each time, up to a limit of the
    /// pace. `failed` is called with each error, for readiness to report it. Drop the future to stop.
    /// [`Access::follow_workload`] keeps the returned clients up to date. The returned place is to be kept while the
    /// clients begin to work.
    pub async fn access_in_time(
        &self,
        management: &Clients,
        pace: &Pace,
        mut failed: impl FnMut(&ConnectError),
    ) -> (Access, Place) {
        let mut pause = FIRST_PAUSE;
        loop {
            let connecting = pace.place().await;
            match self.load(management).await {
                Ok(found) => return (Access::new(found), connecting),
                Err(error) => failed(&error),
            }
            drop(connecting);
            tokio::time::sleep(pace.spread(pause)).await;
            pause = (pause * 2).min(pace.longest_pause());
        }
    }
}

impl Access {
    pub(super) fn new(found: Loaded) -> Self {
        let namespace = found.clients.writes.default_namespace().to_owned();
        let shared = Arc::new(Shared {
            current: ArcSwap::from_pointee(found.clients),
            used: Mutex::new(found.fingerprint),
            has_token: AtomicBool::new(found.has_token),
            refused: Notify::new(),
        });
        let client = |pick: fn(&Clients) -> &Client| following(Arc::clone(&shared), pick, &namespace);
        let clients =
            Clients { watches: client(|clients| &clients.watches), writes: client(|clients| &clients.writes) };
        Self { shared, clients }
    }

    /// Returns the clients. They stay valid when the configuration behind them changes.
    #[must_use]
    pub fn clients(&self) -> &Clients {
        &self.clients
    }

    /// Follows the operator's own configuration. Never returns; drop the future to stop.
    pub async fn follow(&self, source: &Source) {
        self.follow_origin(&Origin::Own(source), Periods::default()).await;
    }

    /// Follows the workload cluster's configuration. Never returns; drop the future to stop.
    pub async fn follow_workload(&self, source: &WorkloadSource, management: &Clients, pace: &Pace) {
        self.follow_origin(&Origin::Workload(source, management, pace), Periods::default()).await;
    }

    #[cfg(test)]
    pub(super) async fn follow_every(&self, source: &WorkloadSource, management: &Clients, periods: Periods) {
        self.follow_origin(&Origin::Workload(source, management, &Pace::default()), periods).await;
    }

    async fn follow_origin(&self, origin: &Origin<'_>, periods: Periods) {
        let mut reported = None;
        let mut looked = Instant::now();
        loop {
            let period = match origin {
                // There is none, or the task that follows the management cluster covers it too.
                Origin::Workload(WorkloadSource::Management | WorkloadSource::None | WorkloadSource::Made(..), ..) => {
                    return std::future::pending().await;
                }
                Origin::Workload(WorkloadSource::Secret(_), _, pace) => {
                    let has_token = self.shared.has_token.load(Ordering::Relaxed);
                    periods.secret.unwrap_or_else(|| pace.of_secret(has_token))
                }
                Origin::Own(_) | Origin::Workload(WorkloadSource::Own(_), ..) => periods.files,
            };
            // Wakes after the period or at a 401; repeated 401s must not cause reads without a pause.
            let _ = timeout_at(looked + period, self.shared.refused.notified()).await;
            sleep_until(looked + periods.min_interval).await;
            looked = Instant::now();
            self.look(origin, &mut reported).await;
        }
    }

    async fn look(&self, origin: &Origin<'_>, reported: &mut Option<String>) {
        let found = match origin {
            Origin::Own(source) => source.load().await,
            Origin::Workload(source, management, _) => source.load(management).await,
        };
        let found = match found {
            Ok(found) => found,
            Err(error) => return Self::keep(origin, &error, reported),
        };
        *reported = None;
        let mut used = self.shared.used.lock();
        if *used == found.fingerprint {
            return;
        }
        *used = found.fingerprint;
        drop(used);
        self.shared.has_token.store(found.has_token, Ordering::Relaxed);
        self.shared.current.store(Arc::new(found.clients));
        info!(source = %origin, "the configuration has changed and is in force for new requests");
    }

    /// Keeps the configuration in force, since the new one can't be read or used. Each distinct error is logged once.
    fn keep(origin: &Origin<'_>, error: &ConnectError, reported: &mut Option<String>) {
        let why = error.to_string();
        if reported.as_ref() != Some(&why) {
            warn!(source = %origin, "the configuration can't be read anew, the one in force stays: {why}");
            *reported = Some(why);
        }
    }
}

impl std::fmt::Display for Origin<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Own(source) => source.fmt(f),
            Self::Workload(source, ..) => source.fmt(f),
        }
    }
}

/// Builds a client that sends each request by the clients in force at that time.
fn following(shared: Arc<Shared>, pick: fn(&Clients) -> &Client, namespace: &str) -> Client {
    let service = service_fn(move |request: Request<Body>| {
        let shared = Arc::clone(&shared);
        async move {
            let client = pick(&shared.current.load()).clone();
            let answer = client.send(request).await?;
            if answer.status() == StatusCode::UNAUTHORIZED {
                shared.refused.notify_one();
            }
            Ok::<_, kube::Error>(answer)
        }
    });
    Client::new(service, namespace)
}
