//! The parts of a list that pages and streamed lists share: its begin, its limits and its end. A list that has failed
//! must leave no more behind than may be stored.

use super::{
    failure::Failure,
    memory::{Amount, memory_of},
    reflector::Reflector,
    store::Listing,
};
use crate::object::Object;

/// The maximum number of a list's objects that are left out of their namespaces, as a multiple of those that are kept.
const MAX_LEFT_OUT: usize = 16;

impl<T: Send + Sync + 'static> Reflector<T> {
    pub(super) fn begin_list(&self) -> Listing {
        self.store.begin_list(self.first, self.scope.namespace.as_deref())
    }

    /// Returns the memory of these objects.
    pub(super) fn bytes_of<'a>(&self, objects: impl IntoIterator<Item = &'a Object<T>>) -> usize {
        let bytes_of = self.decoder.projection.bytes_of;
        let bytes = |object: &Object<T>| memory_of(&object.metadata, object.content.as_deref(), bytes_of);
        objects.into_iter().map(bytes).sum()
    }

    /// Fails a list that exceeds a limit, repeated objects included. The store may hold as much again: the objects that
    /// the list hasn't come to. What is left out has a limit of its own, so that no list is endless.
    pub(super) fn check(&self, listing: Listing, received: Amount, left_out: Amount) -> Result<(), Failure> {
        received.without(left_out).check(&self.settings)?;
        Amount { objects: left_out.objects / MAX_LEFT_OUT, bytes: 0 }.check(&self.settings)?;
        let Amount { bytes, .. } = self.store.amount();
        Amount { objects: 0, bytes: bytes / 2 }.check(&self.settings)?;
        // A list that has brought nothing beside the known objects isn't the one that others' bytes are due to.
        if bytes > listing.bytes_before { self.settings.check_shared(0) } else { Ok(()) }
    }

    /// Drops the new objects of a list that has failed, if more are stored than may be: before the pause that follows,
    /// and not at the next list.
    pub(super) fn release(&self) {
        if self.store.amount().check(&self.settings).and_then(|()| self.settings.check_shared(0)).is_err() {
            self.store.drop_unlisted(self.scope.namespace.as_deref());
        }
    }

    pub(super) fn end_list(&mut self, listing: Listing) {
        self.progress.list_ended(self.position);
        self.first = false;
        let namespace = self.scope.namespace.as_deref();
        if self.store.end_list(listing, namespace) {
            tracing::debug!(resource = self.progress.resource(), objects = self.store.len(), "informer synced");
        }
    }
}
