//! An informer of one kind: a store, and the queue of a feed, which a test empties when it likes.

use std::{
    collections::{BTreeMap, HashSet, VecDeque},
    sync::Arc,
};

use capi::ObjectKey;
use serde_json::Value;
use shared_informer::{Event, Handler as _, Interner, Object, Projection};

use super::super::sink::FleetSink;
use index::{Feed, Index, Routed, Sink};

/// An informer of any kind.
pub(super) trait Informer {
    /// Adds or updates an object. One with another uid replaces the one under its name.
    fn set(&mut self, json: &Value);
    fn delete(&mut self, key: &ObjectKey);
    /// Replays the objects that may be of a Cluster, and then the mark.
    fn replay(&mut self, cluster: &ObjectKey, mark: u64);
    /// Lists again, with a feed that replaces the one before; what waited for that one is lost.
    fn relist(&mut self);
    /// Delivers the next event; returns false if there is none.
    fn deliver(&mut self) -> bool;
    /// Adds the objects with these keys to an index that knows no other Cluster.
    fn show(&self, keys: &HashSet<ObjectKey>, index: &Arc<Index>);
}

enum Waiting<T> {
    Event(Event<T>),
    Mark(u64),
    Synced,
}

pub(super) struct Fake<T: Routed> {
    kind: T::Kind,
    projection: Projection<T>,
    sink: Arc<FleetSink>,
    store: BTreeMap<ObjectKey, Arc<Object<T>>>,
    queue: VecDeque<Waiting<T>>,
    feed: Feed<T, FleetSink>,
}

impl<T: Routed> Fake<T> {
    pub(super) fn new(sink: &Arc<FleetSink>, kind: T::Kind, projection: Projection<T>) -> Self {
        let feed = Feed::new(Arc::clone(sink), kind.clone(), HashSet::new());
        Self { kind, projection, sink: Arc::clone(sink), store: BTreeMap::new(), queue: VecDeque::new(), feed }
    }
}

impl<T: Routed> Informer for Fake<T> {
    fn set(&mut self, json: &Value) {
        let object = Arc::new(self.projection.read(&json.to_string(), &Interner::default()).unwrap());
        let event = match self.store.insert(object.key(), Arc::clone(&object)) {
            Some(old) if old.metadata.uid == object.metadata.uid => Event::Updated { old, new: object },
            old => {
                let gone = old.map(|last| Waiting::Event(Event::Deleted { last, found_by_relist: false }));
                self.queue.extend(gone);
                Event::Added { object, initial: false }
            }
        };
        self.queue.push_back(Waiting::Event(event));
    }

    fn delete(&mut self, key: &ObjectKey) {
        if let Some(last) = self.store.remove(key) {
            self.queue.push_back(Waiting::Event(Event::Deleted { last, found_by_relist: false }));
        }
    }

    fn replay(&mut self, cluster: &ObjectKey, mark: u64) {
        let may_be = |object: &&Arc<Object<T>>| {
            object.metadata.key.namespace == cluster.namespace && T::tag_of(object).may_be(&cluster.name)
        };
        for object in self.store.values().filter(may_be) {
            let (old, new) = (Arc::clone(object), Arc::clone(object));
            self.queue.push_back(Waiting::Event(Event::Updated { old, new }));
        }
        self.queue.push_back(Waiting::Mark(mark));
    }

    fn relist(&mut self) {
        self.feed = Feed::new(Arc::clone(&self.sink), self.kind.clone(), self.feed.keys().take());
        self.queue.clear();
        for object in self.store.values() {
            self.queue.push_back(Waiting::Event(Event::Added { object: Arc::clone(object), initial: true }));
        }
        self.queue.push_back(Waiting::Synced);
        self.queue.extend(Sink::<T>::awaited(&*self.sink, &self.kind).into_iter().map(Waiting::Mark));
    }

    fn deliver(&mut self) -> bool {
        let Some(waiting) = self.queue.pop_front() else { return false };
        match waiting {
            Waiting::Event(event) => self.feed.handle(event),
            Waiting::Mark(mark) => self.feed.replayed(mark),
            Waiting::Synced => self.feed.synced(),
        }
        true
    }

    fn show(&self, keys: &HashSet<ObjectKey>, index: &Arc<Index>) {
        let mut feed = Feed::<T, Index>::new(Arc::clone(index), self.kind.clone(), HashSet::new());
        for object in keys.iter().map(|key| &self.store[key]) {
            feed.handle(Event::Added { object: Arc::clone(object), initial: true });
        }
    }
}
