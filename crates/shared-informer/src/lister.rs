//! Reading what an informer holds, in all namespaces or in one. Must never change anything, nor keep an informer alive.

use std::{fmt, sync::Arc};

use arcstr::ArcStr;

use super::{identity::ObjectKey, index::UnknownIndex, object::Object, store::Store};

/// Reads what an informer holds. Cheap to clone and to hand on: it doesn't keep the informer alive. Once that has ended,
/// what it held last stays readable.
pub struct Lister<T> {
    pub(super) store: Arc<Store<T>>,
}

impl<T> Lister<T> {
    /// The object under a key.
    #[must_use]
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<Object<T>>> {
        self.store.get(key)
    }

    /// The object under a key as it was at this resource version or later. The version may be that of another kind
    /// where both are kept in one place, as all custom resources of an API server are: there a resource version counts
    /// every write.
    #[must_use]
    pub fn as_of(&self, key: &ObjectKey, version: u64) -> AsOf<T> {
        // Asked for first: the store may be further by the time it is read, never less far.
        if self.store.reached(&key.namespace).is_none_or(|reached| reached < version) {
            return AsOf::Behind;
        }
        self.store.get(key).map_or(AsOf::Absent, AsOf::Held)
    }

    /// All objects, in the order of namespace and name.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<Object<T>>> {
        self.store.list()
    }

    /// The objects that an index has under a value.
    pub fn by_index(&self, name: &str, value: &str) -> Result<Vec<Arc<Object<T>>>, UnknownIndex> {
        self.store.by_index(name, value)
    }

    /// The same for one namespace.
    pub fn namespace(&self, namespace: impl Into<ArcStr>) -> NamespaceLister<T> {
        NamespaceLister { lister: self.clone(), namespace: namespace.into() }
    }
}

/// The state of an object at a resource version or later, as far as the informer knows it.
#[derive(Debug)]
pub enum AsOf<T> {
    /// It was there, and so it was.
    Held(Arc<Object<T>>),
    /// It wasn't there.
    Absent,
    /// Nothing: the informer hasn't come to that version yet, is listing anew, or has versions that are no numbers.
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

/// Reads what an informer holds of one namespace.
pub struct NamespaceLister<T> {
    lister: Lister<T>,
    namespace: ArcStr,
}

impl<T> NamespaceLister<T> {
    /// The object of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<Object<T>>> {
        self.lister.get(&ObjectKey::new(self.namespace.clone(), name))
    }

    /// All objects of the namespace, in the order of their names.
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
