//! The informers of a factory that are in use, and its tasks. Must never keep an informer alive.

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    future::Future,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::{Mutex, RwLock};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{progress::Progress, query::Query, tasks::Spawner};

/// The identity of a request for an informer; equal requests share one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) query: Query,
    r#type: TypeId,
    projection: Arc<str>,
}

impl Key {
    /// Creates the key of a query for objects of type `T`, by the projection of this name.
    pub(super) fn of<T: 'static>(query: Query, projection: &Arc<str>) -> Self {
        Self { query, r#type: TypeId::of::<T>(), projection: Arc::clone(projection) }
    }
}

/// The informers in use.
#[derive(Default)]
pub(super) struct Registry {
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
    /// Returns the informer of a key, or starts one with an id of its own.
    pub(super) fn get_or_start<I: Any + Send + Sync>(
        &self,
        key: Key,
        start: impl FnOnce(u64, Key) -> (Arc<I>, Arc<Progress>),
    ) -> Arc<I> {
        let mut entries = self.entries.lock();
        // An entry whose informer is just being dropped counts as none; its drop removes no other entry.
        let known = entries.get(&key).and_then(|entry| entry.informer.upgrade()?.downcast().ok());
        if let Some(known) = known {
            return known;
        }
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let (started, progress) = start(id, key.clone());
        let informer: Weak<dyn Any + Send + Sync> = Arc::downgrade(&started) as Weak<_>;
        entries.insert(key, Entry { id, informer, progress });
        started
    }

    /// Removes a stopped informer, unless another has replaced it.
    pub(super) fn forget(&self, key: &Key, id: u64) {
        let mut entries = self.entries.lock();
        if entries.get(key).is_some_and(|entry| entry.id == id) {
            entries.remove(key);
        }
    }

    /// Returns the progress of each informer.
    pub(super) fn all(&self) -> Vec<Arc<Progress>> {
        self.entries.lock().values().map(|entry| Arc::clone(&entry.progress)).collect()
    }

    /// Returns the number of informers.
    pub(super) fn len(&self) -> usize {
        self.entries.lock().len()
    }
}

/// The tasks of a factory: their runtime and their cancellation.
pub(super) struct Tasks {
    spawner: Spawner,
    tracker: TaskTracker,
    pub(super) cancel: CancellationToken,
    /// Held while a task is spawned, so that none is spawned after the shutdown.
    open: RwLock<bool>,
}

impl Tasks {
    pub(super) fn new(spawner: Spawner) -> Self {
        Self { spawner, tracker: TaskTracker::new(), cancel: CancellationToken::new(), open: RwLock::new(true) }
    }

    /// Spawns a task, or drops it after the shutdown.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let open = self.open.read();
        if *open {
            self.spawner.spawn_tracked(&self.tracker, task);
        }
    }

    pub(super) async fn shutdown(&self) {
        *self.open.write() = false;
        self.cancel.cancel();
        self.tracker.close();
        self.tracker.wait().await;
    }

    /// Returns the number of tasks that haven't ended.
    #[cfg(test)]
    pub(super) fn left(&self) -> usize {
        self.tracker.len()
    }
}
