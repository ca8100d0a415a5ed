//! The changes of a kind, and a controller's view of it, which takes in changes only when the driver says so: it lags
//! behind, and must never go back. Where controllers are always up to date, they read the API itself instead: views
//! then hold no objects.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use serde_json::Value;

use crate::{
    api::{Api, ChangeKind, Resource, Selection},
    controllers::object::Object as _,
};

/// A namespace and name.
pub(super) type ObjectKey = (String, String);

pub(super) fn key_of(object: &Value) -> ObjectKey {
    (object.namespace().to_owned(), object.name().to_owned())
}

/// A change of an object.
#[derive(Clone, Debug)]
pub(super) struct Change {
    revision: u64,
    pub(super) is_gone: bool,
    pub(super) object: Arc<Value>,
}

/// An API whose changes are followed.
#[derive(Debug)]
struct Source {
    api: Api,
    /// The revision up to which the changes have been read.
    read: u64,
    /// The revision of the API then, which counts the changes of other kinds too.
    seen: u64,
}

/// The changes of a kind that some view hasn't taken in, and its present state.
#[derive(Debug)]
pub(super) struct Feed {
    sources: Vec<Source>,
    resource: Resource,
    /// The Cluster whose objects alone there are; `None` for all.
    cluster: Option<ObjectKey>,
    /// The number of changes before those in `changes`.
    dropped: u64,
    changes: VecDeque<Change>,
    /// The present state; `None` if controllers read the API itself.
    latest: Option<View>,
}

impl Feed {
    /// Creates a feed of all present objects and of later changes.
    pub(super) fn new(api: Api, resource: Resource, cluster: Option<ObjectKey>) -> Self {
        let source = Source { api, read: 0, seen: 0 };
        let (dropped, changes, latest) = (0, VecDeque::new(), Some(View::default()));
        let mut feed = Self { sources: vec![source], resource, cluster, dropped, changes, latest };
        feed.relist(0);
        feed
    }

    /// Creates a feed of the changes of several APIs from now on, or of all their objects too.
    pub(super) fn live<'a>(apis: impl Iterator<Item = &'a Api>, resource: Resource, with_present: bool) -> Self {
        let source =
            |api: &Api| Source { api: api.clone(), read: if with_present { 0 } else { api.revision() }, seen: 0 };
        let sources = apis.map(source).collect();
        Self { sources, resource, cluster: None, dropped: 0, changes: VecDeque::new(), latest: None }
    }

    /// Reads the changes. Returns the number of the first new one.
    pub(super) fn pull(&mut self) -> u64 {
        let first = self.end();
        for at in 0..self.sources.len() {
            let source = &mut self.sources[at];
            let now = source.api.revision();
            if std::mem::replace(&mut source.seen, now) == now {
                continue;
            }
            match source.api.changes(&self.resource, &Selection::default(), source.read) {
                Ok(events) => {
                    for event in events {
                        self.sources[at].read = event.revision;
                        if !self.has(&event.object) {
                            continue;
                        }
                        let is_gone = event.kind == ChangeKind::Deleted;
                        self.push(Change { revision: event.revision, is_gone, object: event.object });
                    }
                }
                // The changes since then were dropped, or the kind doesn't exist.
                Err(_) => self.relist(at),
            }
        }
        first
    }

    fn relist(&mut self, at: usize) {
        let source = &mut self.sources[at];
        let revision = source.api.revision();
        (source.read, source.seen) = (revision, revision);
        let mut objects = source.api.list(&self.resource, &Selection::default()).unwrap_or_default();
        objects.retain(|object| self.has(object));
        let present: BTreeSet<_> = objects.iter().map(|object| key_of(object)).collect();
        let known = self.latest.iter().flat_map(|latest| &latest.objects);
        let gone: Vec<_> = known.filter(|(key, _)| !present.contains(*key)).collect();
        let gone: Vec<_> = gone.into_iter().map(|(_, object)| (true, Arc::clone(object))).collect();
        for (is_gone, object) in gone.into_iter().chain(objects.into_iter().map(|object| (false, object))) {
            self.push(Change { revision, is_gone, object });
        }
    }

    /// Returns true if an object is of the Cluster. Objects without a namespace are Nodes, of its workload cluster.
    fn has(&self, object: &Value) -> bool {
        let Some((namespace, name)) = &self.cluster else { return true };
        let cluster = object.text("/spec/clusterName").unwrap_or_else(|| object.name());
        object.namespace().is_empty() || (object.namespace() == namespace && cluster == name)
    }

    fn push(&mut self, change: Change) {
        if let Some(latest) = &mut self.latest {
            latest.apply(&change);
        }
        self.changes.push_back(change);
    }

    /// Returns the number of changes so far.
    pub(super) fn end(&self) -> u64 {
        self.dropped + self.changes.len() as u64
    }

    pub(super) fn get(&self, number: u64) -> Option<&Change> {
        self.changes.get(usize::try_from(number.checked_sub(self.dropped)?).ok()?)
    }

    /// Drops the changes before this one.
    pub(super) fn forget(&mut self, number: u64) {
        while self.dropped < number && self.changes.pop_front().is_some() {
            self.dropped += 1;
        }
    }

    /// Returns a view of the present state.
    pub(super) fn present(&self) -> View {
        View { position: self.end(), ..self.latest.clone().unwrap_or_default() }
    }
}

/// A controller's view of a kind.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    objects: BTreeMap<ObjectKey, Arc<Value>>,
    /// The keys by the uid of the controlling owner.
    owned: BTreeMap<String, BTreeSet<ObjectKey>>,
    /// The keys by `spec.providerID`.
    ids: BTreeMap<String, BTreeSet<ObjectKey>>,
    /// The number of the next change to take in.
    pub(super) position: u64,
    /// The revision of the last change that was taken in.
    pub(super) revision: u64,
}

fn owner_of(object: &Value) -> Option<&str> {
    object.controller()?["uid"].as_str()
}

fn id_of(object: &Value) -> Option<&str> {
    object.text("/spec/providerID")
}

fn remove(index: &mut BTreeMap<String, BTreeSet<ObjectKey>>, at: &str, key: &ObjectKey) {
    if let Some(keys) = index.get_mut(at) {
        keys.remove(key);
        if keys.is_empty() {
            index.remove(at);
        }
    }
}

impl View {
    /// Takes in the next change.
    pub(super) fn take(&mut self, change: &Change) {
        self.position += 1;
        self.apply(change);
    }

    /// Passes the next change, where controllers read the API itself.
    pub(super) fn pass(&mut self) {
        self.position += 1;
    }

    fn apply(&mut self, change: &Change) {
        self.revision = change.revision;
        let key = key_of(&change.object);
        if let Some(old) = self.objects.remove(&key) {
            for (index, at) in [(&mut self.owned, owner_of(&old)), (&mut self.ids, id_of(&old))] {
                if let Some(at) = at {
                    remove(index, at, &key);
                }
            }
        }
        if change.is_gone {
            return;
        }
        for (index, at) in [(&mut self.owned, owner_of(&change.object)), (&mut self.ids, id_of(&change.object))] {
            if let Some(at) = at {
                index.entry(at.to_owned()).or_default().insert(key.clone());
            }
        }
        self.objects.insert(key, Arc::clone(&change.object));
    }

    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Arc<Value>> {
        self.objects.get(key)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.objects.keys()
    }

    /// Returns the objects that an object controls.
    pub(super) fn controlled(&self, owner: &Value) -> Vec<Arc<Value>> {
        let keys = self.owned.get(owner.uid()).into_iter().flatten();
        keys.filter_map(|key| self.objects.get(key).cloned()).collect()
    }

    /// Returns the first object with this `spec.providerID`.
    pub(super) fn with_id(&self, id: &str) -> Option<&Arc<Value>> {
        self.objects.get(self.ids.get(id)?.first()?)
    }
}
