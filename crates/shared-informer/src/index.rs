//! Secondary indexes of a store: by any function of an object, over values that are texts. Must never hold an object that
//! the store doesn't.

use std::{
    collections::{BTreeMap, HashMap},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use super::{identity::ObjectKey, object::Object};

/// The values under which an object is found.
pub(super) type IndexFn<T> = dyn Fn(&Object<T>) -> Vec<String> + Send + Sync;

/// A store was asked for an index that it doesn't have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown index {0:?}")]
pub struct UnknownIndex(pub String);

/// Objects by the values that one function gives them.
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

    /// The objects under a value, in the order of their keys.
    pub(super) fn get(&self, value: &str) -> Vec<Arc<Object<T>>> {
        self.objects.get(value).map(|objects| objects.values().cloned().collect()).unwrap_or_default()
    }

    /// The values that there are.
    pub(super) fn values(&self) -> impl Iterator<Item = &str> {
        self.objects.keys().map(String::as_str)
    }

    /// An index function that panics gives no values: the watch must go on.
    fn values_of(&self, object: &Object<T>) -> Vec<String> {
        catch_unwind(AssertUnwindSafe(|| (self.values_of)(object))).unwrap_or_else(|_| {
            tracing::error!(object = %object.key(), "an index function panicked");
            Vec::new()
        })
    }
}
