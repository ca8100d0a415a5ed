//! A set of objects by their own identity, as a table of pointers, so that a hundred thousand Machines need no second
//! copy of their keys. Must never hold two objects with one identity.
//!
//! `iddqd` isn't used: its maps keep the objects in a list and their positions in a table, a second word for each
//! object.

use std::{
    hash::{BuildHasher, Hash, RandomState},
    sync::Arc,
};

use hashbrown::{HashTable, hash_table::Entry};

use capi::{Machine, Node, ObjectKey};

/// An object that contains its key.
pub(super) trait Identified {
    /// The key of the object.
    type Key: Eq + Hash + ?Sized;

    /// Returns the key.
    fn key(&self) -> &Self::Key;
}

impl Identified for Machine {
    type Key = ObjectKey;

    fn key(&self) -> &ObjectKey {
        &self.meta.key
    }
}

impl Identified for Node {
    type Key = str;

    fn key(&self) -> &str {
        &self.meta.key.name
    }
}

/// A set of objects with distinct identities.
#[derive(Debug)]
pub(super) struct KeyedSet<T> {
    table: HashTable<Arc<T>>,
    hashing: RandomState,
}

impl<T> Default for KeyedSet<T> {
    fn default() -> Self {
        Self { table: HashTable::new(), hashing: RandomState::new() }
    }
}

impl<T: Identified> KeyedSet<T> {
    /// Returns the object with this identity.
    pub(super) fn get(&self, key: &T::Key) -> Option<&Arc<T>> {
        self.table.find(self.hashing.hash_one(key), |held| held.key() == key)
    }

    /// Inserts an object, and returns the one that it replaces.
    pub(super) fn insert(&mut self, object: Arc<T>) -> Option<Arc<T>> {
        let hash = self.hashing.hash_one(object.key());
        let rehash = |held: &Arc<T>| self.hashing.hash_one(held.key());
        match self.table.entry(hash, |held| held.key() == object.key(), rehash) {
            Entry::Occupied(mut place) => Some(std::mem::replace(place.get_mut(), object)),
            Entry::Vacant(place) => {
                place.insert(object);
                None
            }
        }
    }

    /// Removes and returns the object with this identity.
    pub(super) fn remove(&mut self, key: &T::Key) -> Option<Arc<T>> {
        let place = self.table.find_entry(self.hashing.hash_one(key), |held| held.key() == key).ok()?;
        Some(place.remove().0)
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Iterates over all objects.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<T>> {
        self.table.iter()
    }
}
