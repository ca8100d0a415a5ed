//! Secondary indexes of a store, by any function from an object to texts. Must never hold an object that the store
//! doesn't.

use std::{
    collections::{BTreeMap, HashMap},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use crate::{identity::ObjectKey, object::Object};

/// A function that returns the values under which an object is indexed.
pub(super) type IndexFn<T> = dyn Fn(&Object<T>) -> Vec<String> + Send + Sync;

/// The error for an index that a store doesn't have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown index {0:?}")]
pub struct UnknownIndex(pub String);

/// Objects by the values that one function returns for them.
pub(super) struct Index<T> {
    values_of: Box<IndexFn<T>>,
    objects: HashMap<String, BTreeMap<ObjectKey, Arc<Object<T>>>>,
}

impl<T> Index<T> {
    pub(super) fn new(values: Box<IndexFn<T>>) -> Self {
        Self { values_of: values, objects: HashMap::new() }
    }

    pub(super) fn insert(&mut self, object: &Arc<Object<T>>) {
        for value in self.values_of(object) {
            self.objects.entry(value).or_default().insert(object.key(), Arc::clone(object));
        }
    }

    pub(super) fn remove(&mut self, object: &Object<T>) {
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
    pub(super) fn get(&self, value: &str) -> Vec<Arc<Object<T>>> {
        self.objects.get(value).map(|objects| objects.values().cloned().collect()).unwrap_or_default()
    }

    /// Iterates over all values.
    pub(super) fn values(&self) -> impl Iterator<Item = &str> {
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
