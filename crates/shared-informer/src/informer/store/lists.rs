//! The lists of a store: their pages, their ends, and the removal of what an unfinished one has brought.

use std::{num::NonZeroU32, sync::Arc};

use arcstr::ArcStr;

use super::{Listing, Store};
use crate::{
    informer::{event::Event, failure::Failure, memory::Amount},
    object::Object,
};

impl<T> Store<T> {
    /// Begins a list of one scope (one namespace, or all).
    pub(in crate::informer) fn begin_list(&self, first: bool, namespace: Option<&str>) -> Listing {
        let mut state = self.state.write();
        state.listings = state.listings.saturating_add(1);
        state.tombstones.forget(namespace);
        Listing { number: state.listings, first }
    }

    /// Removes the objects that were added since the last complete list of a scope: a server whose lists never end,
    /// or contain other objects each time, must not fill the memory.
    pub(in crate::informer) fn drop_unlisted(&self, namespace: Option<&str>) {
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
    pub(in crate::informer) fn apply_page(
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
    pub(in crate::informer) fn end_list(&self, listing: Listing, namespace: Option<&str>) -> bool {
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
