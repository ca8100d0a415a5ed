//! Informers: list and watch over a kube client, stores, handlers. This module needs tokio and kube, and exists only
//! with the feature `client`. The files beside it decode objects, and must never need either.
//!
//! The factory is here, which shares one informer per query. It must never keep an unused informer alive, nor leave a
//! task behind.

mod backoff;
mod decode;
mod event;
mod failure;
mod handle;
mod limit;
mod progress;
mod query;
mod queue;
mod reflector;
mod status;
mod store;
mod stored;
mod tombstones;

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    fmt,
    pin::Pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::future::join_all;
use kube::Client;
use parking_lot::{Mutex, RwLock};
use tokio::{runtime::Handle, task::JoinHandle};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{
    backoff::Backoff,
    decode::Decoder,
    failure::Unanswered,
    handle::Shared,
    progress::Progress,
    reflector::{MakeClient, Reflector},
};
pub use self::{
    event::{ErrorHook, Event, Handler, Phase, WatchError},
    handle::{Informer, Registration},
    limit::SharedLimit,
    query::{Namespaces, Query},
    status::{BrokenScope, EventCounts, HandlerStatus, ListCounts, NotSynced, ScopeStatus, Status, Unsynced},
    store::{Store, UnknownIndex},
};
use crate::{intern::Interner, projection::Projection};

#[cfg(test)]
mod tests;

/// A factory of shared informers for one API server. Clones are cheap, and share the same informers.
///
/// It keeps no informer alive: the handles do. Dropping the factory stops nothing.
#[derive(Clone)]
pub struct Factory {
    make_client: MakeClient,
    settings: Arc<Settings>,
    tasks: Arc<Tasks>,
    registry: Arc<Registry>,
    texts: Arc<Interner>,
    /// True once a streamed list has lost its end on the way from this API server.
    streams_lose_end: Arc<AtomicBool>,
    unanswered: Arc<Unanswered>,
}

impl Factory {
    /// Creates a factory that sends its requests through `client` and runs its tasks on `runtime`, such as a tokio
    /// handle. The client should have no retries and no read timeout of its own: they would hide failures from the
    /// informers.
    #[must_use]
    pub fn new(client: Client, runtime: impl Into<Spawner>, settings: Settings) -> Self {
        Self::with_clients(move || client.clone(), runtime, settings)
    }

    /// Creates a factory like [`Factory::new`] that makes a client for each request, and drops it once the answer has
    /// begun. A [`Client`] holds a queue of 10 KiB and a task: too much for thousands of watches.
    #[must_use]
    pub fn with_clients(
        make: impl Fn() -> Client + Send + Sync + 'static,
        runtime: impl Into<Spawner>,
        settings: Settings,
    ) -> Self {
        Self {
            make_client: Arc::new(make),
            settings: Arc::new(settings),
            tasks: Arc::new(Tasks::new(runtime.into())),
            registry: Arc::default(),
            texts: Arc::default(),
            streams_lose_end: Arc::default(),
            unanswered: Arc::default(),
        }
    }

    /// Sets the interner, which several factories may share. Running informers keep theirs.
    #[must_use]
    pub fn with_texts(self, texts: Arc<Interner>) -> Self {
        Self { texts, ..self }
    }

    /// Sets the limit of bytes that the informers share which are started from here on, with others that have it.
    #[must_use]
    pub fn with_shared_limit(self, shared_limit: Option<SharedLimit>) -> Self {
        Self { settings: Arc::new(Settings { shared_limit, ..Settings::clone(&self.settings) }), ..self }
    }

    /// Returns the informer for this query, this type and this projection's name, and starts it if there is none yet.
    /// After [`Factory::shutdown`] the returned informer never syncs.
    #[must_use = "an informer that nobody holds ends"]
    pub fn informer<T: Send + Sync + 'static>(&self, query: Query, projection: Projection<T>) -> Informer<T> {
        let key = Key { query, r#type: TypeId::of::<T>(), projection: Arc::clone(projection.name()) };
        let mut entries = self.registry.entries.lock();
        // An entry whose informer is just being dropped counts as none; its drop removes no other entry.
        let known = entries.get(&key).and_then(|entry| entry.informer.upgrade()?.downcast().ok());
        let shared = known.unwrap_or_else(|| {
            let id = self.registry.ids.fetch_add(1, Ordering::Relaxed);
            let started = self.start(id, key.clone(), projection);
            let informer: Weak<dyn Any + Send + Sync> = Arc::downgrade(&started) as Weak<_>;
            entries.insert(key, Entry { id, informer, progress: Arc::clone(&started.progress) });
            started
        });
        Informer { shared }
    }

    fn start<T: Send + Sync + 'static>(&self, id: u64, key: Key, projection: Projection<T>) -> Arc<Shared<T>> {
        let cancel = self.tasks.cancel.child_token();
        let progress = Arc::new(Progress::new(&key.query, cancel.clone()));
        let scopes = key.query.scopes();
        let namespaces = scopes.iter().map(|scope| scope.namespace.clone());
        let content = (projection.identity, projection.bytes_of);
        let store = Arc::new(Store::new(namespaces, content, &self.settings, Arc::clone(&progress)));
        let decoder = Decoder { projection, texts: Arc::clone(&self.texts), secret: key.query.is_secret() };
        for (position, scope) in scopes.into_iter().enumerate() {
            // Otherwise each future that it is handed on to would have a place for it.
            let reflector = Box::new(Reflector {
                make_client: Arc::clone(&self.make_client),
                settings: Arc::clone(&self.settings),
                scope,
                position,
                store: Arc::clone(&store),
                progress: Arc::clone(&progress),
                decoder: decoder.clone(),
                backoff: Backoff::new(self.settings.backoff_min, self.settings.backoff_max),
                first: true,
                fruitless_watches: 0,
                expired_watches: 0,
                streams_lists: self.settings.streaming_lists,
                streams_lose_end: Arc::clone(&self.streams_lose_end),
                unanswered: Arc::clone(&self.unanswered),
                max_per_page: None,
                recounts: 0,
            });
            let cancelled = cancel.clone();
            self.tasks.spawn(async move {
                cancelled.run_until_cancelled(reflector.run()).await;
            });
        }
        Arc::new(Shared {
            id,
            key,
            registry: Arc::clone(&self.registry),
            tasks: Arc::clone(&self.tasks),
            store,
            progress,
            cancel,
        })
    }

    /// Returns the status of each informer, ordered by resource, namespaces and selectors.
    #[must_use]
    pub fn statuses(&self) -> Vec<Status> {
        let mut statuses: Vec<_> = self.registry.all().iter().map(|progress| progress.status()).collect();
        statuses.sort_by(|a, b| {
            let order = |s: &Status| (s.resource.clone(), s.namespaces.clone(), s.selectors.clone());
            order(a).cmp(&order(b))
        });
        statuses
    }

    /// Returns the reason why not all objects of a namespace are stored, for people; `None` while none is left out.
    #[must_use]
    pub fn left_out_of(&self, namespace: &str) -> Option<String> {
        let limit = self.settings.max_of_namespace?;
        let all = self.registry.all();
        let mut resources: Vec<_> =
            all.iter().filter(|progress| progress.leaves_out(namespace)).map(|progress| progress.resource()).collect();
        if resources.is_empty() {
            return None;
        }
        resources.sort_unstable();
        Some(format!("the namespace {namespace} has more than {limit} of {}: some are left out", resources.join(", ")))
    }

    /// Waits until all current informers have their first complete list. The error names those that miss the
    /// deadline.
    pub async fn wait_for_sync(&self, deadline: Duration) -> Result<(), NotSynced> {
        let all = self.registry.all();
        let waits = all.iter().map(|progress| progress.wait_for_sync(deadline));
        let mut missing: Vec<_> = join_all(waits).await.into_iter().filter_map(Result::err).collect();
        if missing.is_empty() {
            return Ok(());
        }
        missing.sort_by_key(ToString::to_string);
        Err(NotSynced { missing, deadline })
    }

    /// Stops all informers of this factory for good, and waits for their tasks. A handler call in progress is
    /// finished; queued events are dropped. Stores stay readable.
    pub async fn shutdown(&self) {
        self.tasks.shutdown().await;
    }
}

impl fmt::Debug for Factory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Factory")
            .field("settings", &self.settings)
            .field("informers", &self.registry.len())
            .finish_non_exhaustive()
    }
}

/// The identity of a request for an informer; equal requests share one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    query: Query,
    r#type: TypeId,
    projection: Arc<str>,
}

/// The informers in use.
#[derive(Default)]
struct Registry {
    entries: Mutex<HashMap<Key, Entry>>,
    ids: AtomicU64,
}

struct Entry {
    id: u64,
    informer: Weak<dyn Any + Send + Sync>,
    /// Separate from the informer: reading a status must not hold the last reference to an informer, whose drop takes
    /// the registry's lock.
    progress: Arc<Progress>,
}

impl Registry {
    /// Removes a stopped informer, unless another has replaced it.
    fn forget(&self, key: &Key, id: u64) {
        let mut entries = self.entries.lock();
        if entries.get(key).is_some_and(|entry| entry.id == id) {
            entries.remove(key);
        }
    }

    fn all(&self) -> Vec<Arc<Progress>> {
        self.entries.lock().values().map(|entry| Arc::clone(&entry.progress)).collect()
    }

    fn len(&self) -> usize {
        self.entries.lock().len()
    }
}

/// The tasks of a factory: their runtime and their cancellation.
struct Tasks {
    spawner: Spawner,
    tracker: TaskTracker,
    cancel: CancellationToken,
    /// Held while a task is spawned, so that none is spawned after the shutdown.
    open: RwLock<bool>,
}

impl Tasks {
    fn new(spawner: Spawner) -> Self {
        Self { spawner, tracker: TaskTracker::new(), cancel: CancellationToken::new(), open: RwLock::new(true) }
    }

    /// Spawns a task, or drops it after the shutdown.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let open = self.open.read();
        if *open {
            self.spawner.spawn_tracked(&self.tracker, task);
        }
    }

    async fn shutdown(&self) {
        *self.open.write() = false;
        self.cancel.cancel();
        self.tracker.close();
        self.tracker.wait().await;
    }
}

/// The settings of an informer's lists, watches and pauses. The defaults suit a production API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// True if lists are requested as streams (`sendInitialEvents`), which avoids whole pages in the memory of the
    /// server and this process. If the server doesn't support it, pages are requested. Default true.
    pub streaming_lists: bool,
    /// The time without events after which a streamed list has stalled: some servers and proxies treat the request as
    /// a plain watch, which never reports the end of the list. From then on only pages are requested, of all kinds.
    /// Default 10 s.
    pub stream_idle: Duration,
    /// The time after which a streamed list without its end is given up, however many events come: they may be those of
    /// a plain watch on a busy kind. From then on only pages are requested, of all kinds. Default 120 s.
    pub stream_timeout: Duration,
    /// The number of objects per list page. Default 500.
    pub page_size: u32,
    /// The maximum wait for one list page. Default 60 s.
    pub list_timeout: Duration,
    /// The first pause after a failure. Each further pause is twice as long, less a random part of up to half.
    /// Default 0.5 s.
    pub backoff_min: Duration,
    /// The maximum pause after failures. Default 10 s: after an outage, all users of the informer wait for it.
    pub backoff_max: Duration,
    /// The time without an event or bookmark after which a watch has stalled and is restarted; also the maximum wait
    /// for its answer to begin. API servers send a bookmark about every minute. Default 150 s.
    pub watch_idle: Duration,
    /// The time for which the server is asked to keep a watch, less a random part of up to a tenth, so that not all
    /// watches end at once. Default 290 s.
    pub watch_timeout: Duration,
    /// The maximum length of an event in bytes. A watch with a longer line is closed; if that happens repeatedly, a
    /// list replaces it. Default 8 MiB, several times the maximum that an API server stores of one object.
    pub max_event_bytes: usize,
    /// The maximum length of a list page in bytes. Beyond it, half as many objects are requested; one object beyond
    /// it fails the list. Default 8 MiB.
    pub max_page_bytes: usize,
    /// The maximum number of objects of a kind. A list or watch with more is aborted, and the known objects stay.
    /// Default 150,000.
    pub max_objects: usize,
    /// The maximum memory of a kind's objects in bytes, as estimated from the lengths of what a projection keeps. A
    /// list or watch with more is aborted, and the known objects stay. Default 96 MiB, for 150,000 objects 671 bytes
    /// each.
    pub max_bytes: usize,
    /// The limit of the objects of one namespace. Further ones are left out, and the other namespaces go on. Default
    /// `None`: the limits of the kind are the only ones.
    pub max_of_namespace: Option<NamespaceLimit>,
    /// The limit of bytes that informers of several kinds share. It holds during lists too, whose new objects come
    /// beside the known ones, and a list or watch with more is aborted likewise. Default `None`.
    pub shared_limit: Option<SharedLimit>,
}

/// The limit of a kind's objects in one namespace, below those of the kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamespaceLimit {
    /// The maximum number of objects.
    pub objects: usize,
    /// The maximum memory in bytes, estimated as for [`Settings::max_bytes`].
    pub bytes: usize,
}

impl fmt::Display for NamespaceLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} objects or {} bytes", self.objects, self.bytes)
    }
}

impl Settings {
    /// Returns the settings for a kind that many tenants have objects of, each in namespaces of its own. No namespace
    /// has more than a kind has by default, and none can take the kind from the others: 1,000,000 objects and 1 GiB.
    #[must_use]
    pub fn of_many_tenants() -> Self {
        let one = Self::default();
        let of_one = NamespaceLimit { objects: one.max_objects, bytes: one.max_bytes };
        Self { max_objects: 1_000_000, max_bytes: 1 << 30, max_of_namespace: Some(of_one), ..one }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            streaming_lists: true,
            stream_idle: Duration::from_secs(10),
            stream_timeout: Duration::from_secs(120),
            page_size: 500,
            list_timeout: Duration::from_secs(60),
            backoff_min: Duration::from_millis(500),
            backoff_max: Duration::from_secs(10),
            watch_idle: Duration::from_secs(150),
            watch_timeout: Duration::from_secs(290),
            max_event_bytes: 8 << 20,
            max_page_bytes: 8 << 20,
            max_objects: 150_000,
            max_bytes: 96 << 20,
            max_of_namespace: None,
            shared_limit: None,
        }
    }
}

/// A task.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Starts tasks on a runtime. Clones are cheap.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use shared_informer::Spawner;
/// let spawner = Spawner::from(tokio::runtime::Handle::current());
/// spawner.spawn(async {}).await.unwrap();
/// # });
/// ```
#[derive(Clone)]
pub struct Spawner {
    runtime: Handle,
    around: Option<Arc<dyn Fn(Task) -> Task + Send + Sync>>,
}

impl Spawner {
    /// Wraps each started task with `around`, by which the simulation delays tasks.
    #[must_use]
    pub fn around(self, around: impl Fn(Task) -> Task + Send + Sync + 'static) -> Self {
        Self { around: Some(Arc::new(around)), ..self }
    }

    /// Starts a task.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        match &self.around {
            None => self.runtime.spawn(task),
            Some(around) => self.runtime.spawn(around(Box::pin(task))),
        }
    }

    /// Starts a task that `tracker` tracks.
    pub fn spawn_tracked(&self, tracker: &TaskTracker, task: impl Future<Output = ()> + Send + 'static) {
        match &self.around {
            None => tracker.spawn_on(task, &self.runtime),
            Some(around) => tracker.spawn_on(around(Box::pin(task)), &self.runtime),
        };
    }
}

impl From<Handle> for Spawner {
    fn from(runtime: Handle) -> Self {
        Self { runtime, around: None }
    }
}

impl From<&Handle> for Spawner {
    fn from(runtime: &Handle) -> Self {
        Self::from(runtime.clone())
    }
}

impl From<&Self> for Spawner {
    fn from(spawner: &Self) -> Self {
        spawner.clone()
    }
}

impl fmt::Debug for Spawner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spawner").field("is_wrapped", &self.around.is_some()).finish_non_exhaustive()
    }
}
