//! The objects of an informer. Each change is applied here, and its event is queued for every handler under the same
//! lock, so that all handlers see the same order. No other file may change objects. It never calls a handler.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    num::NonZeroU32,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use arcstr::ArcStr;
use parking_lot::{RwLock, RwLockWriteGuard};

use super::{
    NamespaceLimit, Settings,
    event::Event,
    failure::Failure,
    limit::Kept,
    progress::Progress,
    queue::Slot,
    stored::{Amount, Lists, Stored, memory_of},
    tombstones::Tombstones,
};
use crate::{
    object::{DecodeError, Object, ObjectKey, is_newer},
    projection::{BytesOf, IdentityOf},
};

/// The objects that an informer covers, kept up to date. Their content is shared, never copied.
///
/// Until the informer has synced the store is incomplete. After that, every page of a list and every event of a watch
/// is visible at once. Lists and keys are ordered by namespace and name.
pub struct Store<T> {
    state: RwLock<State<T>>,
    progress: Arc<Progress>,
}

/// A list from its first page to its last. Objects that it doesn't contain are deleted at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Listing {
    number: NonZeroU32,
    /// True if it is the first one of its scope.
    first: bool,
}

struct State<T> {
    /// The objects by namespace and name. Only results need an order of names, and are sorted when requested.
    objects: BTreeMap<ArcStr, HashMap<ArcStr, Stored<T>>>,
    /// The function that returns the identity within a content.
    identity: IdentityOf<T>,
    bytes_of: Option<BytesOf<T>>,
    indexes: HashMap<String, Index<T>>,
    handlers: Vec<Arc<Slot<T>>>,
    count: usize,
    /// The estimated memory of all objects.
    kept: Kept,
    shares: Shares,
    undecodable: usize,
    /// The number of the last list that has begun; the least one before the first.
    listings: NonZeroU32,
    /// The last complete list of each scope.
    complete: HashMap<Option<ArcStr>, NonZeroU32>,
    /// Tombstones of the objects that watches have reported as deleted since the last list.
    tombstones: Tombstones,
    /// The scopes whose first complete list is awaited; `None` is the scope of all namespaces.
    awaited: BTreeSet<Option<String>>,
    /// True if events were queued since the handlers were last woken.
    queued: bool,
}

impl<T> Store<T> {
    /// Creates an empty store, which is complete after the first list of each scope (a namespace, or `None` for all).
    pub(super) fn new(
        scopes: impl IntoIterator<Item = Option<String>>,
        (identity, bytes_of): (IdentityOf<T>, Option<BytesOf<T>>),
        settings: &Settings,
        progress: Arc<Progress>,
    ) -> Self {
        Self {
            state: RwLock::new(State {
                objects: BTreeMap::new(),
                identity,
                bytes_of,
                indexes: HashMap::new(),
                handlers: Vec::new(),
                count: 0,
                kept: Kept::new(settings.max_bytes, settings.shared_limit.clone()),
                shares: Shares { limit: settings.max_of_namespace, ..Shares::default() },
                undecodable: 0,
                listings: NonZeroU32::MIN,
                complete: HashMap::new(),
                tombstones: Tombstones::default(),
                awaited: scopes.into_iter().collect(),
                queued: false,
            }),
            progress,
        }
    }

    /// Returns the object under a key.
    #[must_use]
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<Object<T>>> {
        self.state.read().object(key)
    }

    /// Returns all objects.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<Object<T>>> {
        let objects = self.state.read().objects().collect();
        sorted(objects)
    }

    /// Returns the keys of all objects.
    #[must_use]
    pub fn keys(&self) -> Vec<ObjectKey> {
        let state = self.state.read();
        let mut keys: Vec<_> = state.all().map(|stored| stored.metadata(state.identity).key.clone()).collect();
        keys.sort_unstable();
        keys
    }

    /// Returns the number of objects, including undecodable ones.
    #[must_use]
    pub fn len(&self) -> usize {
        self.state.read().count
    }

    /// Returns true if there is no object.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn amount(&self) -> Amount {
        let state = self.state.read();
        Amount { objects: state.count, bytes: state.kept.bytes() }
    }

    /// Returns the objects of one namespace; `""` for cluster-scoped ones.
    #[must_use]
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<Object<T>>> {
        self.state.read().covered(Some(namespace), |_| true)
    }

    /// Adds an index under a name, over current and future objects. Does nothing and returns false if there is an
    /// index with that name already. `values` must always return the same values for the same object, and must not
    /// use the store: it runs while the store is locked.
    pub fn add_index(
        &self,
        name: impl Into<String>,
        values: impl Fn(&Object<T>) -> Vec<String> + Send + Sync + 'static,
    ) -> bool {
        let name = name.into();
        let mut state = self.state.write();
        if state.indexes.contains_key(&name) {
            return false;
        }
        let mut index = Index::new(Box::new(values));
        for object in state.objects() {
            index.insert(&object);
        }
        state.indexes.insert(name, index);
        true
    }

    /// Returns the objects that an index has under a value.
    pub fn by_index(&self, name: &str, value: &str) -> Result<Vec<Arc<Object<T>>>, UnknownIndex> {
        match self.state.read().indexes.get(name) {
            Some(index) => Ok(index.get(value)),
            None => Err(UnknownIndex(name.to_owned())),
        }
    }

    /// Returns the values of an index, unordered.
    pub fn index_values(&self, name: &str) -> Result<Vec<String>, UnknownIndex> {
        match self.state.read().indexes.get(name) {
            Some(index) => Ok(index.values().map(ToOwned::to_owned).collect()),
            None => Err(UnknownIndex(name.to_owned())),
        }
    }

    /// Returns the objects that don't decode, with the error. Free if there are none.
    #[must_use]
    pub fn undecodable(&self) -> Vec<(ObjectKey, DecodeError)> {
        let state = self.state.read();
        if state.undecodable == 0 {
            return Vec::new();
        }
        let failed = |object: Arc<Object<T>>| Some((object.key(), object.content.as_ref().err()?.clone()));
        let mut all: Vec<_> = state.objects().filter_map(failed).collect();
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        all
    }

    /// Adds a handler's slot: the current objects are queued for it first, then all changes, without a gap.
    pub(super) fn add_handler(&self, slot: Arc<Slot<T>>) {
        let mut state = self.state.write();
        for object in sorted(state.objects().collect()) {
            slot.push(Event::Added { object, initial: true });
        }
        if state.awaited.is_empty() {
            slot.push_synced();
        }
        slot.wake();
        state.handlers.push(slot);
    }

    /// Returns a handler that lags behind.
    pub(super) fn lagging(&self) -> Option<Arc<Slot<T>>> {
        self.state.read().handlers.iter().find(|handler| handler.lags()).map(Arc::clone)
    }

    pub(super) fn remove_handler(&self, slot: &Arc<Slot<T>>) {
        let mut state = self.state.write();
        state.handlers.retain(|handler| !Arc::ptr_eq(handler, slot));
    }

    pub(super) fn stop_waiting_for(&self, namespace: &str) {
        self.batch().state.stop_waiting_for(Some(namespace), &self.progress);
    }

    pub(super) fn batch(&self) -> Batch<'_, T> {
        Batch { state: self.state.write(), progress: &self.progress }
    }
}

fn sorted<T>(mut objects: Vec<Arc<Object<T>>>) -> Vec<Arc<Object<T>>> {
    objects.sort_unstable_by(|a, b| a.metadata.key.cmp(&b.metadata.key));
    objects
}

impl<T> State<T> {
    fn all(&self) -> impl Iterator<Item = &Stored<T>> {
        self.objects.values().flat_map(HashMap::values)
    }

    fn objects(&self) -> impl Iterator<Item = Arc<Object<T>>> {
        self.all().map(|stored| stored.object(self.identity))
    }

    fn stored(&self, key: &ObjectKey) -> Option<&Stored<T>> {
        self.objects.get(&key.namespace)?.get(&key.name)
    }

    fn object(&self, key: &ObjectKey) -> Option<Arc<Object<T>>> {
        self.stored(key).map(|stored| stored.object(self.identity))
    }

    /// Returns true if a state from a watch is older than the stored state, or than the object's deletion.
    fn is_outdated(&self, object: &Object<T>) -> bool {
        let old = self.stored(&object.metadata.key);
        old.is_some_and(|old| is_newer(old.metadata(self.identity), &object.metadata))
            || self.tombstones.covers(&object.metadata)
    }

    /// Returns true if a state from a list is older than an earlier state of the same list, or than the object's
    /// deletion.
    fn is_outdated_within(&self, listing: Listing, object: &Object<T>) -> bool {
        let listed = self.stored(&object.metadata.key).filter(|stored| stored.lists().last == listing.number);
        listed.is_some_and(|stored| is_newer(stored.metadata(self.identity), &object.metadata))
            || self.tombstones.covers(&object.metadata)
    }

    /// Stores an object under its key and queues the event, or leaves it out; returns false if this version is already
    /// stored.
    fn put(&mut self, object: Arc<Object<T>>, listing: Option<Listing>, progress: &Progress) -> bool {
        if object.content.is_err() {
            progress.undecodable_received();
        }
        if self.leaves_out(&object, listing, progress) {
            return true;
        }
        let metadata = &object.metadata;
        let number = listing.map_or(self.listings, |listing| listing.number);
        let initial = listing.is_some_and(|listing| listing.first) && !self.awaited.is_empty();
        let ObjectKey { namespace, name } = &metadata.key;
        let names = self.objects.entry(namespace.clone()).or_default();
        let identity = self.identity;
        let Some(stored) = names.get_mut(name) else {
            // A watch goes on after the last complete list of its scope, whatever other scopes have listed since.
            let of = |scope| self.complete.get(&scope).copied();
            let complete = || of(Some(namespace.clone())).or_else(|| of(None)).unwrap_or(NonZeroU32::MIN);
            let since = listing.map_or_else(complete, |listing| listing.number);
            names.insert(name.clone(), Stored::new(&object, Lists { last: number, since }, identity));
            self.count += 1;
            self.index(&object);
            self.emit(Event::Added { object, initial }, progress);
            return true;
        };
        stored.set_last_list(number);
        let known = stored.metadata(identity);
        let same_object = known.uid == metadata.uid;
        let same_version = known.resource_version == metadata.resource_version;
        if same_object && same_version && !metadata.resource_version.is_empty() {
            return false;
        }
        let old = stored.replace(&object, identity);
        self.unindex(&old);
        self.index(&object);
        if same_object {
            self.emit(Event::Updated { old, new: object }, progress);
            return true;
        }
        let found_by_relist = listing.is_some();
        if !found_by_relist {
            self.tombstones.add_replaced(&old.metadata);
        }
        self.emit(Event::Deleted { last: old, found_by_relist }, progress);
        self.emit(Event::Added { object, initial }, progress);
        true
    }

    /// Marks a first list as complete or not awaited any more. Returns true if it was the last awaited one.
    fn stop_waiting_for(&mut self, namespace: Option<&str>, progress: &Progress) -> bool {
        let last = self.awaited.remove(&namespace.map(str::to_owned)) && self.awaited.is_empty();
        if last {
            // This call comes first, so that the informer reports the sync no later than any handler.
            progress.all_synced();
            for handler in &self.handlers {
                handler.push_synced();
            }
            self.queued = true;
        }
        last
    }

    fn remove(&mut self, object: &Object<T>) -> Option<Arc<Object<T>>> {
        let ObjectKey { namespace, name } = &object.metadata.key;
        let names = self.objects.get_mut(namespace)?;
        let stored = names.remove(name)?.object(self.identity);
        if names.is_empty() {
            self.objects.remove(namespace);
        }
        self.count -= 1;
        self.unindex(&stored);
        Some(stored)
    }

    /// Returns the objects in a namespace, or in all, whose lists match.
    fn covered(&self, namespace: Option<&str>, holds: impl Fn(Lists) -> bool) -> Vec<Arc<Object<T>>> {
        let one = namespace.and_then(|namespace| self.objects.get(namespace));
        let all = namespace.is_none().then(|| self.objects.values());
        let found = one.into_iter().chain(all.into_iter().flatten()).flat_map(HashMap::values);
        let found = found.filter(|stored| holds(stored.lists()));
        sorted(found.map(|stored| stored.object(self.identity)).collect())
    }

    /// Returns the memory of a state of an object, and of the stored state that it would replace.
    fn memory_of(&self, object: &Object<T>) -> (usize, Option<usize>) {
        let stored = self.stored(&object.metadata.key);
        let before = stored.map(|it| memory_of(it.metadata(self.identity), it.content(), self.bytes_of));
        (memory_of(&object.metadata, object.content.as_deref(), self.bytes_of), before)
    }

    fn index(&mut self, object: &Arc<Object<T>>) {
        let bytes = memory_of(&object.metadata, object.content.as_deref(), self.bytes_of);
        self.kept.add(bytes);
        self.shares.add(&object.metadata.key.namespace, bytes);
        self.undecodable += usize::from(object.content.is_err());
        for index in self.indexes.values_mut() {
            index.insert(object);
        }
    }

    fn unindex(&mut self, object: &Object<T>) {
        let bytes = memory_of(&object.metadata, object.content.as_deref(), self.bytes_of);
        self.kept.subtract(bytes);
        self.shares.subtract(&object.metadata.key.namespace, bytes);
        self.undecodable -= usize::from(object.content.is_err());
        for index in self.indexes.values_mut() {
            index.remove(object);
        }
    }

    fn emit(&mut self, event: Event<T>, progress: &Progress) {
        progress.count(&event);
        self.queued = true;
        if let Some((last, others)) = self.handlers.split_last() {
            for handler in others {
                handler.push(event.clone());
            }
            last.push(event);
        }
    }
}

/// Changes that are applied together under one lock. When it is dropped, each handler is woken once for all of them.
pub(super) struct Batch<'a, T> {
    state: RwLockWriteGuard<'a, State<T>>,
    progress: &'a Progress,
}

impl<T> Batch<'_, T> {
    /// Checks that an object can be stored within the limits of the kind. One that is stored already may get smaller in
    /// any case. One that its namespace has no place for will be left out.
    ///
    /// # Errors
    /// The limit that it exceeds.
    pub(super) fn check(&self, object: &Object<T>, settings: &Settings) -> Result<(), Failure> {
        let Some((is_new, more)) = self.growth(object) else { return Ok(()) };
        let state = &*self.state;
        let objects = if is_new { state.count + 1 } else { 0 };
        let bytes = if more > 0 { state.kept.bytes() + more } else { 0 };
        Amount { objects, bytes }.check(settings)?;
        state.kept.check_shared(more)
    }

    /// Checks the same of an object of a list, which has limits of its own.
    ///
    /// # Errors
    /// The limit that it exceeds.
    fn check_list(&self, object: &Object<T>) -> Result<(), Failure> {
        self.growth(object).map_or(Ok(()), |(_, more)| self.state.kept.check_list(more))
    }

    /// Returns true if an object is new, and the memory that it takes beside the stored state; `None` if its namespace
    /// has no place for it.
    fn growth(&self, object: &Object<T>) -> Option<(bool, usize)> {
        let state = &*self.state;
        let (after, before) = state.memory_of(object);
        let has_place = state.shares.have_place(&object.metadata.key.namespace, before, after);
        has_place.then(|| (before.is_none(), after.saturating_sub(before.unwrap_or_default())))
    }

    /// Applies a state that a watch reports; returns false if it is out of date or already stored.
    pub(super) fn put(&mut self, object: Object<T>) -> bool {
        !self.state.is_outdated(&object) && self.state.put(Arc::new(object), None, self.progress)
    }

    /// Applies a deletion that a watch reports; returns false if it is out of date.
    pub(super) fn delete(&mut self, object: Object<T>) -> bool {
        let state = &mut *self.state;
        if state.is_outdated(&object) {
            return false;
        }
        state.tombstones.add_deleted(&object.metadata);
        let Some(stored) = state.remove(&object) else { return true };
        if stored.metadata.uid != object.metadata.uid {
            state.tombstones.add_replaced(&stored.metadata);
        }
        let last = if object.content.is_ok() { Arc::new(object) } else { stored };
        state.emit(Event::Deleted { last, found_by_relist: false }, self.progress);
        true
    }
}

impl<T> Drop for Batch<'_, T> {
    fn drop(&mut self) {
        let state = &mut *self.state;
        self.progress.set_counts(state.count, state.undecodable);
        if std::mem::take(&mut state.queued) {
            for handler in &state.handlers {
                handler.wake();
            }
        }
    }
}

impl<T> Store<T> {
    /// Begins a list of one scope (one namespace, or all).
    pub(super) fn begin_list(&self, first: bool, namespace: Option<&str>) -> Listing {
        let mut state = self.state.write();
        state.listings = state.listings.saturating_add(1);
        state.tombstones.forget(namespace);
        Listing { number: state.listings, first }
    }

    /// Removes the objects that were added since the last complete list of a scope: a server whose lists never end,
    /// or contain other objects each time, must not fill the memory.
    pub(super) fn drop_unlisted(&self, namespace: Option<&str>) {
        let mut batch = self.batch();
        let state = &mut *batch.state;
        let complete = state.complete.get(&namespace.map(ArcStr::from)).copied().unwrap_or(NonZeroU32::MIN);
        for object in state.covered(namespace, |lists| lists.since > complete) {
            state.remove(&object);
            state.emit(Event::Deleted { last: object, found_by_relist: true }, &self.progress);
        }
    }

    /// Applies one page. A list is the API server's most recent state: it overrules the stored objects, even if its
    /// versions are smaller, as after a restored backup. It doesn't overrule a newer state from the same list: a
    /// streamed list may contain several states of an object. Returns the amount of the objects that were left out.
    ///
    /// # Errors
    /// The limit of bytes that the next object would exceed; those before it are stored.
    pub(super) fn apply_page(
        &self,
        listing: Listing,
        objects: impl IntoIterator<Item = Object<T>>,
    ) -> Result<Amount, Failure> {
        let mut batch = self.batch();
        let before = batch.state.shares.left_out;
        for object in objects {
            if !batch.state.is_outdated_within(listing, &object) {
                batch.check_list(&object)?;
                batch.state.put(Arc::new(object), Some(listing), &self.progress);
            }
        }
        Ok(batch.state.shares.left_out.without(before))
    }

    /// Ends a list: objects in its scope (one namespace, or all) that it didn't contain are deleted. Returns true if it
    /// was the last awaited first list, so that the informer is synced now.
    pub(super) fn end_list(&self, listing: Listing, namespace: Option<&str>) -> bool {
        for namespace in self.progress.list_left_out(namespace, listing.number) {
            let resource = self.progress.resource();
            tracing::info!(resource, %namespace, "nothing of the namespace is left out any more");
        }
        let mut batch = self.batch();
        let state = &mut *batch.state;
        state.complete.insert(namespace.map(ArcStr::from), listing.number);
        for object in state.covered(namespace, |lists| lists.last < listing.number) {
            state.remove(&object);
            let last = object;
            state.emit(Event::Deleted { last, found_by_relist: true }, &self.progress);
        }
        listing.first && state.stop_waiting_for(namespace, &self.progress)
    }
}

/// The amount of each namespace; nothing without a limit.
#[derive(Debug, Default)]
struct Shares {
    limit: Option<NamespaceLimit>,
    stored: HashMap<ArcStr, Amount>,
    /// The amount of all that was left out so far, repetitions included.
    left_out: Amount,
}

impl Shares {
    fn add(&mut self, namespace: &ArcStr, bytes: usize) {
        if self.limit.is_some() {
            *self.stored.entry(namespace.clone()).or_default() += Amount { objects: 1, bytes };
        }
    }

    fn subtract(&mut self, namespace: &ArcStr, bytes: usize) {
        let Some(stored) = self.stored.get_mut(namespace) else { return };
        *stored = stored.without(Amount { objects: 1, bytes });
        if stored.objects == 0 {
            self.stored.remove(namespace);
        }
    }

    /// Returns true if a state of an object has a place beside the others of its namespace. `before` is the memory of
    /// the stored state. A stored object may get smaller in any case.
    fn have_place(&self, namespace: &ArcStr, before: Option<usize>, after: usize) -> bool {
        let Some(limit) = self.limit else { return true };
        if before.is_some_and(|before| after <= before) {
            return true;
        }
        let stored = self.stored.get(namespace).copied().unwrap_or_default();
        let objects = stored.objects + usize::from(before.is_none());
        let bytes = stored.bytes + after - before.unwrap_or_default();
        objects <= limit.objects && bytes <= limit.bytes
    }
}

#[cfg(test)]
impl<T> Store<T> {
    pub(super) fn share_of(&self, namespace: &str) -> Amount {
        self.state.read().shares.stored.get(namespace).copied().unwrap_or_default()
    }
}

impl<T> State<T> {
    /// Leaves a state of an object out if its namespace has no place for it, and returns true then. An earlier state
    /// stays, as that of a known object, but not that of another object of this name.
    fn leaves_out(&mut self, object: &Object<T>, listing: Option<Listing>, progress: &Progress) -> bool {
        if self.shares.limit.is_none() {
            return false;
        }
        let key = &object.metadata.key;
        let (after, before) = self.memory_of(object);
        if self.shares.have_place(&key.namespace, before, after) {
            return false;
        }
        let is_another =
            self.stored(key).is_some_and(|stored| stored.metadata(self.identity).uid != object.metadata.uid);
        self.shares.left_out += Amount { objects: 1, bytes: after };
        let list = listing.map_or(self.listings, |listing| listing.number);
        if progress.left_out(&key.namespace, list) {
            tracing::warn!(
                resource = progress.resource(),
                namespace = %key.namespace,
                "the namespace has more objects or bytes than are kept of one: further ones are left out"
            );
        }
        if is_another && let Some(last) = self.remove(object) {
            let found_by_relist = listing.is_some();
            if !found_by_relist {
                self.tombstones.add_replaced(&last.metadata);
            }
            self.emit(Event::Deleted { last, found_by_relist }, progress);
        } else if let Some(listing) = listing
            && let Some(stored) = self.objects.get_mut(&key.namespace).and_then(|names| names.get_mut(&key.name))
        {
            stored.set_last_list(listing.number);
        }
        true
    }
}

/// A function that returns the values under which an object is indexed.
type IndexFn<T> = dyn Fn(&Object<T>) -> Vec<String> + Send + Sync;

/// The error for an index that a store doesn't have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown index {0:?}")]
pub struct UnknownIndex(pub String);

/// Objects by the values that one function returns for them.
struct Index<T> {
    values_of: Box<IndexFn<T>>,
    objects: HashMap<String, BTreeMap<ObjectKey, Arc<Object<T>>>>,
}

impl<T> Index<T> {
    fn new(values: Box<IndexFn<T>>) -> Self {
        Self { values_of: values, objects: HashMap::new() }
    }

    fn insert(&mut self, object: &Arc<Object<T>>) {
        for value in self.values_of(object) {
            self.objects.entry(value).or_default().insert(object.key(), Arc::clone(object));
        }
    }

    fn remove(&mut self, object: &Object<T>) {
        for value in self.values_of(object) {
            let Some(objects) = self.objects.get_mut(&value) else {
                continue;
            };
            objects.remove(&object.key());
            if objects.is_empty() {
                self.objects.remove(&value);
            }
        }
    }

    /// Returns the objects under a value, ordered by key.
    fn get(&self, value: &str) -> Vec<Arc<Object<T>>> {
        self.objects.get(value).map(|objects| objects.values().cloned().collect()).unwrap_or_default()
    }

    /// Iterates over all values.
    fn values(&self) -> impl Iterator<Item = &str> {
        self.objects.keys().map(String::as_str)
    }

    /// Returns the values of an object; none if the index function panics, since the watch must go on.
    fn values_of(&self, object: &Object<T>) -> Vec<String> {
        catch_unwind(AssertUnwindSafe(|| (self.values_of)(object))).unwrap_or_else(|_| {
            tracing::error!(object = %object.key(), "an index function panicked");
            Vec::new()
        })
    }
}
