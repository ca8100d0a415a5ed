//! The handles of users: an informer, a handler's registration, and read access to the objects. An informer lives as
//! long as any of the first two. Must never let the tasks keep the informer alive, or it would never stop.

use std::{fmt, sync::Arc, time::Duration};

use arcstr::ArcStr;
use tokio_util::sync::CancellationToken;

use super::{
    Key, Registry, Tasks,
    event::{ErrorHook, Handler, WatchError},
    progress::Progress,
    query::Query,
    queue::{HandlerOptions, Slot},
    status::{NotSynced, ScopeStatus, Status},
    store::{Store, UnknownIndex},
};
use crate::object::{Object, ObjectKey};

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
    /// Returns the store with its objects.
    #[must_use]
    pub fn store(&self) -> &Store<T> {
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

    /// Returns true if objects of this namespace are left out, since it has more than its limit.
    #[must_use]
    pub fn leaves_out(&self, namespace: &str) -> bool {
        self.shared.progress.leaves_out(namespace)
    }

    /// Returns true if an object of any namespace was ever left out.
    #[must_use]
    pub fn has_left_out(&self) -> bool {
        self.shared.progress.has_left_out()
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
        self.add_handler_with(HandlerOptions::default(), handler)
    }

    /// Like [`Informer::add_handler`], with a name and an optional resync.
    pub fn add_handler_with<H: Handler<T>>(&self, options: HandlerOptions, handler: H) -> Registration<T> {
        let shared = Arc::clone(&self.shared);
        let slot = Arc::new(Slot::new(options, &shared.cancel));
        shared.progress.handler_added(&slot.gauge);
        shared.store.add_handler(Arc::clone(&slot));
        let (store, progress) = (Arc::clone(&shared.store), Arc::clone(&shared.progress));
        shared.tasks.spawn(Arc::clone(&slot).run(handler, store, progress));
        Registration { shared, slot }
    }

    /// Calls a function for each list and watch that fails from now on, until the returned hook is dropped. It runs
    /// on the informer's own task, so it must be quick.
    pub fn on_error(&self, hook: impl Fn(&WatchError) + Send + Sync + 'static) -> ErrorHook {
        self.shared.progress.hooks().add(hook)
    }

    /// Returns a read-only view of its store.
    #[must_use]
    pub fn lister(&self) -> Lister<T> {
        Lister { store: Arc::clone(&self.shared.store) }
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

    /// Delivers stored objects to the handler once more: each one that `matches`, in this namespace or in all, as an
    /// [`Event::Updated`](super::Event::Updated) without a change, and then the mark by [`Handler::replayed`].
    ///
    /// They go through the handler's queue, so that they are in order with the changes: at the mark, the handler has
    /// received each object that matched as it was at the call, or as it became later, unless it is gone. Before the
    /// first list is complete, only what has been listed is replayed. Every call queues a mark, also if nothing
    /// matched.
    ///
    /// `matches` must not use the store: it runs while the store is locked.
    ///
    /// ```
    /// use shared_informer::{Event, Handler, Registration};
    /// use serde_json::Value;
    ///
    /// struct Teams;
    ///
    /// impl Handler<Value> for Teams {
    ///     fn handle(&mut self, event: Event<Value>) {
    ///         println!("{}", event.key());
    ///     }
    ///
    ///     fn replayed(&mut self, mark: u64) {
    ///         println!("team {mark} is complete");
    ///     }
    /// }
    ///
    /// fn add_team(number: u64, teams: &Registration<Value>) {
    ///     teams.replay(Some("default"), number, |object| {
    ///         object.decoded().is_some_and(|it| it["metadata"]["labels"]["team"] == number.to_string())
    ///     });
    /// }
    /// ```
    pub fn replay(&self, namespace: Option<&str>, mark: u64, matches: impl Fn(&Object<T>) -> bool) {
        self.replay_all(namespace, [mark], matches);
    }

    /// Like [`Registration::replay`], with several marks after the same objects, which are walked through once.
    pub fn replay_all(
        &self,
        namespace: Option<&str>,
        marks: impl IntoIterator<Item = u64>,
        matches: impl Fn(&Object<T>) -> bool,
    ) {
        self.shared.store.push_replay(namespace, matches, marks, &self.slot);
    }

    /// Returns the number of objects in the handler's queue.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.slot.gauge.status().queued
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

/// Read access to an informer's objects. Cheap to clone and to pass on: it doesn't keep the informer alive. After the
/// informer has stopped, its last objects stay readable.
pub struct Lister<T> {
    pub(super) store: Arc<Store<T>>,
}

impl<T> Lister<T> {
    /// Returns the object under a key.
    #[must_use]
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<Object<T>>> {
        self.store.get(key)
    }

    /// Returns the object under a key as of this resource version or later. The version may be that of an object of
    /// another kind if one etcd stores both kinds, as it does all custom resources of an API server: it numbers the
    /// writes of all kinds.
    #[must_use]
    pub fn as_of(&self, key: &ObjectKey, version: u64) -> AsOf<T> {
        // The version is read before the store, which can then only be more recent.
        if self.store.reached(&key.namespace).is_none_or(|reached| reached < version) {
            return AsOf::Behind;
        }
        self.store.get(key).map_or(AsOf::Absent, AsOf::Present)
    }

    /// Returns all objects, ordered by namespace and name.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<Object<T>>> {
        self.store.list()
    }

    /// Returns the objects that an index has under a value.
    pub fn by_index(&self, name: &str, value: &str) -> Result<Vec<Arc<Object<T>>>, UnknownIndex> {
        self.store.by_index(name, value)
    }

    /// Returns a lister for one namespace.
    pub fn namespace(&self, namespace: impl Into<ArcStr>) -> NamespaceLister<T> {
        NamespaceLister { lister: self.clone(), namespace: namespace.into() }
    }
}

/// The state of an object as of a resource version or later, if the informer knows it.
#[derive(Debug)]
pub enum AsOf<T> {
    /// The object exists, in this state.
    Present(Arc<Object<T>>),
    /// The object doesn't exist.
    Absent,
    /// Unknown: the informer hasn't reached that version yet, is listing again, or has versions that aren't numbers.
    Behind,
}

impl<T> Clone for Lister<T> {
    fn clone(&self) -> Self {
        Self { store: Arc::clone(&self.store) }
    }
}

impl<T> fmt::Debug for Lister<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lister").field("objects", &self.store.len()).finish()
    }
}

/// Read access to an informer's objects in one namespace.
pub struct NamespaceLister<T> {
    lister: Lister<T>,
    namespace: ArcStr,
}

impl<T> NamespaceLister<T> {
    /// Returns the object with that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<Object<T>>> {
        self.lister.get(&ObjectKey::new(self.namespace.clone(), name))
    }

    /// Returns all objects of the namespace, ordered by name.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<Object<T>>> {
        self.lister.store.in_namespace(&self.namespace)
    }
}

impl<T> Clone for NamespaceLister<T> {
    fn clone(&self) -> Self {
        Self { lister: self.lister.clone(), namespace: self.namespace.clone() }
    }
}

impl<T> fmt::Debug for NamespaceLister<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamespaceLister").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}
