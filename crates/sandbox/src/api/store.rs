//! The objects by kind, their revisions, and their owners. The store must know no rule of the API; those are checked
//! before anything is stored.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    ops::Bound,
    sync::Arc,
};

use serde_json::{Value, json};

use super::{
    core_kinds,
    history::{Change, ChangeKind, Forgotten, History},
    kind::{KindSpec, Resource, VersionSpec, api_version},
    object::{Object, ObjectKey, SharedFields, owners, text},
    refusal::{FieldCause, Refusal},
};

/// The id of a kind in this store, which stays the same while the kind exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct KindId(usize);

/// The location of an object: its kind and key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    pub(crate) kind: KindId,
    pub(crate) key: ObjectKey,
}

/// The objects of one kind and their history.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) spec: Arc<KindSpec>,
    pub(crate) objects: BTreeMap<ObjectKey, Arc<Object>>,
    pub(crate) history: Arc<History>,
}

/// The number of uids of removed objects that are remembered.
const REMEMBERED: usize = 4_096;

#[derive(Debug)]
pub(crate) struct Store {
    revision: u64,
    tables: BTreeMap<KindId, Table>,
    names: BTreeMap<(String, String), KindId>,
    next_kind: usize,
    uids: HashMap<String, Place>,
    dependents: HashMap<String, BTreeSet<Place>>,
    /// The removed objects whose dependents haven't been processed yet.
    pub(crate) gone: VecDeque<Arc<Object>>,
    /// The uids of the objects that were removed last, oldest first.
    removed: VecDeque<String>,
    history_limit: usize,
}

impl Store {
    pub(crate) fn new(history_limit: usize) -> Self {
        Self {
            // No object has revision 0 or 1, so that "from the start" differs from "any state".
            revision: 1,
            tables: BTreeMap::new(),
            names: BTreeMap::new(),
            next_kind: 0,
            uids: HashMap::new(),
            dependents: HashMap::new(),
            gone: VecDeque::new(),
            removed: VecDeque::new(),
            history_limit,
        }
    }

    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// Defines a kind, or replaces its definition; its objects stay.
    pub(crate) fn define(&mut self, spec: KindSpec) -> KindId {
        let name = (spec.group.clone(), spec.plural.clone());
        let spec = Arc::new(spec);
        if let Some(&id) = self.names.get(&name)
            && let Some(table) = self.tables.get_mut(&id)
        {
            let is_served_otherwise = !table.spec.served_versions().eq(spec.served_versions());
            table.spec = spec;
            if is_served_otherwise {
                // An API server serves the kind anew, and ends the watches from before.
                let anew = Arc::new(table.history.anew());
                std::mem::replace(&mut table.history, anew).end();
            }
            return id;
        }
        let id = KindId(self.next_kind);
        self.next_kind += 1;
        let history = Arc::new(History::new(self.revision, self.history_limit));
        self.tables.insert(id, Table { spec, objects: BTreeMap::new(), history });
        self.names.insert(name, id);
        id
    }

    /// Removes a kind: its objects are removed one by one, and its watches end.
    pub(crate) fn undefine(&mut self, id: KindId) {
        let keys: Vec<ObjectKey> =
            self.tables.get(&id).into_iter().flat_map(|table| table.objects.keys().cloned()).collect();
        for key in keys {
            self.remove(&Place { kind: id, key });
        }
        if let Some(table) = self.tables.remove(&id) {
            table.history.end();
        }
        self.names.retain(|_, named| *named != id);
    }

    pub(crate) fn find(&self, group: &str, plural: &str) -> Option<KindId> {
        // The lookup needs an owned pair; names are short and few.
        self.names.get(&(group.to_owned(), plural.to_owned())).copied()
    }

    pub(crate) fn find_kind(&self, group: &str, kind: &str) -> Option<KindId> {
        self.tables.iter().find(|(_, table)| table.spec.group == group && table.spec.kind == kind).map(|(&id, _)| id)
    }

    pub(crate) fn table(&self, id: KindId) -> Option<&Table> {
        self.tables.get(&id)
    }

    pub(crate) fn tables(&self) -> impl Iterator<Item = (KindId, &Table)> {
        self.tables.iter().map(|(&id, table)| (id, table))
    }

    pub(crate) fn get(&self, place: &Place) -> Option<&Arc<Object>> {
        self.tables.get(&place.kind)?.objects.get(&place.key)
    }

    pub(crate) fn place_of(&self, uid: &str) -> Option<&Place> {
        self.uids.get(uid)
    }

    /// Returns true if the object of this uid was removed, and not long ago.
    pub(crate) fn was_removed(&self, uid: &str) -> bool {
        self.removed.iter().any(|removed| removed == uid)
    }

    /// Returns the locations of the objects with an owner of this uid.
    pub(crate) fn dependents(&self, uid: &str) -> impl Iterator<Item = &Place> {
        self.dependents.get(uid).into_iter().flatten()
    }

    /// Stores a state of an object with the next revision. Returns the stored state.
    pub(crate) fn put(&mut self, kind: KindId, value: Value) -> Option<Arc<Object>> {
        let table = self.tables.get_mut(&kind)?;
        self.revision += 1;
        let object = Arc::new(Object::new(value, self.revision));
        let previous = table.insert(&object, self.revision);
        let place = Place { kind, key: object.key().clone() };
        if let Some(previous) = previous {
            self.unlink(&place, previous.value());
        }
        self.link(&place, object.value());
        Some(object)
    }

    /// Stores a loaded object; `fields` are its `managedFields`, unless it has its own.
    pub(crate) fn load(
        &mut self,
        kind: KindId,
        value: Value,
        fields: Option<Arc<SharedFields>>,
    ) -> Option<Arc<Object>> {
        let place = Place { kind, key: ObjectKey::of(&value) };
        if let Some(previous) = self.get(&place).cloned() {
            self.unlink(&place, previous.value());
        }
        self.link(&place, &value);
        let table = self.tables.get_mut(&kind)?;
        self.revision += 1;
        let object = Arc::new(Object::loaded(value, fields, Arc::clone(&table.spec), self.revision));
        table.insert(&object, self.revision);
        Some(object)
    }

    /// Removes an object. Returns its last state, with the revision of the removal.
    pub(crate) fn remove(&mut self, place: &Place) -> Option<Arc<Object>> {
        let table = self.tables.get_mut(&place.kind)?;
        let previous = table.objects.remove(&place.key)?;
        self.revision += 1;
        let last = Arc::new(previous.at(self.revision));
        table.history.push(Change {
            revision: self.revision,
            kind: ChangeKind::Deleted,
            object: Arc::clone(&last),
            previous: Some(Arc::clone(&previous)),
        });
        self.unlink(place, previous.value());
        if self.removed.len() == REMEMBERED {
            self.removed.pop_front();
        }
        self.removed.push_back(text(last.value(), "uid").to_owned());
        self.gone.push_back(Arc::clone(&last));
        Some(last)
    }

    pub(crate) fn forget_history(&self) {
        for table in self.tables.values() {
            table.history.forget(self.revision);
        }
    }

    /// Drops all history of each kind but the last `count` changes.
    pub(crate) fn keep_history(&self, count: usize) {
        for table in self.tables.values() {
            table.history.keep(count);
        }
    }

    fn link(&mut self, place: &Place, value: &Value) {
        let uid = text(value, "uid");
        if !uid.is_empty() {
            self.uids.insert(uid.to_owned(), place.clone());
        }
        for owner in owners(value) {
            self.dependents.entry(owner.to_owned()).or_default().insert(place.clone());
        }
    }

    fn unlink(&mut self, place: &Place, value: &Value) {
        self.uids.remove(text(value, "uid"));
        for owner in owners(value) {
            if let Some(places) = self.dependents.get_mut(owner) {
                places.remove(place);
                if places.is_empty() {
                    self.dependents.remove(owner);
                }
            }
        }
    }
}

impl Table {
    fn insert(&mut self, object: &Arc<Object>, revision: u64) -> Option<Arc<Object>> {
        let previous = self.objects.insert(object.key().clone(), Arc::clone(object));
        let kind = if previous.is_some() { ChangeKind::Modified } else { ChangeKind::Added };
        self.history.push(Change { revision, kind, object: Arc::clone(object), previous: previous.clone() });
        previous
    }

    /// Visits the objects in order, as they were at `revision` if given: those after the key `after` if given, and only
    /// those of `namespace` unless it is empty. Stops when `visit` returns false.
    pub(crate) fn walk(
        &self,
        revision: Option<u64>,
        namespace: &str,
        after: Option<&ObjectKey>,
        mut visit: impl FnMut(&Arc<Object>) -> bool,
    ) -> Result<(), Forgotten> {
        let earlier = revision.map(|revision| self.earlier(revision)).transpose()?.unwrap_or_default();
        let first = ObjectKey::new(namespace, "");
        let start = match after {
            Some(key) if *key >= first => Bound::Excluded(key),
            Some(_) | None => Bound::Included(&first),
        };
        let inside = |key: &ObjectKey| namespace.is_empty() || key.namespace == namespace;
        let mut now = self.objects.range::<ObjectKey, _>((start, Bound::Unbounded)).peekable();
        let mut then = earlier.range::<ObjectKey, _>((start, Bound::Unbounded)).peekable();
        loop {
            let take_then = match (now.peek(), then.peek()) {
                (None, None) => break,
                (Some(_), None) => false,
                (None, Some(_)) => true,
                (Some((now_key, _)), Some((then_key, _))) => then_key <= now_key,
            };
            let (key, object) = if take_then {
                let Some((key, state)) = then.next() else { break };
                // The current state is skipped if the object has changed since.
                now.next_if(|(now_key, _)| *now_key == key);
                (key, state.as_ref())
            } else {
                let Some((key, object)) = now.next() else { break };
                (key, Some(object))
            };
            if !inside(key) {
                break;
            }
            if let Some(object) = object
                && !visit(object)
            {
                break;
            }
        }
        Ok(())
    }

    /// Returns the states at `revision` of all objects that have changed since, `None` for those that didn't exist.
    fn earlier(&self, revision: u64) -> Result<BTreeMap<ObjectKey, Option<Arc<Object>>>, Forgotten> {
        let mut earlier = BTreeMap::new();
        for change in self.history.after(revision)?.list.iter().rev() {
            earlier.insert(change.object.key().clone(), change.previous.clone());
        }
        Ok(earlier)
    }
}

/// A kind, and the version in which a client addresses it.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) id: KindId,
    pub(crate) spec: Arc<KindSpec>,
    pub(crate) version: VersionSpec,
}

impl Target {
    pub(crate) fn find(store: &Store, resource: &Resource) -> Result<Self, Refusal> {
        let found = Self::defined(store, resource)?;
        if found.version.served { Ok(found) } else { Err(Refusal::no_such_resource()) }
    }

    /// Returns the kind that defines `resource`, served or not.
    pub(crate) fn defined(store: &Store, resource: &Resource) -> Result<Self, Refusal> {
        store
            .find(&resource.group, &resource.plural)
            .and_then(|id| {
                let spec = Arc::clone(&store.table(id)?.spec);
                let version = spec.versions.iter().find(|version| version.name == resource.version)?.clone();
                Some(Self { id, spec, version })
            })
            .ok_or_else(Refusal::no_such_resource)
    }

    pub(crate) fn stored(store: &Store, id: KindId) -> Option<Self> {
        let spec = Arc::clone(&store.table(id)?.spec);
        let version = spec.versions.get(spec.storage)?.clone();
        Some(Self { id, spec, version })
    }

    pub(crate) fn api_version(&self) -> String {
        api_version(&self.spec.group, &self.version.name)
    }

    pub(crate) fn storage_api_version(&self) -> String {
        self.spec.storage_resource().api_version()
    }

    /// Checks that an object is of this kind and version, and fills in what it omits.
    pub(crate) fn check_type(&self, value: &mut Value) -> Result<(), Refusal> {
        let expected = self.api_version();
        let given = value["apiVersion"].as_str().unwrap_or_default();
        if !given.is_empty() && given != expected {
            return Err(Refusal::bad_request(format!(
                "the API version in the data ({given}) does not match the expected API version ({expected})"
            )));
        }
        let kind = value["kind"].as_str().unwrap_or_default();
        if !kind.is_empty() && kind != self.spec.kind {
            if !self.spec.rules.strategic {
                let why = format!("must be {}", self.spec.kind);
                let cause = FieldCause::invalid("kind", &format!("{kind:?}"), &why);
                return Err(Refusal::invalid(&self.spec, text(value, "name"), &[cause]));
            }
            return Err(Refusal::bad_request(format!(
                "{kind} in version {:?} cannot be handled as a {}: no kind {kind:?} is registered for this resource",
                self.version.name, self.spec.kind
            )));
        }
        value["apiVersion"] = json!(expected);
        value["kind"] = json!(self.spec.kind);
        core_kinds::check_types(&self.spec, value)
    }
}
