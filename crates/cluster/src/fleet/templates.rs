//! The templates of a fleet: each kind is followed once, and each template kept once, whatever the number of Clusters.
//! The change of a template goes to the indexes whose groups refer to it, and the state of a kind to those that name
//! it.

#[cfg(test)]
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use arcstr::ArcStr;
use capi::{InfrastructureTemplate, KindRef, Meta, ObjectKey};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::templates::{TemplateSink, state_change};
use index::{Change, Index, IndexFeed as _, KindState, SharedTemplates, Sink, Tag, Template, TemplateReader};
use nodegroup::Rules;

/// The namespaces of the groups that name each kind, as an index has them.
type Wanted = BTreeMap<KindRef, BTreeSet<ArcStr>>;

/// The templates of a fleet.
pub(super) struct FleetTemplates {
    shared: Arc<SharedTemplates>,
    kinds: Mutex<Kinds>,
    /// Notified when the kinds that groups name, or their namespaces, change.
    changed: watch::Sender<()>,
    /// The number of changes of templates that went to an index.
    #[cfg(test)]
    pub(super) deliveries: AtomicUsize,
}

#[derive(Default)]
struct Kinds {
    /// The state of each kind that is followed, or can't be.
    known: BTreeMap<KindRef, KindState>,
    indexes: HashMap<TemplateReader, Arc<Index>>,
    /// The indexes whose groups name a kind, by the kind, the namespace and the Cluster.
    readers: BTreeMap<KindRef, BTreeMap<ArcStr, BTreeMap<ObjectKey, Arc<Index>>>>,
    /// The kinds that the groups of a Cluster name.
    wanted: BTreeMap<ObjectKey, Wanted>,
}

impl Default for FleetTemplates {
    fn default() -> Self {
        Self {
            shared: Arc::default(),
            kinds: Mutex::default(),
            changed: watch::Sender::new(()),
            #[cfg(test)]
            deliveries: AtomicUsize::new(0),
        }
    }
}

impl FleetTemplates {
    /// Returns an index that shares the templates. It has to be [removed](FleetTemplates::remove) in the end.
    pub(super) fn index(&self, rules: Rules) -> Arc<Index> {
        let index = Arc::new(Index::new(rules).in_first_sync().sharing(&self.shared));
        if let Some(reader) = index.template_reader() {
            self.kinds.lock().indexes.insert(reader, Arc::clone(&index));
        }
        index
    }

    /// Keeps an index supplied with the states of the kinds that its groups name. Drop the future to stop.
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

    pub(super) fn set_wanted(&self, cluster: &ObjectKey, index: &Arc<Index>) {
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
        for kind in now.keys().filter(|kind| !before.contains_key(*kind)) {
            if let Some(state) = kinds.known.get(kind) {
                index.apply(Change::Kind(kind.clone(), state.clone()));
            }
        }
        drop(kinds);
        if changed {
            self.changed.send_replace(());
        }
    }

    /// Supplies the index of a Cluster no longer.
    pub(super) fn remove(&self, cluster: &ObjectKey, index: &Index) {
        let mut kinds = self.kinds.lock();
        if let Some(reader) = index.template_reader() {
            kinds.indexes.remove(&reader);
        }
        index.release_templates();
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

    /// Returns true if no template is kept, and no index is known.
    #[cfg(test)]
    pub(super) fn keeps_nothing(&self) -> bool {
        let kinds = self.kinds.lock();
        self.shared.is_empty() && kinds.indexes.is_empty() && kinds.readers.is_empty() && kinds.wanted.is_empty()
    }

    /// Stores a template, or removes it, and applies this change to the indexes whose groups refer to it.
    fn set(&self, kind: &KindRef, key: &ObjectKey, template: Option<Template>, change: &Change) {
        // Locked to the end, so that an index that was removed doesn't change any more.
        let kinds = self.kinds.lock();
        for index in self.shared.set(kind, key, template).iter().filter_map(|reader| kinds.indexes.get(reader)) {
            #[cfg(test)]
            self.deliveries.fetch_add(1, Ordering::Relaxed);
            index.apply(change.clone());
        }
    }
}

impl Kinds {
    /// Adds a reader of a kind in a namespace. Returns true if it is the first one.
    fn begin(&mut self, kind: &KindRef, namespace: &ArcStr, (cluster, index): (&ObjectKey, &Arc<Index>)) -> bool {
        let readers = self.readers.entry(kind.clone()).or_default().entry(namespace.clone()).or_default();
        let is_first = readers.is_empty();
        readers.insert(cluster.clone(), Arc::clone(index));
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
        if let Some(change) = change
            && let Some(template) = change.template()
        {
            self.set(kind, &object.key, Some(template), &change);
        }
    }

    fn delete(&self, kind: &KindRef, key: ObjectKey) {
        self.set(kind, &key.clone(), None, &InfrastructureTemplate::deleted(kind, key));
    }

    fn keys(&self, kind: &KindRef) -> HashSet<ObjectKey> {
        self.shared.keys(kind)
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
        if let Some(state) = &state {
            kinds.known.insert(kind.clone(), state.clone());
        } else {
            kinds.known.remove(kind);
            self.shared.forget(kind);
        }
        // A Cluster has one namespace, so each index is there once.
        let readers = kinds.readers.get(kind).into_iter().flat_map(BTreeMap::values);
        for index in readers.flat_map(BTreeMap::values) {
            index.apply(state_change(kind, state.clone()));
        }
    }
}
