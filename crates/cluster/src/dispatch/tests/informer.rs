//! Informers of any kind.

use std::{collections::HashSet, sync::Arc};

use rules::capi::ObjectKey;
use serde_json::Value;
use shared_informer::{Event, Handler as _};

use super::{
    super::{ByCluster, CoreObject},
    objects::FakeInformer,
};
use index::{Feed, Index};

/// An informer of any kind.
pub(super) trait Informer {
    fn set(&mut self, json: &Value);
    fn delete(&mut self, key: &ObjectKey);
    fn keys_in(&self, namespace: &str) -> Vec<ObjectKey>;
    /// Fills the index of a Cluster with one object, as it is now.
    fn fill(&self, cluster: &ObjectKey, key: &ObjectKey, sink: &ByCluster);
    fn relist(&mut self);
    fn deliver(&mut self) -> bool;
    /// Adds the objects with these keys to an index that knows no other Cluster.
    fn show(&self, keys: &HashSet<ObjectKey>, index: &Arc<Index>);
}

impl<T: CoreObject> Informer for FakeInformer<T, ByCluster> {
    fn set(&mut self, json: &Value) {
        self.set(json);
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.delete(key);
    }

    fn keys_in(&self, namespace: &str) -> Vec<ObjectKey> {
        self.keys_in(namespace)
    }

    fn fill(&self, cluster: &ObjectKey, key: &ObjectKey, sink: &ByCluster) {
        sink.fill(self.kind(), &[cluster.name.clone()].into(), std::slice::from_ref(key), |key| self.current(key));
    }

    fn relist(&mut self) {
        self.relist();
    }

    fn deliver(&mut self) -> bool {
        self.deliver(|_| ())
    }

    fn show(&self, keys: &HashSet<ObjectKey>, index: &Arc<Index>) {
        let mut feed = Feed::<T, Index>::new(Arc::clone(index), self.kind().clone(), HashSet::new());
        for object in keys.iter().map(|key| self.object(key)) {
            feed.handle(Event::Added { object: Arc::clone(object), initial: true });
        }
    }
}
