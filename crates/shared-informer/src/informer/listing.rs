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

    /// Fails a list that exceeds a limit, repeated objects included. What is left out has a limit of its own, so that
    /// no list is endless. The store checks by itself what it holds besides.
    pub(super) fn check(&self, received: Amount, left_out: Amount) -> Result<(), Failure> {
        received.without(left_out).check(&self.settings)?;
        Amount { objects: left_out.objects / MAX_LEFT_OUT, bytes: 0 }.check(&self.settings)
    }

    /// Drops the new objects of a list that has failed, if more are stored than may be, or if the limit that it has
    /// reached is shared: before the pause that follows, and not at the next list.
    pub(super) fn release(&self, failure: &Failure) {
        let is_shared = failure.is_beyond_limit() && self.settings.shared_limit.is_some();
        if is_shared || self.store.amount().check(&self.settings).is_err() {
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
