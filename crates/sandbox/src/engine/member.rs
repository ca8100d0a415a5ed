//! A controller's memory: its views of kinds, its queue, and the reconciles in progress. A view takes in changes only when
//! the driver says so: it lags behind, and must never go back. Where controllers are always up to date, they read the API
//! itself instead: views then hold no objects.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    hash::Hash,
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use serde_json::Value;

use super::{
    Live, Options, Parked, backoff,
    kind::{Controller, Kind, Observed},
    owning_set,
    reconcile::{Awaited, Op},
};
use crate::{
    api::{Api, ChangeKind, Resource, Selection},
    clock::after,
    controllers::{keys, machine, machine_pool, object::Object as _},
};

/// The maximum time for which a controller waits for its cache to show one of its writes.
pub(super) const CACHE_TIMEOUT: Duration = Duration::from_secs(10);
/// The min time between two reconciles of an object, if they are rate-limited.
const RATE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Member {
    controller: Controller,
    views: Vec<(Kind, View)>,
    /// The APIs, if it reads them itself.
    live: Option<Live>,
    pub(super) queue: Queue<ObjectKey>,
    /// The next object to be reconciled.
    head: Option<ObjectKey>,
    pub(super) runs: Vec<Run>,
    /// The objects that changed while they were being reconciled.
    dirty: BTreeSet<ObjectKey>,
    failures: BTreeMap<ObjectKey, u32>,
    /// The newest revision that was written for an object, by the kind of the written object.
    wrote: BTreeMap<ObjectKey, BTreeMap<Kind, u64>>,
    /// The objects that wait until the views show the writes for them.
    stale: BTreeSet<ObjectKey>,
    /// The time at which each object was last reconciled.
    began: BTreeMap<ObjectKey, Timestamp>,
    /// The objects that wait for their Cluster to be unpaused.
    pub(super) parked: Parked,
}

#[derive(Debug)]
pub(super) struct Run {
    pub(super) key: ObjectKey,
    /// The object as it was read.
    pub(super) object: Arc<Value>,
    pub(super) ops: VecDeque<Op>,
    pub(super) has_failed: bool,
    pub(super) observed: Observed,
    /// The time until which it waits for its cache.
    pub(super) deadline: Option<Timestamp>,
}

impl Member {
    /// Creates a controller that has just listed everything, with all of its objects queued.
    pub(super) fn new(controller: Controller, views: Vec<(Kind, View)>, live: Option<Live>) -> Self {
        let mut member = Self {
            controller,
            views,
            live,
            queue: Queue::default(),
            head: None,
            runs: Vec::new(),
            dirty: BTreeSet::new(),
            failures: BTreeMap::new(),
            wrote: BTreeMap::new(),
            stale: BTreeSet::new(),
            began: BTreeMap::new(),
            parked: BTreeMap::new(),
        };
        let keys: Vec<_> = member.view(controller.of()).into_iter().flat_map(View::keys).cloned().collect();
        for key in keys {
            member.queue.add(key);
        }
        member
    }

    pub(super) fn view(&self, kind: Kind) -> Option<&View> {
        self.views.iter().find(|(known, _)| *known == kind).map(|(_, view)| view)
    }

    pub(super) fn get(&self, kind: Kind, key: &ObjectKey) -> Option<Arc<Value>> {
        match &self.live {
            Some(live) => live.management.get(&live.resource(kind), &key.0, &key.1).ok(),
            None => self.view(kind)?.get(key).cloned(),
        }
    }

    /// Returns the Node of a Machine by its providerID.
    pub(super) fn node(&self, machine: &Value, id: &str) -> Option<Arc<Value>> {
        match &self.live {
            Some(live) => {
                let name = machine.text("/status/nodeRef/name").unwrap_or_else(|| machine_pool::node_name(id));
                live.workloads.of(machine)?.get(&live.resource(Kind::Node), "", name).ok()
            }
            None => self.view(Kind::Node)?.with_id(id).cloned(),
        }
    }

    /// Returns the Nodes of a MachinePool. Those that aren't made here may have any name.
    pub(super) fn nodes_of_pool(&self, pool: &Value) -> Vec<Arc<Value>> {
        let ids = pool.list("/spec/providerIDList").iter().filter_map(Value::as_str);
        match &self.live {
            Some(live) => {
                let Some(workload) = live.workloads.of(pool) else { return Vec::new() };
                let referred = pool.list("/status/nodeRefs").iter().filter_map(|it| it["name"].as_str());
                let names: BTreeSet<&str> = ids.map(machine_pool::node_name).chain(referred).collect();
                let resource = live.resource(Kind::Node);
                let nodes = names.into_iter().filter_map(|name| workload.get(&resource, "", name).ok());
                nodes.filter(|node| pool.list("/spec/providerIDList").contains(&node["spec"]["providerID"])).collect()
            }
            None => ids.filter_map(|id| self.view(Kind::Node)?.with_id(id).cloned()).collect(),
        }
    }

    fn machine_of(&self, id: &str) -> Option<ObjectKey> {
        match &self.live {
            Some(_) => machine::key_of_id(id),
            None => self.view(Kind::Machine)?.with_id(id).map(|machine| key_of(machine)),
        }
    }

    pub(super) fn controlled(&self, kind: Kind, owner: &Value) -> Vec<Arc<Value>> {
        match &self.live {
            Some(live) => {
                let uid = owner.uid();
                let dependents = live.management.dependents(uid).into_iter().map(|(_, object)| object);
                let is_controlled = |object: &Value| object.controller().is_some_and(|owner| owner["uid"] == uid);
                dependents.filter(|object| object.kind() == kind.as_str() && is_controlled(object)).collect()
            }
            None => self.view(kind).map(|view| view.controlled(owner)).unwrap_or_default(),
        }
    }

    /// Takes in changes of a kind, and queues the objects that they concern.
    pub(super) fn observe(&mut self, kind: Kind, feed: &Feed, most: u64) -> u64 {
        let mut seen = 0;
        while seen < most
            && let Some((_, view)) = self.views.iter_mut().find(|(known, _)| *known == kind)
            && let Some(change) = feed.get(view.position)
        {
            if self.live.is_some() {
                view.pass();
            } else {
                view.take(change);
            }
            seen += 1;
            self.add_concerned(kind, &change.object);
        }
        if seen > 0 {
            let stale = std::mem::take(&mut self.stale);
            for key in stale {
                self.queue.add(key);
            }
        }
        seen
    }

    fn add_concerned(&mut self, kind: Kind, object: &Value) {
        if kind == self.controller.of() {
            self.queue.add(key_of(object));
        }
        if kind == Kind::Cluster && object["spec"]["paused"] != true {
            for key in self.parked.remove(&key_of(object)).into_iter().flatten() {
                self.queue.add(key);
            }
        }
        if let Some(key) = self.owner(kind, object) {
            self.queue.add(key);
        }
    }

    /// Returns the object of this controller that owns one of another kind.
    fn owner(&self, kind: Kind, object: &Value) -> Option<ObjectKey> {
        let of = self.controller.of();
        match (of, kind) {
            (Kind::MachineDeployment, Kind::Machine) => {
                let set = self.get(Kind::MachineSet, &owning_set(object)?)?;
                self.owner(Kind::MachineSet, &set)
            }
            (Kind::MachineDeployment, Kind::MachineSet) | (Kind::MachineSet | Kind::MachinePool, Kind::Machine) => {
                let owner = object.controller()?;
                let name = owner["name"].as_str().filter(|_| owner["kind"] == of.as_str())?;
                Some((object.namespace().to_owned(), name.to_owned()))
            }
            (Kind::Machine, Kind::Node) => {
                object.text("/spec/providerID").and_then(|id| self.machine_of(id)).or_else(|| {
                    let namespace = object.annotation(keys::NODE_NAMESPACE)?.to_owned();
                    Some((namespace, object.annotation(keys::NODE_MACHINE)?.to_owned()))
                })
            }
            (Kind::MachinePool, Kind::Node) => {
                let is_pool = object.annotation(keys::NODE_OWNER_KIND) == Some(of.as_str());
                let name = object.annotation(keys::NODE_OWNER_NAME).filter(|_| is_pool)?;
                Some((object.annotation(keys::NODE_NAMESPACE)?.to_owned(), name.to_owned()))
            }
            _ => None,
        }
    }

    pub(super) fn has_work(&mut self, now: Timestamp, options: &Options) -> bool {
        self.queue.advance(now);
        if self.head.is_none() {
            self.head = self.take_next(now, options);
        }
        self.can_begin(options) || self.runs.iter().any(|run| self.can_go_on(run, now))
    }

    fn can_begin(&self, options: &Options) -> bool {
        self.head.is_some() && self.runs.len() < options.workers.max(1)
    }

    /// Returns the next object in the queue that may be reconciled now.
    fn take_next(&mut self, now: Timestamp, options: &Options) -> Option<ObjectKey> {
        while let Some(key) = self.queue.pop() {
            if self.runs.iter().any(|run| run.key == key) {
                self.dirty.insert(key);
                continue;
            }
            if options.version.limits_rate() && self.controller.is_of_cluster_api() && self.live.is_none() {
                let again = self.began.get(&key).map(|began| after(*began, RATE));
                if let Some(again) = again.filter(|again| now < *again) {
                    self.queue.add_at(again, key);
                    continue;
                }
            }
            if self.is_stale(&key) {
                self.stale.insert(key);
                continue;
            }
            return Some(key);
        }
        None
    }

    fn is_stale(&self, key: &ObjectKey) -> bool {
        if self.live.is_some() {
            return false;
        }
        let mut wrote = self.wrote.get(key).into_iter().flatten();
        wrote.any(|(kind, revision)| self.view(*kind).is_some_and(|view| view.revision < *revision))
    }

    /// Records a write after which the object is only reconciled again once the view of this kind shows it.
    pub(super) fn note_written(&mut self, key: &ObjectKey, kind: Kind, revision: u64) {
        let newest = self.wrote.entry(key.clone()).or_default().entry(kind).or_default();
        *newest = revision.max(*newest);
    }

    /// Chooses the reconcile that goes on; `None` for the one at the head of the queue.
    pub(super) fn choose(&self, pick: u64, now: Timestamp, options: &Options) -> Option<usize> {
        let going: Vec<_> = (0..self.runs.len()).filter(|number| self.can_go_on(&self.runs[*number], now)).collect();
        let choices = going.len() + usize::from(self.can_begin(options));
        let chosen = usize::try_from(pick % (choices.max(1) as u64)).unwrap_or_default();
        going.get(chosen).copied()
    }

    pub(super) fn take_head(&mut self, now: Timestamp) -> Option<ObjectKey> {
        let key = self.head.take()?;
        self.wrote.remove(&key);
        self.began.insert(key.clone(), now);
        Some(key)
    }

    fn can_go_on(&self, run: &Run, now: Timestamp) -> bool {
        match (run.ops.front(), run.deadline) {
            (Some(Op::Wait(left)), Some(deadline)) => {
                deadline <= now || left.front().is_none_or(|awaited| self.shows(awaited))
            }
            _ => true,
        }
    }

    /// Returns true if the view of the objects that this controller creates shows this one as created, or as being
    /// deleted.
    pub(super) fn shows(&self, awaited: &Awaited) -> bool {
        let kind = if self.controller == Controller::MachineSet { Kind::Machine } else { Kind::MachineSet };
        let shown = self.get(kind, &awaited.key);
        if awaited.is_deleted { shown.is_none_or(|object| object.deleting()) } else { shown.is_some() }
    }

    /// Ends a reconcile that has nothing left to do.
    pub(super) fn end(&mut self, number: usize, now: Timestamp) {
        let run = self.runs.remove(number);
        if run.has_failed {
            let failures = self.failures.entry(run.key.clone()).or_default();
            *failures += 1;
            self.queue.add_at(after(now, backoff(*failures)), run.key.clone());
        } else {
            self.failures.remove(&run.key);
        }
        if self.dirty.remove(&run.key) {
            self.queue.add(run.key);
        }
    }

    /// Returns the time at which the next step is due.
    pub(super) fn next(&self) -> Option<Timestamp> {
        let deadlines = self.runs.iter().filter_map(|run| run.deadline);
        deadlines.chain(self.queue.next()).min()
    }
}

/// A queue whose due keys come in the order in which they became due.
#[derive(Debug)]
pub(super) struct Queue<K> {
    due: VecDeque<K>,
    is_due: HashSet<K>,
    later: BTreeSet<(Timestamp, K)>,
    times: HashMap<K, Timestamp>,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self { due: VecDeque::new(), is_due: HashSet::new(), later: BTreeSet::new(), times: HashMap::new() }
    }
}

impl<K: Clone + Eq + Hash + Ord> Queue<K> {
    pub(super) fn add(&mut self, key: K) {
        if self.is_due.insert(key.clone()) {
            self.due.push_back(key);
        }
    }

    /// Adds a key to be reconciled at a time, or earlier if it is queued for an earlier one.
    pub(super) fn add_at(&mut self, time: Timestamp, key: K) {
        if let Some(known) = self.times.get(&key).copied() {
            if known <= time {
                return;
            }
            self.later.remove(&(known, key.clone()));
        }
        self.times.insert(key.clone(), time);
        self.later.insert((time, key));
    }

    /// Makes everything due up to `now`.
    pub(super) fn advance(&mut self, now: Timestamp) {
        while let Some((time, _)) = self.later.first()
            && *time <= now
            && let Some((_, key)) = self.later.pop_first()
        {
            self.times.remove(&key);
            self.add(key);
        }
    }

    /// Takes the next key that is due.
    pub(super) fn pop(&mut self) -> Option<K> {
        let key = self.due.pop_front()?;
        self.is_due.remove(&key);
        Some(key)
    }

    /// Returns the time at which the next key becomes due.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.later.first().map(|(time, _)| *time)
    }
}

/// A namespace and name.
pub(super) type ObjectKey = (String, String);

pub(super) fn key_of(object: &Value) -> ObjectKey {
    (object.namespace().to_owned(), object.name().to_owned())
}

#[derive(Clone, Debug)]
pub(super) struct Change {
    revision: u64,
    pub(super) is_gone: bool,
    pub(super) object: Arc<Value>,
}

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

    /// Creates a feed of the changes of several APIs from now on.
    pub(super) fn live(apis: Vec<&Api>, resource: Resource) -> Self {
        let source = |api: &Api| Source { api: api.clone(), read: api.revision(), seen: 0 };
        let sources = apis.into_iter().map(source).collect();
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

    pub(super) fn present(&self) -> View {
        View { position: self.end(), ..self.latest.clone().unwrap_or_default() }
    }
}

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
