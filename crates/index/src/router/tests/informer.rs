//! An informer of one kind: a store, and the queue of a feed, which a test empties when it likes. Events of one object
//! that wait are merged, as a real informer's.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use capi::ObjectKey;
use serde_json::Value;
use shared_informer::{Event, Handler, Interner, Object, Projection};

use super::{super::*, model::Model};
use crate::Feed;

/// An informer of any kind.
pub(super) trait Informer {
    /// Adds or updates an object. One with another uid replaces the one under its name.
    fn set(&mut self, json: &Value);
    fn delete(&mut self, key: &ObjectKey);
    fn replay(&mut self, cluster: &ObjectKey, mark: u64);
    /// Lists again, with a feed that replaces the one before; what waited for that one is lost.
    fn relist(&mut self, model: &mut Model);
    /// Delivers the next event, to the model as well; returns false if there is none.
    fn deliver(&mut self, model: &mut Model) -> bool;
}

enum Waiting<T> {
    Event(Event<T>),
    Mark(u64),
    Synced,
}

pub(super) struct Fake<T: Routed> {
    kind: T::Kind,
    projection: Projection<T>,
    router: Arc<Router>,
    store: BTreeMap<ObjectKey, Arc<Object<T>>>,
    queue: Vec<Waiting<T>>,
    feed: Feed<T, Router>,
}

impl<T: Routed> Fake<T> {
    pub(super) fn new(router: &Arc<Router>, kind: T::Kind, projection: Projection<T>) -> Self {
        let feed = Feed::new(Arc::clone(router), kind.clone(), HashSet::new());
        Self { kind, projection, router: Arc::clone(router), store: BTreeMap::new(), queue: Vec::new(), feed }
    }

    fn push(&mut self, event: Event<T>) {
        let key = event.key();
        let of_key = |waiting: &Waiting<T>| matches!(waiting, Waiting::Event(event) if event.key() == key);
        let Some(place) = self.queue.iter().rposition(of_key) else { return self.queue.push(Waiting::Event(event)) };
        let Waiting::Event(waiting) = self.queue.remove(place) else { unreachable!() };
        let merged = match (waiting, event) {
            (Event::Added { .. }, Event::Deleted { .. }) => return,
            (Event::Added { initial, .. }, Event::Updated { new: object, .. }) => Event::Added { object, initial },
            (Event::Updated { old, .. }, Event::Updated { new, .. }) => Event::Updated { old, new },
            (Event::Updated { .. }, deleted @ Event::Deleted { .. }) => deleted,
            (deleted @ Event::Deleted { .. }, added @ Event::Added { .. }) => {
                self.queue.insert(place, Waiting::Event(added));
                deleted
            }
            (waiting, event) => panic!("{:?} after {:?}", event.key(), waiting.key()),
        };
        self.queue.insert(place, Waiting::Event(merged));
    }
}

impl<T: Routed> Informer for Fake<T> {
    fn set(&mut self, json: &Value) {
        let object = Arc::new(self.projection.read(&json.to_string(), &Interner::default()).unwrap());
        match self.store.insert(object.key(), Arc::clone(&object)) {
            Some(old) if old.metadata.uid == object.metadata.uid => self.push(Event::Updated { old, new: object }),
            old => {
                if let Some(last) = old {
                    self.push(Event::Deleted { last, found_by_relist: false });
                }
                self.push(Event::Added { object, initial: false });
            }
        }
    }

    fn delete(&mut self, key: &ObjectKey) {
        if let Some(last) = self.store.remove(key) {
            self.push(Event::Deleted { last, found_by_relist: false });
        }
    }

    fn replay(&mut self, cluster: &ObjectKey, mark: u64) {
        let may_be = |object: &&Arc<Object<T>>| {
            object.metadata.key.namespace == cluster.namespace && T::tag_of(object).may_be(&cluster.name)
        };
        let objects: Vec<_> = self.store.values().filter(may_be).cloned().collect();
        for object in objects {
            self.push(Event::Updated { old: Arc::clone(&object), new: object });
        }
        self.queue.push(Waiting::Mark(mark));
    }

    fn relist(&mut self, model: &mut Model) {
        self.feed = Feed::new(Arc::clone(&self.router), self.kind.clone(), self.feed.keys().take());
        self.queue.clear();
        for object in self.store.values() {
            self.queue.push(Waiting::Event(Event::Added { object: Arc::clone(object), initial: true }));
        }
        self.queue.push(Waiting::Synced);
        self.queue.extend(Sink::<T>::awaited(&*self.router, &self.kind).into_iter().map(Waiting::Mark));
        model.list(T::routed(&self.kind));
    }

    fn deliver(&mut self, model: &mut Model) -> bool {
        if self.queue.is_empty() {
            return false;
        }
        let kind = T::routed(&self.kind);
        match self.queue.remove(0) {
            Waiting::Event(event) => {
                let object = event.object();
                match (&event, &object.content) {
                    (Event::Deleted { .. }, _) => model.delete(&(kind, object.key())),
                    (_, Ok(content)) => model.put(kind, &object.metadata, Ok(T::present(&self.kind, content))),
                    (_, Err(error)) => {
                        let change = T::undecodable(&self.kind, object.key(), error.message().clone());
                        model.put(kind, &object.metadata, Err(change));
                    }
                }
                self.feed.handle(event);
            }
            Waiting::Mark(mark) => self.feed.replayed(mark),
            Waiting::Synced => {
                model.listed(kind);
                self.feed.synced();
            }
        }
        true
    }
}
