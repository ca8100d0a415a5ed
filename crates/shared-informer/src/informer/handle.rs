//! The handles of users: an informer, and a handler's registration. An informer lives as long as any of them. Must
//! never let the tasks keep the informer alive, or it would never stop.

use std::{fmt, sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;

use super::{
    Key, Registry, Tasks,
    event::{ErrorHook, Handler, WatchError},
    progress::Progress,
    query::Query,
    queue::Slot,
    status::{NotSynced, ScopeStatus, Status},
    store::Store,
};

/// A shared informer. Clones are the same informer; when the last clone and the last [`Registration`] are dropped,
/// its tasks end, its connections close, and its factory forgets it.
pub struct Informer<T> {
    pub(super) shared: Arc<Shared<T>>,
}

/// The state that all handles of one informer share.
pub(super) struct Shared<T> {
    pub(super) id: u64,
    pub(super) key: Key,
    pub(super) registry: Arc<Registry>,
    pub(super) tasks: Arc<Tasks>,
    pub(super) store: Arc<Store<T>>,
    pub(super) progress: Arc<Progress>,
    /// Cancels all tasks of this informer.
    pub(super) cancel: CancellationToken,
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        self.cancel.cancel();
        self.registry.forget(&self.key, self.id);
    }
}

impl<T: Send + Sync + 'static> Informer<T> {
    /// Returns the store with its objects. A clone of this reference doesn't keep the informer alive: after the informer
    /// has stopped, its last objects stay readable.
    #[must_use]
    pub fn store(&self) -> &Arc<Store<T>> {
        &self.shared.store
    }

    /// Returns the query that it runs.
    #[must_use]
    pub fn query(&self) -> &Query {
        &self.shared.key.query
    }

    /// Returns its current status.
    #[must_use]
    pub fn status(&self) -> Status {
        self.shared.progress.status()
    }

    /// Returns the state of each list and watch: one value per namespace of the query, or one for all.
    #[must_use]
    pub fn scopes(&self) -> Vec<ScopeStatus> {
        self.shared.progress.scopes()
    }

    /// Stops waiting for the first list of a namespace: the informer is synced once the other namespaces are listed. It
    /// continues to request that list, whose objects then arrive as changes. Does nothing if the list is complete.
    pub fn stop_waiting_for(&self, namespace: &str) {
        self.shared.store.stop_waiting_for(namespace);
    }

    /// Returns true if the first list is complete in every awaited namespace.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.shared.progress.has_synced()
    }

    /// Waits until the first list is complete. Fails after `deadline`, or when the factory is shut down; the error has
    /// the reason.
    pub async fn wait_for_sync(&self, deadline: Duration) -> Result<(), NotSynced> {
        let waited = self.shared.progress.wait_for_sync(deadline).await;
        waited.map_err(|missing| NotSynced { missing: vec![missing], deadline })
    }

    /// Calls a handler for every current object (as [`super::Event::Added`] with `initial`), and then for every
    /// change, from a task of its own, until the registration is dropped.
    ///
    /// Events that wait for a slow handler are merged by object, so that its queue never holds more entries than
    /// there are objects.
    pub fn add_handler<H: Handler<T>>(&self, handler: H) -> Registration<T> {
        self.add_named_handler("unnamed", handler)
    }

    /// Like [`Informer::add_handler`], with a name that the status shows. Several handlers may have the same.
    pub fn add_named_handler<H: Handler<T>>(&self, name: impl Into<Arc<str>>, handler: H) -> Registration<T> {
        let shared = Arc::clone(&self.shared);
        let slot = Arc::new(Slot::new(name.into(), &shared.cancel));
        shared.progress.handler_added(&slot.gauge);
        shared.store.add_handler(Arc::clone(&slot));
        shared.tasks.spawn(Arc::clone(&slot).run(handler, Arc::clone(&shared.progress)));
        Registration { shared, slot }
    }

    /// Calls a function for each list and watch that fails from now on, until the returned hook is dropped. It runs
    /// on the informer's own task, so it must be quick.
    pub fn on_error(&self, hook: impl Fn(&WatchError) + Send + Sync + 'static) -> ErrorHook {
        self.shared.progress.hooks().add(hook)
    }
}

impl<T> Clone for Informer<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<T> fmt::Debug for Informer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Informer").field("query", &self.shared.key.query).finish_non_exhaustive()
    }
}

/// The registration of a handler, which keeps the informer alive. Dropping it removes the handler; a call in progress
/// is finished.
#[must_use = "dropping the registration removes the handler"]
pub struct Registration<T> {
    shared: Arc<Shared<T>>,
    slot: Arc<Slot<T>>,
}

impl<T> Registration<T> {
    /// Returns true if the handler has received every object of the first complete list.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.slot.has_synced()
    }

    /// Waits until the handler has received every object of the first complete list, or the factory is shut down;
    /// [`Registration::has_synced`] distinguishes the two.
    pub async fn synced(&self) {
        self.slot.synced().await;
    }

    /// Returns true if the handler has processed every change so far.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.slot.is_idle()
    }
}

impl<T> Drop for Registration<T> {
    fn drop(&mut self) {
        self.slot.removed.cancel();
        self.shared.store.remove_handler(&self.slot);
    }
}

impl<T> fmt::Debug for Registration<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration")
            .field("query", &self.shared.key.query)
            .field("synced", &self.has_synced())
            .finish_non_exhaustive()
    }
}
