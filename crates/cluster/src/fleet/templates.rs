//! The templates of a fleet: each kind is followed once, whatever the number of Clusters. A template goes to the
//! indexes whose groups name its kind in its namespace, and an index that names a kind later gets what is known of
//! it.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use arcstr::ArcStr;
use capi::{InfrastructureTemplate, KindRef, Meta, ObjectKey};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::templates::{TemplateSink, state_change};
use index::{Change, Index, IndexFeed as _, KindState, Sink, Tag};

/// The namespaces of the groups that name each kind, as an index has them.
type Wanted = BTreeMap<KindRef, BTreeSet<ArcStr>>;

/// The templates of a fleet.
pub(super) struct FleetTemplates {
    kinds: Mutex<Kinds>,
    /// Notified when the kinds that groups name, or their namespaces, change.
    changed: watch::Sender<()>,
}

#[derive(Default)]
struct Kinds {
    known: BTreeMap<KindRef, Known>,
    /// The indexes whose groups name a kind, by the kind, the namespace and the Cluster.
    readers: BTreeMap<KindRef, BTreeMap<ArcStr, BTreeMap<ObjectKey, Arc<Index>>>>,
    /// The kinds that the groups of a Cluster name.
    wanted: BTreeMap<ObjectKey, Wanted>,
}

/// A kind that is followed, or can't be.
#[derive(Default)]
struct Known {
    state: Option<KindState>,
    /// The last changes of its templates, by namespace and name.
    templates: BTreeMap<ArcStr, BTreeMap<ArcStr, Change>>,
}

impl Default for FleetTemplates {
    fn default() -> Self {
        Self { kinds: Mutex::default(), changed: watch::Sender::new(()) }
    }
}

impl FleetTemplates {
    /// Keeps an index supplied with the templates that its groups name. Drop the future to stop, and
    /// [remove](FleetTemplates::remove) the index.
    pub(super) async fn supply(&self, cluster: &ObjectKey, index: &Arc<Index>) {
        let mut changed = index.wanted_kinds_changed();
        loop {
            changed.borrow_and_update();
            self.set_wanted(cluster, index);
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    fn set_wanted(&self, cluster: &ObjectKey, index: &Arc<Index>) {
        let mut kinds = self.kinds.lock();
        let now = index.wanted_kinds();
        let before = kinds.wanted.insert(cluster.clone(), now.clone()).unwrap_or_default();
        let mut changed = false;
        for (kind, namespace) in pairs(&before).filter(|pair| !has(&now, *pair)) {
            changed |= kinds.end(kind, namespace, cluster);
        }
        for kind in before.keys().filter(|kind| !now.contains_key(*kind)) {
            index.apply(Change::KindGone(kind.clone()));
        }
        for (kind, namespace) in pairs(&now).filter(|pair| !has(&before, *pair)) {
            changed |= kinds.begin(kind, namespace, (cluster, index));
        }
        // The state comes after the templates: a kind that is synced lacks none.
        for kind in now.keys().filter(|kind| !before.contains_key(*kind)) {
            if let Some(state) = kinds.known.get(kind).and_then(|known| known.state.clone()) {
                index.apply(Change::Kind(kind.clone(), state));
            }
        }
        drop(kinds);
        if changed {
            self.changed.send_replace(());
        }
    }

    /// Supplies the index of a Cluster no longer. The index keeps its templates.
    pub(super) fn remove(&self, cluster: &ObjectKey) {
        let mut kinds = self.kinds.lock();
        let before = kinds.wanted.remove(cluster).unwrap_or_default();
        let mut changed = false;
        for (kind, namespace) in pairs(&before) {
            changed |= kinds.end(kind, namespace, cluster);
        }
        drop(kinds);
        if changed {
            self.changed.send_replace(());
        }
    }

    /// Stores the change of a template, and applies it to the indexes that name its kind in its namespace.
    fn put(&self, kind: &KindRef, key: &ObjectKey, change: Change) {
        let mut kinds = self.kinds.lock();
        kinds.send(kind, &key.namespace, &change);
        let templates = &mut kinds.known.entry(kind.clone()).or_default().templates;
        templates.entry(key.namespace.clone()).or_default().insert(key.name.clone(), change);
    }
}

impl Kinds {
    /// Adds a reader of a kind in a namespace, which gets its templates. Returns true if it is the first one.
    fn begin(&mut self, kind: &KindRef, namespace: &ArcStr, (cluster, index): (&ObjectKey, &Arc<Index>)) -> bool {
        let readers = self.readers.entry(kind.clone()).or_default().entry(namespace.clone()).or_default();
        let is_first = readers.is_empty();
        readers.insert(cluster.clone(), Arc::clone(index));
        let known = self.known.get(kind).and_then(|known| known.templates.get(namespace));
        for change in known.into_iter().flat_map(BTreeMap::values) {
            index.apply(change.clone());
        }
        is_first
    }

    /// Removes a reader of a kind in a namespace. Returns true if it was the last one.
    fn end(&mut self, kind: &KindRef, namespace: &ArcStr, cluster: &ObjectKey) -> bool {
        let Some(of_kind) = self.readers.get_mut(kind) else { return false };
        let Some(readers) = of_kind.get_mut(namespace) else { return false };
        readers.remove(cluster);
        let is_last = readers.is_empty();
        if is_last {
            of_kind.remove(namespace);
            if of_kind.is_empty() {
                self.readers.remove(kind);
            }
        }
        is_last
    }

    fn send(&self, kind: &KindRef, namespace: &ArcStr, change: &Change) {
        let readers = self.readers.get(kind).and_then(|of_kind| of_kind.get(namespace));
        for index in readers.into_iter().flat_map(BTreeMap::values) {
            index.apply(change.clone());
        }
    }
}

/// Returns the kinds with each of their namespaces.
fn pairs(wanted: &Wanted) -> impl Iterator<Item = (&KindRef, &ArcStr)> {
    wanted.iter().flat_map(|(kind, namespaces)| namespaces.iter().map(move |namespace| (kind, namespace)))
}

fn has(wanted: &Wanted, (kind, namespace): (&KindRef, &ArcStr)) -> bool {
    wanted.get(kind).is_some_and(|namespaces| namespaces.contains(namespace))
}

impl Sink<InfrastructureTemplate> for FleetTemplates {
    fn apply(&self, kind: &KindRef, object: &Meta, _: Tag<'_>, change: Option<Change>) {
        if let Some(change) = change {
            self.put(kind, &object.key, change);
        }
    }

    fn delete(&self, kind: &KindRef, key: ObjectKey) {
        let mut kinds = self.kinds.lock();
        if let Some(known) = kinds.known.get_mut(kind)
            && let Some(templates) = known.templates.get_mut(&key.namespace)
        {
            templates.remove(&key.name);
            if templates.is_empty() {
                known.templates.remove(&key.namespace);
            }
        }
        let namespace = key.namespace.clone();
        kinds.send(kind, &namespace, &InfrastructureTemplate::deleted(kind, key));
    }

    fn keys(&self, kind: &KindRef) -> HashSet<ObjectKey> {
        let kinds = self.kinds.lock();
        let templates = kinds.known.get(kind).into_iter().flat_map(|known| &known.templates);
        let keys = templates.flat_map(|(namespace, templates)| {
            templates.keys().map(|name| ObjectKey { namespace: namespace.clone(), name: name.clone() })
        });
        keys.collect()
    }
}

impl TemplateSink for FleetTemplates {
    fn wanted_kinds(&self) -> BTreeMap<KindRef, BTreeSet<ArcStr>> {
        let kinds = self.kinds.lock();
        let readers = kinds.readers.iter();
        readers.map(|(kind, of_kind)| (kind.clone(), of_kind.keys().cloned().collect())).collect()
    }

    fn wanted_kinds_changed(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    fn set_kind(&self, kind: &KindRef, state: Option<KindState>) {
        let mut kinds = self.kinds.lock();
        match &state {
            Some(state) => kinds.known.entry(kind.clone()).or_default().state = Some(state.clone()),
            None => drop(kinds.known.remove(kind)),
        }
        // A Cluster has one namespace, so each index is there once.
        let readers = kinds.readers.get(kind).into_iter().flat_map(BTreeMap::values);
        for index in readers.flat_map(BTreeMap::values) {
            index.apply(state_change(kind, state.clone()));
        }
    }
}
