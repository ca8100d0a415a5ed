//! Informers of any kind.

use std::{collections::HashSet, sync::Arc};

use rules::capi::ObjectKey;
use serde_json::Value;
use shared_informer::{Event, Handler as _};

use super::super::sink::FleetSink;
use index::{Feed, Index, Routed, objects::routed::FakeInformer};

/// An informer of any kind.
pub(super) trait Informer {
    fn set(&mut self, json: &Value);
    fn delete(&mut self, key: &ObjectKey);
    fn replay(&mut self, cluster: &ObjectKey, mark: u64);
    fn relist(&mut self);
    fn deliver(&mut self) -> bool;
    /// Adds the objects with these keys to an index that knows no other Cluster.
    fn show(&self, keys: &HashSet<ObjectKey>, index: &Arc<Index>);
}

impl<T: Routed> Informer for FakeInformer<T, FleetSink> {
    fn set(&mut self, json: &Value) {
        self.set(json);
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.delete(key);
    }

    fn replay(&mut self, cluster: &ObjectKey, mark: u64) {
        self.replay(cluster, mark);
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
