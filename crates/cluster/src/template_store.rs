//! The templates: each kind is followed once, and each template kept once, whatever the number of workload clusters.
//! The change of a template goes to the indexes with groups that refer to it, and the state of a kind to those whose
//! groups name it.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    ptr,
    sync::Arc,
};

use arcstr::ArcStr;
use parking_lot::Mutex;
use rules::capi::{InfrastructureTemplate, KindRef, Meta, ObjectKey};
use tokio::sync::watch;

use index::{Change, Index, IndexFeed as _, KindState, Memory, SharedTemplates, Sink, Tag, Template};
use rules::{Rules, remembered};

/// The namespaces of the groups that name each kind, as an index has them.
type Wanted = BTreeMap<KindRef, BTreeSet<ArcStr>>;

/// The templates of all workload clusters.
#[derive(Default)]
pub(super) struct TemplateStore {
    shared: Arc<SharedTemplates>,
    memory: Option<Arc<Memory>>,
    kinds: Mutex<Kinds>,
    /// Notified when the kinds that groups name, or their namespaces, may have changed.
    changed: watch::Sender<()>,
}

#[derive(Default)]
struct Kinds {
    /// The state of each kind that is followed, or can't be.
    known: BTreeMap<KindRef, KindState>,
    /// The indexes, with the kinds that the groups of each name.
    indexes: Vec<(Arc<Index>, Wanted)>,
}

impl TemplateStore {
    /// Returns a store whose indexes share what is remembered too.
    pub(super) fn new(memory: Option<Arc<Memory>>) -> Self {
        Self { memory, ..Self::default() }
    }

    pub(super) fn memory(&self) -> Option<&Arc<Memory>> {
        self.memory.as_ref()
    }

    /// Tells the indexes what is remembered anew. Drop the future to stop.
    pub(super) async fn follow(&self, memory: &Memory) {
        let mut changes = memory.changes();
        loop {
            changes.borrow_and_update();
            let templates = Arc::new(memory.take_changed());
            let indexes: Vec<_> = self.kinds.lock().indexes.iter().map(|(index, _)| Arc::clone(index)).collect();
            for index in indexes.iter().filter(|_| !templates.is_empty()) {
                index.apply(Change::Remembered(Arc::clone(&templates)));
            }
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// Returns the templates of all groups, which need what is remembered of them.
    pub(super) fn used_templates(&self) -> BTreeSet<remembered::Templates> {
        let indexes: Vec<_> = self.kinds.lock().indexes.iter().map(|(index, _)| Arc::clone(index)).collect();
        let mut used = BTreeSet::new();
        for index in indexes {
            index.add_used_templates(&mut used);
        }
        used
    }

    /// Returns an index that shares the templates. It has to be [removed](TemplateStore::remove) in the end.
    pub(super) fn index(&self, rules: Rules) -> Arc<Index> {
        let index = Index::new(rules).in_first_sync().sharing(Arc::clone(&self.shared));
        let index = Arc::new(index.remembering(self.memory.clone()));
        self.kinds.lock().indexes.push((Arc::clone(&index), Wanted::new()));
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
        let Kinds { known, indexes } = &mut *self.kinds.lock();
        let Some((_, wanted)) = indexes.iter_mut().find(|(other, _)| ptr::eq(other.as_ref(), index)) else { return };
        let now = index.wanted_kinds();
        for kind in wanted.keys().filter(|kind| !now.contains_key(*kind)) {
            index.apply(Change::KindGone(kind.clone()));
        }
        for kind in now.keys().filter(|kind| !wanted.contains_key(*kind)) {
            if let Some(state) = known.get(kind) {
                index.apply(Change::Kind(kind.clone(), state.clone()));
            }
        }
        *wanted = now;
        self.changed.send_replace(());
    }

    pub(super) fn remove(&self, index: &Index) {
        self.kinds.lock().indexes.retain(|(other, _)| !ptr::eq(other.as_ref(), index));
        self.changed.send_replace(());
    }

    pub(super) fn wanted_kinds(&self) -> Wanted {
        let mut all = Wanted::new();
        for (kind, namespaces) in self.kinds.lock().indexes.iter().flat_map(|(_, wanted)| wanted) {
            all.entry(kind.clone()).or_default().extend(namespaces.iter().cloned());
        }
        all
    }

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
        for (index, _) in kinds.indexes.iter().filter(|(_, wanted)| wanted.contains_key(kind)) {
            index.apply(change.clone());
        }
    }

    #[cfg(test)]
    pub(super) fn keeps_nothing(&self) -> bool {
        self.shared.is_empty() && self.kinds.lock().indexes.is_empty()
    }

    fn set(&self, kind: &KindRef, key: &ObjectKey, template: Option<Template>, change: &Change) {
        // Locked to the end, so that an index that was removed doesn't change any more.
        let kinds = self.kinds.lock();
        self.shared.set(kind, key, template);
        let key = (kind.clone(), key.clone());
        for (index, _) in kinds.indexes.iter().filter(|(index, _)| index.names_template(&key)) {
            index.apply(change.clone());
        }
    }
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
