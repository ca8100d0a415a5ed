//! Changes of a store under one lock.

use std::sync::Arc;

use parking_lot::RwLockWriteGuard;

use super::State;
use crate::{
    informer::{
        event::Event,
        failure::Failure,
        memory::{Amount, memory_of},
        progress::Progress,
        settings::Settings,
    },
    object::Object,
};

/// Changes that are applied together under one lock. When it is dropped, each handler is woken once for all of them.
pub(in crate::informer) struct Batch<'a, T> {
    pub(super) state: RwLockWriteGuard<'a, State<T>>,
    pub(super) progress: &'a Progress,
}

impl<T> Batch<'_, T> {
    /// Checks that an object can be stored within the limits of the kind. One that is stored already may get smaller in
    /// any case. One that its namespace has no place for will be left out.
    ///
    /// # Errors
    /// The limit that it exceeds.
    pub(in crate::informer) fn check(&self, object: &Object<T>, settings: &Settings) -> Result<(), Failure> {
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
    pub(super) fn check_list(&self, object: &Object<T>) -> Result<(), Failure> {
        self.growth(object).map_or(Ok(()), |(_, more)| self.state.kept.check_list(more))
    }

    /// Returns true if an object is new, and the memory that it takes beside the stored state; `None` if its namespace
    /// has no place for it.
    fn growth(&self, object: &Object<T>) -> Option<(bool, usize)> {
        let state = &*self.state;
        let key = &object.metadata.key;
        let after = memory_of(&object.metadata, object.content.as_deref(), state.bytes_of);
        let before = state.stored(key);
        let before = before.map(|it| memory_of(it.metadata(state.identity), it.content(), state.bytes_of));
        let has_place = state.shares.have_place(&key.namespace, before, after);
        has_place.then(|| (before.is_none(), after.saturating_sub(before.unwrap_or_default())))
    }

    /// Applies a state that a watch reports; returns false if it is out of date or already stored.
    pub(in crate::informer) fn put(&mut self, object: Object<T>) -> bool {
        !self.state.is_outdated(&object) && self.state.put(Arc::new(object), None, self.progress)
    }

    /// Applies a deletion that a watch reports; returns false if it is out of date.
    pub(in crate::informer) fn delete(&mut self, object: Object<T>) -> bool {
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
