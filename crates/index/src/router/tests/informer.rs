//! Informers of any kind, whose events a model is shown as they are delivered.

use rules::capi::ObjectKey;
use serde_json::Value;
use shared_informer::Event;

use super::{super::*, model::Model};
use crate::objects::routed::{FakeInformer, Waiting};

/// An informer of any kind.
pub(super) trait Informer {
    fn set(&mut self, json: &Value);
    fn delete(&mut self, key: &ObjectKey);
    fn keys_in(&self, namespace: &str) -> Vec<ObjectKey>;
    /// Fills the index of a Cluster with one object, as it is now.
    fn fill(&self, cluster: &ObjectKey, key: &ObjectKey, model: &mut Model, router: &Router);
    fn relist(&mut self, model: &mut Model);
    /// Delivers the next event, to the model as well; returns false if there is none.
    fn deliver(&mut self, model: &mut Model) -> bool;
}

impl<T: Routed> Informer for FakeInformer<T, Router> {
    fn set(&mut self, json: &Value) {
        self.set(json);
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.delete(key);
    }

    fn keys_in(&self, namespace: &str) -> Vec<ObjectKey> {
        self.keys_in(namespace)
    }

    fn fill(&self, cluster: &ObjectKey, key: &ObjectKey, model: &mut Model, router: &Router) {
        let kind = self.kind();
        if let Some(object) = self.current(key) {
            model.fill(cluster, T::routed(kind), &object.metadata, object.decoded().map(|it| T::present(kind, it)));
        }
        router.fill(kind, &[cluster.name.clone()].into(), &[key.clone()], |key| self.current(key));
    }

    fn relist(&mut self, model: &mut Model) {
        self.relist();
        model.list(T::routed(self.kind()));
    }

    fn deliver(&mut self, model: &mut Model) -> bool {
        let of = self.kind().clone();
        let kind = T::routed(&of);
        self.deliver(|waiting| match waiting {
            Waiting::Event(event) => {
                let object = event.object();
                match (event, &object.content) {
                    (Event::Deleted { .. }, _) => model.delete(&(kind, object.key())),
                    (_, Ok(content)) => model.put(kind, &object.metadata, Ok(T::present(&of, content))),
                    (_, Err(error)) => {
                        let change = T::undecodable(&of, object.key(), error.message().clone());
                        model.put(kind, &object.metadata, Err(change));
                    }
                }
            }
            Waiting::Synced => model.listed(kind),
        })
    }
}
