//! Read access to an informer's objects, in all namespaces or in one. Must never change anything, nor keep an
//! informer alive.

use std::{fmt, sync::Arc};

use arcstr::ArcStr;

use super::{index::UnknownIndex, store::Store};
use crate::{identity::ObjectKey, object::Object};

/// Read access to an informer's objects. Cheap to clone and to pass on: it doesn't keep the informer alive. After the
/// informer has stopped, its last objects stay readable.
pub struct Lister<T> {
    pub(super) store: Arc<Store<T>>,
}

impl<T> Lister<T> {
    /// Returns the object under a key.
    #[must_use]
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<Object<T>>> {
        self.store.get(key)
    }

    /// Returns the object under a key as of this resource version or later. The version may be that of an object of
    /// another kind if one etcd stores both kinds, as it does all custom resources of an API server: it numbers the
    /// writes of all kinds.
    #[must_use]
    pub fn as_of(&self, key: &ObjectKey, version: u64) -> AsOf<T> {
        // The version is read before the store, which can then only be more recent.
        if self.store.reached(&key.namespace).is_none_or(|reached| reached < version) {
            return AsOf::Behind;
        }
        self.store.get(key).map_or(AsOf::Absent, AsOf::Present)
    }

    /// Returns all objects, ordered by namespace and name.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<Object<T>>> {
        self.store.list()
    }

    /// Returns the objects that an index has under a value.
    pub fn by_index(&self, name: &str, value: &str) -> Result<Vec<Arc<Object<T>>>, UnknownIndex> {
        self.store.by_index(name, value)
    }

    /// Returns a lister for one namespace.
    pub fn namespace(&self, namespace: impl Into<ArcStr>) -> NamespaceLister<T> {
        NamespaceLister { lister: self.clone(), namespace: namespace.into() }
    }
}

/// The state of an object as of a resource version or later, if the informer knows it.
#[derive(Debug)]
pub enum AsOf<T> {
    /// The object exists, in this state.
    Present(Arc<Object<T>>),
    /// The object doesn't exist.
    Absent,
    /// Unknown: the informer hasn't reached that version yet, is listing again, or has versions that aren't numbers.
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

/// Read access to an informer's objects in one namespace.
pub struct NamespaceLister<T> {
    lister: Lister<T>,
    namespace: ArcStr,
}

impl<T> NamespaceLister<T> {
    /// Returns the object with that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<Object<T>>> {
        self.lister.get(&ObjectKey::new(self.namespace.clone(), name))
    }

    /// Returns all objects of the namespace, ordered by name.
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
