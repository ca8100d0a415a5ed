//! The factory of informers, which shares one informer per query. It must never keep an unused informer alive, nor
//! leave a task behind.

use std::{fmt, sync::Arc, time::Duration};

use futures::future::join_all;
use kube::Client;

use super::{
    backoff::Backoff,
    handle::{Informer, Shared},
    progress::Progress,
    query::Query,
    reflector::{MakeClient, Reflector},
    registry::{Key, Registry, Tasks},
    settings::Settings,
    shared_limit::SharedLimit,
    status::{NotSynced, Status},
    store::Store,
    tasks::Spawner,
    wire::Decoder,
};
use crate::{intern::Interner, projection::Projection};

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
        let key = Key::of::<T>(query, projection.name());
        let shared = self.registry.get_or_start(key, |id, key| {
            let shared = self.start(id, key, projection);
            let progress = Arc::clone(&shared.progress);
            (shared, progress)
        });
        Informer { shared }
    }

    fn start<T: Send + Sync + 'static>(&self, id: u64, key: Key, projection: Projection<T>) -> Arc<Shared<T>> {
        let cancel = self.tasks.cancel.child_token();
        let progress = Arc::new(Progress::new(&key.query, cancel.clone()));
        let scopes = key.query.scopes();
        let namespaces = scopes.iter().map(|scope| scope.namespace.clone());
        let content = (projection.identity, projection.bytes_of);
        let store = Store::new(namespaces, content, Arc::clone(&progress));
        let store = Arc::new(store.with_limits(&self.settings));
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

#[cfg(test)]
impl Factory {
    /// Returns the number of tasks that haven't ended.
    pub(super) fn tasks_left(&self) -> usize {
        self.tasks.left()
    }
}
