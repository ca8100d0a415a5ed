//! The factory of informers, which shares one per query. Must never keep an unused informer alive, nor leave a task
//! behind.

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    fmt,
    future::Future,
    sync::{Arc, Weak},
    time::Duration,
};

use futures::future::join_all;
use kube::Client;
use parking_lot::{Mutex, RwLock};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    backoff::Backoff,
    handle::{Informer, Shared},
    progress::Progress,
    query::Query,
    reflector::Reflector,
    settings::Settings,
    status::{NotSynced, Status},
    store::Store,
    tasks::Spawner,
    wire::Decoder,
};
use crate::{intern::Interner, projection::Projection};

/// A factory of shared informers for one API server. Cheap to clone; clones are the same factory.
///
/// It keeps no informer alive: the handles do. Dropping the factory stops nothing.
#[derive(Clone)]
pub struct Factory {
    client: Client,
    settings: Arc<Settings>,
    tasks: Arc<Tasks>,
    registry: Arc<Registry>,
    texts: Arc<Interner>,
}

impl Factory {
    /// Creates a factory that sends its requests through `client` and runs its tasks on `runtime`, such as a tokio
    /// handle. The client should have no retries and no read timeout of its own: they would hide failures from the
    /// informers.
    #[must_use]
    pub fn new(client: Client, runtime: impl Into<Spawner>, settings: Settings) -> Self {
        Self {
            client,
            settings: Arc::new(settings),
            tasks: Arc::new(Tasks::new(runtime.into())),
            registry: Arc::default(),
            texts: Arc::default(),
        }
    }

    /// Sets the interner, which other factories of the program may share. To be called before any informer is
    /// started: running informers keep theirs.
    #[must_use]
    pub fn with_texts(self, texts: Arc<Interner>) -> Self {
        Self { texts, ..self }
    }

    /// Returns the informer for this query, this type and this projection's name, and starts it if there is none yet.
    /// After [`Factory::shutdown`] the returned informer never syncs.
    pub fn informer<T: Send + Sync + 'static>(&self, query: Query, projection: Projection<T>) -> Informer<T> {
        let key = Key { query, r#type: TypeId::of::<T>(), projection: Arc::clone(projection.name()) };
        let mut entries = self.registry.entries.lock();
        // An entry whose informer is just being dropped counts as none; its drop removes no other entry.
        if let Some(shared) = entries.get(&key).and_then(Entry::shared) {
            return Informer { shared };
        }
        let id = self.registry.next_id();
        let shared = self.start(id, key.clone(), projection);
        let any: Weak<dyn Any + Send + Sync> = Arc::downgrade(&shared) as Weak<_>;
        let progress = Arc::clone(&shared.progress);
        entries.insert(key, Entry { id, any, progress });
        Informer { shared }
    }

    fn start<T: Send + Sync + 'static>(&self, id: u64, key: Key, projection: Projection<T>) -> Arc<Shared<T>> {
        let cancel = self.tasks.cancel.child_token();
        let progress = Arc::new(Progress::new(&key.query, cancel.clone()));
        let scopes = key.query.scopes();
        let namespaces = scopes.iter().map(|scope| scope.namespace.clone());
        let store = Arc::new(Store::new(namespaces, projection.identity, Arc::clone(&progress)));
        let decoder = Decoder { projection, texts: Arc::clone(&self.texts), secret: key.query.is_secret() };
        for (position, scope) in scopes.into_iter().enumerate() {
            let reflector = Reflector {
                client: self.client.clone(),
                settings: Arc::clone(&self.settings),
                scope,
                position,
                store: Arc::clone(&store),
                progress: Arc::clone(&progress),
                decoder: decoder.clone(),
                backoff: Backoff::new(self.settings.backoff_min, self.settings.backoff_max),
                first: true,
                barren: 0,
                gone: 0,
                streams: self.settings.streaming_lists,
                fewer: None,
            };
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
        let mut statuses: Vec<_> = self.all().iter().map(|progress| progress.status()).collect();
        statuses.sort_by(|a, b| {
            let order = |s: &Status| (s.resource.clone(), s.namespaces.clone(), s.selectors.clone());
            order(a).cmp(&order(b))
        });
        statuses
    }

    /// Waits until all current informers have their first complete list. The error names those that miss the
    /// deadline.
    pub async fn wait_for_sync(&self, deadline: Duration) -> Result<(), NotSynced> {
        let all = self.all();
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

    fn all(&self) -> Vec<Arc<Progress>> {
        let entries = self.registry.entries.lock();
        entries.values().map(|e| Arc::clone(&e.progress)).collect()
    }
}

impl fmt::Debug for Factory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Factory")
            .field("settings", &self.settings)
            .field("informers", &self.registry.entries.lock().len())
            .finish_non_exhaustive()
    }
}

/// The identity of a request for an informer; equal requests share one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) query: Query,
    r#type: TypeId,
    projection: Arc<str>,
}

/// The informers in use.
#[derive(Default)]
pub(super) struct Registry {
    entries: Mutex<HashMap<Key, Entry>>,
    ids: std::sync::atomic::AtomicU64,
}

struct Entry {
    id: u64,
    any: Weak<dyn Any + Send + Sync>,
    /// Separate from the informer: reading a status must not hold the last reference to an informer, whose drop takes
    /// the registry's lock.
    progress: Arc<Progress>,
}

impl Entry {
    fn shared<T: Send + Sync + 'static>(&self) -> Option<Arc<Shared<T>>> {
        self.any.upgrade()?.downcast().ok()
    }
}

impl Registry {
    fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
    }

    /// Removes a stopped informer, unless another has replaced it.
    pub(super) fn forget(&self, key: &Key, id: u64) {
        let mut entries = self.entries.lock();
        if entries.get(key).is_some_and(|entry| entry.id == id) {
            entries.remove(key);
        }
    }
}

/// The tasks of a factory: their runtime and their cancellation.
pub(super) struct Tasks {
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
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
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

    /// Tasks that have not ended.
    #[cfg(test)]
    pub(super) fn left(&self) -> usize {
        self.tracker.len()
    }
}

#[cfg(test)]
impl Factory {
    /// Tasks that have not ended.
    pub(super) fn tasks_left(&self) -> usize {
        self.tasks.left()
    }
}
