//! Clients that follow their cluster's configuration. Kubeconfig files, the certificates they name and a Cluster's
//! Secret are read again periodically, and at once after a 401. Holders of the clients never need to replace them:
//! new requests use the newest configuration, and open watches go on. A configuration is compared by a
//! fingerprint, a hash of its content and of the files that it names, so that no secret is kept for that.

use std::{
    fs,
    hash::{BuildHasher as _, Hash, RandomState},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use http::{Request, StatusCode};
use kube::{Client, client::Body, config::Kubeconfig};
use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};
use tower::{BoxError, Service as _, ServiceExt as _, service_fn};
use tracing::{info, warn};

use super::{
    Clients, ConnectError, Pace, Place, Source, WorkloadSource,
    client::{Stack, Stacks},
    source::{Found, Loaded},
};

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

/// The access to a cluster by clients that always use its newest configuration.
#[derive(Clone)]
pub struct Access(Configuration);

#[derive(Clone)]
enum Configuration {
    /// None, or one that another task follows.
    Others(Clients),
    Own(Arc<Shared>),
}

struct Shared {
    current: ArcSwap<Stacks>,
    /// The fingerprint of the configuration that `current` was built from.
    used: Mutex<Fingerprint>,
    /// True if that has a token.
    has_token: AtomicBool,
    /// Notified when an API server answers 401.
    refused: Notify,
}

/// The configuration that is followed.
struct Following<'a> {
    source: &'a WorkloadSource,
    management: &'a Clients,
    pace: &'a Pace,
    /// Returns false while the workload cluster can't be read.
    works: &'a (dyn Fn() -> bool + Send + Sync),
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
                Ok(Found::Configuration(found)) => return (Access::new(found), connecting),
                Ok(Found::Clients(clients)) => return (Access(Configuration::Others(clients)), connecting),
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
        Self(Configuration::Own(Arc::new(Shared {
            used: Mutex::new(found.fingerprint),
            has_token: AtomicBool::new(found.has_token),
            refused: Notify::new(),
            current: ArcSwap::from_pointee(found.in_force()),
        })))
    }

    /// Returns clients. They stay valid when the configuration behind them changes.
    pub fn clients(&self) -> Clients {
        match &self.0 {
            Configuration::Others(clients) => clients.clone(),
            Configuration::Own(shared) => Clients {
                watches: following(Arc::clone(shared), |stacks| &stacks.watches),
                writes: following(Arc::clone(shared), |stacks| &stacks.writes),
            },
        }
    }

    /// Returns a client like [`Clients::watches`] alone.
    pub fn watches(&self) -> Client {
        match &self.0 {
            Configuration::Others(clients) => clients.watches.clone(),
            Configuration::Own(shared) => following(Arc::clone(shared), |stacks| &stacks.watches),
        }
    }

    /// Follows the operator's own configuration. Never returns; drop the future to stop.
    pub async fn follow(&self, source: &Source) {
        let source = WorkloadSource::Own(source.clone());
        self.follow_workload(&source, &self.clients(), &Pace::default(), || true).await;
    }

    /// Follows the workload cluster's configuration. A Secret is read each minute while `works` returns false, since it
    /// may be the reason. Never returns; drop the future to stop.
    pub async fn follow_workload(
        &self,
        source: &WorkloadSource,
        management: &Clients,
        pace: &Pace,
        works: impl Fn() -> bool + Send + Sync,
    ) {
        let following = Following { source, management, pace, works: &works };
        self.follow_with(&following, Periods::default()).await;
    }

    #[cfg(test)]
    pub(super) async fn follow_every(&self, source: &WorkloadSource, management: &Clients, periods: Periods) {
        let following = Following { source, management, pace: &Pace::default(), works: &|| true };
        self.follow_with(&following, periods).await;
    }

    async fn follow_with(&self, following: &Following<'_>, periods: Periods) {
        let Configuration::Own(shared) = &self.0 else { return std::future::pending().await };
        let mut reported = None;
        let mut looked = Instant::now();
        loop {
            // Wakes when it is due or at a 401; repeated 401s must not cause reads without a pause.
            tokio::select! {
                () = shared.due(following, periods, looked) => {}
                () = shared.refused.notified() => {}
            }
            sleep_until(looked + periods.min_interval).await;
            looked = Instant::now();
            // A fleet has a thousand of these futures: what they need rarely isn't kept in them.
            Box::pin(shared.look(following, &mut reported)).await;
        }
    }
}

impl Shared {
    /// Waits until a configuration that was read at this time has to be read again.
    async fn due(&self, following: &Following<'_>, periods: Periods, looked: Instant) {
        let Following { source, pace, works, .. } = following;
        match source {
            WorkloadSource::Management | WorkloadSource::None | WorkloadSource::Made(..) => {
                std::future::pending::<()>().await;
            }
            WorkloadSource::Own(_) => sleep_until(looked + periods.files).await,
            WorkloadSource::Secret(_) => {
                let has_token = self.has_token.load(Ordering::Relaxed);
                let due = looked + periods.secret.unwrap_or_else(|| pace.of_secret(has_token));
                loop {
                    sleep_until(due.min(Instant::now() + pace.often())).await;
                    if Instant::now() >= due || !works() {
                        return;
                    }
                }
            }
        }
    }

    async fn look(&self, following: &Following<'_>, reported: &mut Option<String>) {
        let source = following.source;
        let found = match source.load(following.management).await {
            Ok(Found::Configuration(found)) => found,
            Ok(Found::Clients(_)) => return,
            // The configuration in force is kept. Each distinct error is logged once.
            Err(error) => {
                let why = error.to_string();
                if reported.as_ref() != Some(&why) {
                    warn!(%source, "the configuration can't be read anew, the one in force stays: {why}");
                    *reported = Some(why);
                }
                return;
            }
        };
        *reported = None;
        let mut used = self.used.lock();
        if *used == found.fingerprint {
            return;
        }
        *used = found.fingerprint;
        drop(used);
        self.has_token.store(found.has_token, Ordering::Relaxed);
        self.current.store(Arc::new(found.in_force()));
        info!(%source, "the configuration has changed and is in force for new requests");
    }
}

/// Builds a client that sends each request by the configuration in force at that time.
fn following(shared: Arc<Shared>, pick: fn(&Stacks) -> &Stack) -> Client {
    let namespace = shared.current.load().namespace.clone();
    let service = service_fn(move |request: Request<Body>| {
        let shared = Arc::clone(&shared);
        async move {
            let mut stack = pick(&shared.current.load()).clone();
            let answer = stack.ready().await?.call(request).await?;
            if answer.status() == StatusCode::UNAUTHORIZED {
                shared.refused.notify_one();
            }
            Ok::<_, BoxError>(answer)
        }
    });
    Client::new(service, namespace)
}

/// The hash of a configuration; equal for equal configurations within this process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Fingerprint(u64);

impl Fingerprint {
    pub(super) fn of(configuration: &impl Hash) -> Self {
        static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        Self(KEY.hash_one(configuration))
    }

    /// Returns that of a kubeconfig with the certificates and keys it names. Token files are left out, since kube reads
    /// them for each request.
    pub(super) fn of_kubeconfig(kubeconfig: &Kubeconfig) -> Self {
        let clusters = kubeconfig.clusters.iter().filter_map(|named| named.cluster.as_ref());
        let users = kubeconfig.auth_infos.iter().filter_map(|named| named.auth_info.as_ref());
        let paths = clusters
            .filter_map(|cluster| cluster.certificate_authority.as_deref())
            .chain(users.flat_map(|user| [user.client_certificate.as_deref(), user.client_key.as_deref()]).flatten())
            .filter(|path| !path.is_empty());
        let files: Vec<_> = paths.map(|path| fs::read(path).ok()).collect();
        // Anything read from YAML can be written as JSON.
        Self::of(&(serde_json::to_vec(kubeconfig).unwrap_or_default(), files))
    }
}
