//! Objects that name their Cluster in any way, and an informer of one kind whose events a test delivers when it likes.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use rules::capi::{ObjectKey, ScalableKind};
use serde_json::{Value, json};
use shared_informer::{Event, Handler as _, Interner, Object, Projection};

use super::super::{ByCluster, CoreKind, CoreObject};
use index::{Feed, Index, IndexFeed, Sink, objects::merge};

pub(super) const CLUSTERS: CoreKind = CoreKind::Cluster;
pub(super) const DEPLOYMENTS: CoreKind = CoreKind::Scalable(ScalableKind::MachineDeployment);
pub(super) const SETS: CoreKind = CoreKind::Scalable(ScalableKind::MachineSet);
pub(super) const POOLS: CoreKind = CoreKind::Scalable(ScalableKind::MachinePool);
pub(super) const MACHINES: CoreKind = CoreKind::Machine;
pub(super) const KINDS: [CoreKind; 5] = [CLUSTERS, DEPLOYMENTS, SETS, POOLS, MACHINES];

pub(super) type Id = (CoreKind, ObjectKey);

/// The place of an object's Cluster in it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Names<'a> {
    InSpec(&'a str),
    ByLabel(&'a str),
    /// Nowhere; it may have an owner.
    Owner(Option<(ScalableKind, &'a str)>),
}

impl Names<'static> {
    /// Returns one of the ways in which an object of this kind names its Cluster.
    pub(super) fn choose(kind: CoreKind, choice: u8) -> Self {
        use ScalableKind::{MachineDeployment, MachinePool, MachineSet};
        let owner = match (kind, choice % 3) {
            (CoreKind::Machine, 0) => Some((MachineSet, "o0")),
            (CoreKind::Machine, 1) => Some((MachinePool, "o1")),
            (CoreKind::Scalable(MachineSet), 0 | 1) => Some((MachineDeployment, "o0")),
            (CoreKind::Machine | CoreKind::Cluster | CoreKind::Scalable(_), _) => None,
        };
        match choice / 3 % 6 {
            0 | 1 => Self::InSpec("stage"),
            2 => Self::InSpec("other"),
            3 => Self::ByLabel("stage"),
            _ => Self::Owner(owner),
        }
    }
}

/// Returns an object that decodes or doesn't. Its content changes with its version.
pub(super) fn routed((kind, key): &Id, uid: u64, version: u64, names: Names<'_>, decodes: bool) -> Value {
    let mut object = json!({
        "metadata": {
            "namespace": &*key.namespace, "name": &*key.name,
            "uid": uid.to_string(), "resourceVersion": version.to_string(),
            "annotations": {
                "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": "0",
                "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": "9",
            },
        },
    });
    let content = match (kind, decodes) {
        (CoreKind::Cluster, false) => json!({"spec": {"paused": "odd"}}),
        (CoreKind::Scalable(_), false) => json!({"spec": {"replicas": "odd"}}),
        (CoreKind::Machine, false) => json!({"status": {"phase": 5}}),
        (CoreKind::Cluster, true) => json!({"spec": {"paused": version % 5 == 4}}),
        (CoreKind::Scalable(_), true) => json!({"spec": {"replicas": 1 + version % 2}}),
        (CoreKind::Machine, true) => json!({"spec": {"providerID": format!("cloud:///{}", version % 4)}}),
    };
    merge(&mut object, &content);
    let names = match names {
        Names::InSpec(name) => json!({"spec": {"clusterName": name}}),
        Names::ByLabel(name) => json!({"metadata": {"labels": {"cluster.x-k8s.io/cluster-name": name}}}),
        Names::Owner(None) => json!({}),
        Names::Owner(Some((kind, name))) => json!({"metadata": {"ownerReferences": [
            {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": kind.as_str(), "name": name, "controller": true},
        ]}}),
    };
    merge(&mut object, &names);
    object
}

/// A delivery of an informer that waits.
enum Waiting<T> {
    Event(Event<T>),
    Synced,
}

/// An informer of one kind: a store, and the queue of a feed. Events of one object that wait are merged, as a real
/// informer's.
pub(super) struct FakeInformer<T: IndexFeed, S: Sink<T>> {
    kind: T::Kind,
    projection: Projection<T>,
    sink: Arc<S>,
    store: BTreeMap<ObjectKey, Arc<Object<T>>>,
    queue: Vec<Waiting<T>>,
    feed: Feed<T, S>,
}

impl<T: IndexFeed, S: Sink<T>> FakeInformer<T, S> {
    pub(super) fn new(sink: &Arc<S>, kind: T::Kind, projection: Projection<T>) -> Self {
        let feed = Feed::new(Arc::clone(sink), kind.clone(), HashSet::new());
        Self { kind, projection, sink: Arc::clone(sink), store: BTreeMap::new(), queue: Vec::new(), feed }
    }

    /// Adds or updates an object. One with another uid replaces the one under its name.
    pub(super) fn set(&mut self, json: &Value) {
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

    pub(super) fn delete(&mut self, key: &ObjectKey) {
        if let Some(last) = self.store.remove(key) {
            self.push(Event::Deleted { last, found_by_relist: false });
        }
    }

    /// Returns the keys of the objects of a namespace.
    pub(super) fn keys_in(&self, namespace: &str) -> Vec<ObjectKey> {
        self.store.keys().filter(|key| *key.namespace == *namespace).cloned().collect()
    }

    /// Lists again, with a feed that replaces the one before; what waited for that one is lost.
    pub(super) fn relist(&mut self) {
        self.feed = Feed::new(Arc::clone(&self.sink), self.kind.clone(), self.feed.keys().take());
        self.queue.clear();
        for object in self.store.values() {
            self.queue.push(Waiting::Event(Event::Added { object: Arc::clone(object), initial: true }));
        }
        self.queue.push(Waiting::Synced);
    }

    /// Delivers the next event; returns false if there is none.
    pub(super) fn deliver(&mut self) -> bool {
        if self.queue.is_empty() {
            return false;
        }
        let waiting = self.queue.remove(0);
        match waiting {
            Waiting::Event(event) => self.feed.handle(event),
            Waiting::Synced => self.feed.synced(),
        }
        true
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
        sink.fill(&self.kind, &[cluster.name.clone()].into(), std::slice::from_ref(key), |key| {
            self.store.get(key).cloned()
        });
    }

    fn relist(&mut self) {
        self.relist();
    }

    fn deliver(&mut self) -> bool {
        self.deliver()
    }

    fn show(&self, keys: &HashSet<ObjectKey>, index: &Arc<Index>) {
        let mut feed = Feed::<T, Index>::new(Arc::clone(index), self.kind.clone(), HashSet::new());
        for object in keys.iter().map(|key| &self.store[key]) {
            feed.handle(Event::Added { object: Arc::clone(object), initial: true });
        }
    }
}
