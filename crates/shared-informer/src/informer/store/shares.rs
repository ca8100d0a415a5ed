//! The amounts of each namespace, where namespaces have a limit: a tenant who makes ever more or ever larger objects
//! must take nothing from the others. An object beyond the limit is left out. Must cost nothing without a limit.

use std::{collections::HashMap, hash::BuildHasher as _};

use arcstr::ArcStr;

use super::{Listing, State};
use crate::{
    identity::ObjectKey,
    informer::{
        event::Event,
        memory::{Amount, memory_of},
        progress::Progress,
        settings::NamespaceLimit,
    },
    object::Object,
};

/// The amount of each namespace; nothing without a limit.
#[derive(Debug, Default)]
pub(super) struct Shares {
    limit: Option<NamespaceLimit>,
    stored: HashMap<ArcStr, Amount>,
    /// The amount of all that was left out so far, repetitions included.
    pub(super) left_out: Amount,
}

impl Shares {
    pub(super) fn new(limit: Option<NamespaceLimit>) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Counts an object of so many bytes.
    pub(super) fn add(&mut self, namespace: &ArcStr, bytes: usize) {
        if self.limit.is_some() {
            *self.stored.entry(namespace.clone()).or_default() += Amount { objects: 1, bytes };
        }
    }

    /// Counts an object of so many bytes no more.
    pub(super) fn subtract(&mut self, namespace: &ArcStr, bytes: usize) {
        let Some(stored) = self.stored.get_mut(namespace) else { return };
        *stored = stored.without(Amount { objects: 1, bytes });
        if stored.objects == 0 {
            self.stored.remove(namespace);
        }
    }

    /// Returns true if a state of an object has a place beside the others of its namespace. `before` is the memory of
    /// the stored state. A stored object may get smaller in any case.
    pub(super) fn have_place(&self, namespace: &ArcStr, before: Option<usize>, after: usize) -> bool {
        let Some(limit) = self.limit else { return true };
        if before.is_some_and(|before| after <= before) {
            return true;
        }
        let stored = self.stored.get(namespace).copied().unwrap_or_default();
        let objects = stored.objects + usize::from(before.is_none());
        let bytes = stored.bytes + after - before.unwrap_or_default();
        objects <= limit.objects && bytes <= limit.bytes
    }

    /// Returns true if namespaces have a limit.
    fn have_limit(&self) -> bool {
        self.limit.is_some()
    }
}

#[cfg(test)]
impl<T> super::Store<T> {
    /// Returns the amount of a namespace, if namespaces have a limit.
    pub(in crate::informer) fn share_of(&self, namespace: &str) -> Amount {
        self.state.read().shares.stored.get(namespace).copied().unwrap_or_default()
    }
}

impl<T> State<T> {
    /// Leaves a state of an object out if its namespace has no place for it, and returns true then. An earlier state
    /// stays, as that of a known object, but not that of another object of this name.
    pub(super) fn leaves_out(&mut self, object: &Object<T>, listing: Option<Listing>, progress: &Progress) -> bool {
        if !self.shares.have_limit() {
            return false;
        }
        let key = &object.metadata.key;
        let after = memory_of(&object.metadata, object.content.as_deref(), self.bytes_of);
        let stored = self.stored(key);
        let before = stored.map(|stored| memory_of(stored.metadata(self.identity), stored.content(), self.bytes_of));
        if self.shares.have_place(&key.namespace, before, after) {
            return false;
        }
        let is_another = stored.is_some_and(|stored| stored.metadata(self.identity).uid != object.metadata.uid);
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
        } else if let Some(listing) = listing {
            self.note_listed(key, listing);
        }
        true
    }

    /// Notes that a list contains a stored object.
    fn note_listed(&mut self, ObjectKey { namespace, name }: &ObjectKey, listing: Listing) {
        let Some(names) = self.objects.get_mut(namespace) else { return };
        let (hash, identity) = (self.hashing.hash_one(&**name), self.identity);
        if let Some(stored) = names.find_mut(hash, |stored| stored.has_name(name, identity)) {
            stored.set_last_list(listing.number);
        }
    }
}
