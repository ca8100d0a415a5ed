//! The templates: each kind is followed once, and each template kept once, whatever the number of workload clusters.
//! The change of a template goes to the indexes whose groups refer to it, and the state of a kind to those that name
//! it.

#[cfg(test)]
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use arcstr::ArcStr;
use parking_lot::Mutex;
use rules::capi::{InfrastructureTemplate, KindRef, Meta, ObjectKey};
use tokio::sync::watch;

use index::{Change, Index, IndexFeed as _, KindState, SharedTemplates, Sink, Tag, Template, TemplateReader};
use rules::Rules;

/// The namespaces of the groups that name each kind, as an index has them.
type Wanted = BTreeMap<KindRef, BTreeSet<ArcStr>>;

/// The templates of all workload clusters.
pub(super) struct TemplateStore {
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
    /// The indexes, with the kinds that the groups of each name.
    indexes: HashMap<TemplateReader, (Arc<Index>, Wanted)>,
    /// The indexes whose groups name a kind, by the kind and the namespace.
    readers: BTreeMap<KindRef, BTreeMap<ArcStr, BTreeSet<TemplateReader>>>,
}

impl Default for TemplateStore {
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

impl TemplateStore {
    /// Returns an index that shares the templates. It has to be [removed](TemplateStore::remove) in the end.
    pub(super) fn index(&self, rules: Rules) -> Arc<Index> {
        let index = Arc::new(Index::new(rules).in_first_sync().sharing(&self.shared));
        if let Some(reader) = index.template_reader() {
            self.kinds.lock().indexes.insert(reader, (Arc::clone(&index), Wanted::new()));
        }
        index
    }

    /// Keeps an index supplied with the states of the kinds that its groups name. Drop the future to stop.
    pub(super) async fn supply(&self, index: &Index) {
        let mut changed = index.wanted_kinds_changed();
        loop {
            changed.borrow_and_update();
            self.set_wanted(index);
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    pub(super) fn set_wanted(&self, index: &Index) {
        let mut kinds = self.kinds.lock();
        let Some(reader) = index.template_reader() else { return };
        let now = index.wanted_kinds();
        let Some((_, wanted)) = kinds.indexes.get_mut(&reader) else { return };
        let before = std::mem::replace(wanted, now.clone());
        let mut changed = false;
        for (kind, namespace) in pairs(&before).filter(|pair| !has(&now, *pair)) {
            changed |= kinds.end(kind, namespace, reader);
        }
        for kind in before.keys().filter(|kind| !now.contains_key(*kind)) {
            index.apply(Change::KindGone(kind.clone()));
        }
        for (kind, namespace) in pairs(&now).filter(|pair| !has(&before, *pair)) {
            changed |= kinds.begin(kind, namespace, reader);
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

    /// Supplies an index no longer.
    pub(super) fn remove(&self, index: &Index) {
        let mut kinds = self.kinds.lock();
        let reader = index.template_reader();
        let removed = reader.and_then(|reader| Some((reader, kinds.indexes.remove(&reader)?)));
        index.release_templates();
        let Some((reader, (_, before))) = removed else { return };
        let mut changed = false;
        for (kind, namespace) in pairs(&before) {
            changed |= kinds.end(kind, namespace, reader);
        }
        drop(kinds);
        if changed {
            self.changed.send_replace(());
        }
    }

    /// Returns the kinds that groups name, with the namespaces of these groups.
    pub(super) fn wanted_kinds(&self) -> Wanted {
        let kinds = self.kinds.lock();
        let readers = kinds.readers.iter();
        readers.map(|(kind, of_kind)| (kind.clone(), of_kind.keys().cloned().collect())).collect()
    }

    /// Returns a receiver that is notified when these kinds change.
    pub(super) fn wanted_kinds_changed(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Sets the state of a kind; `None` forgets the kind with all its templates.
    pub(super) fn set_kind(&self, kind: &KindRef, state: Option<KindState>) {
        let mut kinds = self.kinds.lock();
        let change = if let Some(state) = state {
            kinds.known.insert(kind.clone(), state.clone());
            Change::Kind(kind.clone(), state)
        } else {
            kinds.known.remove(kind);
            self.shared.forget(kind);
            Change::KindGone(kind.clone())
        };
        let readers: BTreeSet<_> = kinds.readers.get(kind).into_iter().flat_map(BTreeMap::values).flatten().collect();
        for (index, _) in readers.into_iter().filter_map(|reader| kinds.indexes.get(reader)) {
            index.apply(change.clone());
        }
    }

    /// Returns true if no template is kept, and no index is known.
    #[cfg(test)]
    pub(super) fn keeps_nothing(&self) -> bool {
        let kinds = self.kinds.lock();
        self.shared.is_empty() && kinds.indexes.is_empty() && kinds.readers.is_empty()
    }

    /// Stores a template, or removes it, and applies this change to the indexes whose groups refer to it.
    fn set(&self, kind: &KindRef, key: &ObjectKey, template: Option<Template>, change: &Change) {
        // Locked to the end, so that an index that was removed doesn't change any more.
        let kinds = self.kinds.lock();
        for (index, _) in self.shared.set(kind, key, template).iter().filter_map(|reader| kinds.indexes.get(reader)) {
            #[cfg(test)]
            self.deliveries.fetch_add(1, Ordering::Relaxed);
            index.apply(change.clone());
        }
    }
}

impl Kinds {
    /// Adds a reader of a kind in a namespace. Returns true if it is the first one.
    fn begin(&mut self, kind: &KindRef, namespace: &ArcStr, reader: TemplateReader) -> bool {
        let readers = self.readers.entry(kind.clone()).or_default().entry(namespace.clone()).or_default();
        let is_first = readers.is_empty();
        readers.insert(reader);
        is_first
    }

    /// Removes a reader of a kind in a namespace. Returns true if it was the last one.
    fn end(&mut self, kind: &KindRef, namespace: &ArcStr, reader: TemplateReader) -> bool {
        let Some(of_kind) = self.readers.get_mut(kind) else { return false };
        let Some(readers) = of_kind.get_mut(namespace) else { return false };
        readers.remove(&reader);
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

impl Sink<InfrastructureTemplate> for TemplateStore {
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
