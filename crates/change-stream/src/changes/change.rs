//! One change of one object, as it is reported: to programs as a line of JSON whose form is stable
//! (`docs/reference/watch.md`), to people as lines by path. Applied to the filtered old object, its RFC 6902 patch gives
//! the filtered new one. A redacted value that changed appears as the replacement of its mark by the same mark.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use json_patch::{AddOperation, Patch, PatchOperation, ReplaceOperation, jsonptr::PointerBuf};
use serde::{Serialize, Serializer, ser::SerializeStruct as _};
use serde_json::{Map, Value};

use rules::text::visible_json;

use super::{ChangedBy, Snapshot, managers, pattern::unescape, redact::Redacted};

/// The version of the form of the JSON lines. A version may gain fields; none changes its meaning or disappears.
pub const SCHEMA_VERSION: u32 = 1;

/// The changed object, and the time at which the change was observed.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The time at which the change was observed here.
    pub time: Timestamp,
    /// The cluster: `management` or `workload`.
    pub cluster: &'static str,
    /// The object's kind.
    pub kind: Arc<Kind>,
    /// The namespace, empty for a cluster-scoped object.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The uid.
    pub uid: String,
    /// The resource version after the change.
    pub resource_version: String,
}

/// The action that changed an object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Action {
    /// The object is new to this watch.
    Added {
        /// True if the object existed before the watch began.
        initial: bool,
    },
    /// The object changed.
    Modified,
    /// The object is gone.
    Deleted {
        /// True if a relist found the object missing, so that the time of its deletion is unknown.
        found_by_relist: bool,
    },
}

impl Action {
    /// Returns the event type in Kubernetes' own words, such as `ADDED`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Added { .. } => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted { .. } => "DELETED",
        }
    }
}

/// One change of one object.
#[derive(Clone, Debug)]
pub struct Change {
    /// The changed object.
    pub identity: Identity,
    /// The action: added, modified or deleted.
    pub action: Action,
    /// The patch from the filtered old object to the filtered new one; empty for a delete.
    pub patch: Patch,
    /// The field managers that made the change, as far as they can be known.
    pub changed_by: Vec<ChangedBy>,
    /// The reason why the difference can't be shown.
    pub problem: Option<String>,
    old: Option<Arc<Snapshot>>,
    new: Option<Arc<Snapshot>>,
}

impl Change {
    /// Returns the change of an object that is new.
    pub fn added(identity: Identity, new: Arc<Snapshot>, initial: bool) -> Self {
        let changed_by = managers::all(&new.managers);
        let patch = patch_between(None, &new);
        Self {
            identity,
            action: Action::Added { initial },
            patch,
            changed_by,
            problem: None,
            old: None,
            new: Some(new),
        }
    }

    /// Returns the change of an object, or `None` if only ignored fields differ.
    pub fn modified(identity: Identity, old: Arc<Snapshot>, new: Arc<Snapshot>) -> Option<Self> {
        let patch = patch_between(Some(&old), &new);
        if patch.0.is_empty() {
            return None;
        }
        let changed_by = managers::authors(&old.managers, &new.managers, &pointers_of(&patch));
        let (old, new) = (Some(old), Some(new));
        Some(Self { identity, action: Action::Modified, patch, changed_by, problem: None, old, new })
    }

    /// Returns the change of an object that is gone.
    pub fn deleted(identity: Identity, last: Option<Arc<Snapshot>>, found_by_relist: bool) -> Self {
        let action = Action::Deleted { found_by_relist };
        Self { identity, action, patch: Patch::default(), changed_by: vec![], problem: None, old: last, new: None }
    }

    /// Returns the change of an object whose JSON can't be read.
    pub fn unreadable(identity: Identity, action: Action, problem: String) -> Self {
        let (patch, changed_by) = (Patch::default(), Vec::new());
        Self { identity, action, patch, changed_by, problem: Some(problem), old: None, new: None }
    }

    /// Returns the differences by path, for people.
    pub fn lines(&self) -> Vec<Line> {
        match (&self.old, &self.new) {
            (Some(old), Some(new)) => lines_between(old, new),
            (None, Some(new)) => lines_of(new),
            (Some(_) | None, None) => Vec::new(),
        }
    }

    /// Returns the JSON pointers at which the object changed; empty for a delete.
    pub fn pointers(&self) -> Vec<String> {
        pointers_of(&self.patch)
    }

    /// Iterates over the states of the object, the newest first.
    pub fn states(&self) -> impl Iterator<Item = &Value> {
        [&self.new, &self.old].into_iter().flatten().map(|snapshot| &snapshot.value)
    }

    /// Returns the object's name for people: `Machine team-a/one`.
    pub fn object(&self) -> String {
        let Identity { kind, namespace, name, .. } = &self.identity;
        let separator = if namespace.is_empty() { "" } else { "/" };
        format!("{} {namespace}{separator}{name}", kind.kind)
    }

    /// Returns the change as a line of JSON, without the newline.
    pub fn to_json(&self) -> String {
        // This can't fail, since all keys of maps are strings.
        visible_json(serde_json::to_string(self).unwrap_or_default())
    }

    /// Returns [`Change::to_json`], without the patch if the line would be longer than `limit` bytes.
    pub(crate) fn to_json_within(&self, limit: usize) -> String {
        let whole = self.to_json();
        if whole.len() <= limit {
            return whole;
        }
        let patch = Patch::default();
        let problem = Some(format!("the change has {} bytes, too many to show", whole.len()));
        Self { patch, problem, ..self.clone() }.to_json()
    }
}

impl Serialize for Change {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Identity { time, cluster, kind, namespace, name, uid, resource_version } = &self.identity;
        let mut line = serializer.serialize_struct("Change", 16)?;
        line.serialize_field("schemaVersion", &SCHEMA_VERSION)?;
        line.serialize_field("time", &format!("{time:.3}"))?;
        line.serialize_field("type", self.action.name())?;
        match self.action {
            Action::Added { initial: true } => line.serialize_field("initial", &true)?,
            Action::Deleted { found_by_relist: true } => line.serialize_field("foundByRelist", &true)?,
            Action::Added { initial: false } | Action::Modified | Action::Deleted { found_by_relist: false } => {}
        }
        line.serialize_field("cluster", cluster)?;
        line.serialize_field("apiVersion", &kind.api_version())?;
        line.serialize_field("kind", &kind.kind)?;
        line.serialize_field("resource", &kind.plural)?;
        if !namespace.is_empty() {
            line.serialize_field("namespace", namespace)?;
        }
        line.serialize_field("name", name)?;
        line.serialize_field("uid", uid)?;
        line.serialize_field("resourceVersion", resource_version)?;
        line.serialize_field("changedBy", &self.changed_by)?;
        line.serialize_field("patch", &self.patch)?;
        if let Some(problem) = &self.problem {
            line.serialize_field("problem", problem)?;
        }
        line.end()
    }
}

/// The kind of an object, as the API server names it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Kind {
    /// The API group, empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The kind.
    pub kind: String,
    /// The plural name, such as `machines`.
    pub plural: String,
}

impl Kind {
    /// Returns the value of `apiVersion`: `group/version`, or the version alone for the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Returns true if its objects are Secrets of the core group.
    pub fn is_secret(&self) -> bool {
        self.group.is_empty() && self.kind == "Secret"
    }
}

/// Returns the patch from old to new. A new object is one `add` of the whole.
fn patch_between(old: Option<&Snapshot>, new: &Snapshot) -> Patch {
    let Some(old) = old else {
        let whole = AddOperation { path: PointerBuf::new(), value: new.value.clone() };
        return Patch(vec![PatchOperation::Add(whole)]);
    };
    let mut patch = json_patch::diff(&old.value, &new.value);
    for pointer in changed_marks(&old.redacted, &new.redacted) {
        let Some(value) = new.value.pointer(pointer) else { continue };
        let Ok(place) = PointerBuf::parse(pointer.clone()) else { continue };
        let replace = ReplaceOperation { path: place, value: value.clone() };
        patch.0.push(PatchOperation::Replace(replace));
    }
    patch
}

/// Returns the pointers of redacted values that changed. A value that was added or removed isn't among them: its mark
/// was.
fn changed_marks<'a>(old: &'a Redacted, new: &'a Redacted) -> impl Iterator<Item = &'a String> {
    new.iter().filter(|(pointer, digest)| old.get(*pointer).is_some_and(|old| old != *digest)).map(|(p, _)| p)
}

fn pointers_of(patch: &Patch) -> Vec<String> {
    patch.0.iter().map(|operation| operation.path().to_string()).collect()
}

/// The keys that may name an item of a list, in order of preference.
const ITEM_KEYS: [&str; 4] = ["type", "name", "key", "uid"];

/// One difference.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Line {
    /// The path, such as `status.conditions[Ready].status`.
    pub path: String,
    /// The difference at that path.
    pub difference: Difference,
}

/// The difference of a value; values are JSON.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Difference {
    /// The value is new.
    Added(String),
    /// The value is gone.
    Removed(String),
    /// The old value and the new one.
    Changed(String, String),
    /// The value changed and is redacted.
    Redacted,
}

fn lines_between(old: &Snapshot, new: &Snapshot) -> Vec<Line> {
    let mut lines = Vec::new();
    compare(&old.value, &new.value, "", &mut lines);
    // A new `observedGeneration` in every condition is noise beside other changes.
    if lines.iter().any(|line| !is_observed_generation(line)) {
        lines.retain(|line| !is_observed_generation(line));
    }
    for pointer in changed_marks(&old.redacted, &new.redacted) {
        lines.push(Line { path: path_of(pointer, &new.value), difference: Difference::Redacted });
    }
    lines
}

/// Returns true if the line is about the `observedGeneration` of a condition.
fn is_observed_generation(line: &Line) -> bool {
    line.path.contains("conditions[") && line.path.ends_with("].observedGeneration")
}

/// Returns all fields of a new object, except those that identify it and its creation time.
fn lines_of(new: &Snapshot) -> Vec<Line> {
    let mut lines = Vec::new();
    flatten(&new.value, "", &mut lines);
    let named = ["apiVersion", "kind", "metadata.name", "metadata.namespace", "metadata.uid"];
    lines.retain(|line| !named.contains(&line.path.as_str()) && line.path != "metadata.creationTimestamp");
    lines
}

fn flatten(value: &Value, path: &str, lines: &mut Vec<Line>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            map.iter().for_each(|(key, value)| flatten(value, &field(path, key), lines));
        }
        value => lines.push(Line { path: path.to_owned(), difference: Difference::Added(value.to_string()) }),
    }
}

fn compare(old: &Value, new: &Value, path: &str, lines: &mut Vec<Line>) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => compare_maps(old, new, path, lines),
        (Value::Array(old), Value::Array(new)) => compare_lists(old, new, path, lines),
        (old, new) if old == new => {}
        (old, new) => lines
            .push(Line { path: path.to_owned(), difference: Difference::Changed(old.to_string(), new.to_string()) }),
    }
}

fn compare_maps(old: &Map<String, Value>, new: &Map<String, Value>, path: &str, lines: &mut Vec<Line>) {
    // The transition time of a condition is noise beside the transition itself.
    let is_condition = new.contains_key("type") && new.contains_key("lastTransitionTime");
    let differs = |key: &str| old.get(key) != new.get(key);
    let folded = is_condition && ["status", "reason", "message"].into_iter().any(differs);
    let keys: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    for key in keys.into_iter().filter(|key| !(folded && *key == "lastTransitionTime")) {
        both(old.get(key), new.get(key), &field(path, key), lines);
    }
}

fn both(old: Option<&Value>, new: Option<&Value>, path: &str, lines: &mut Vec<Line>) {
    let mut line = |difference| lines.push(Line { path: path.to_owned(), difference });
    match (old, new) {
        (Some(old), Some(new)) => compare(old, new, path, lines),
        (Some(old), None) => line(Difference::Removed(old.to_string())),
        (None, Some(new)) => line(Difference::Added(new.to_string())),
        (None, None) => {}
    }
}

fn compare_lists(old: &[Value], new: &[Value], path: &str, lines: &mut Vec<Line>) {
    if old == new {
        return;
    }
    if let Some(key) = ITEM_KEYS.into_iter().find(|key| names_items(key, old) && names_items(key, new)) {
        return compare_named(key, old, new, path, lines);
    }
    let scalar = |value: &Value| !value.is_object() && !value.is_array();
    if old.iter().chain(new).all(scalar) {
        let (gone, come) = (without(old, new), without(new, old));
        let line = |difference| Line { path: path.to_owned(), difference };
        if !(gone.is_empty() && come.is_empty()) {
            lines.extend(gone.into_iter().map(|value| line(Difference::Removed(value))));
            lines.extend(come.into_iter().map(|value| line(Difference::Added(value))));
            return;
        }
    }
    for index in 0..old.len().max(new.len()) {
        both(old.get(index), new.get(index), &format!("{path}[{index}]"), lines);
    }
}

/// Compares items by name. If only their order changed, the result is one line.
fn compare_named(key: &str, old: &[Value], new: &[Value], path: &str, lines: &mut Vec<Line>) {
    fn name<'a>(item: &'a Value, key: &str) -> &'a str {
        item[key].as_str().unwrap_or_default()
    }
    // Maps avoid a quadratic search, since users control the length of a list.
    fn by_name<'a>(items: &'a [Value], key: &str) -> BTreeMap<&'a str, &'a Value> {
        items.iter().map(|item| (name(item, key), item)).collect()
    }
    let (olds, news) = (by_name(old, key), by_name(new, key));
    let before = lines.len();
    let gone = old.iter().filter(|item| !news.contains_key(name(item, key)));
    for named in new.iter().chain(gone).map(|item| name(item, key)) {
        both(olds.get(named).copied(), news.get(named).copied(), &format!("{path}[{named}]"), lines);
    }
    if lines.len() == before {
        let order = |items: &[Value]| items.iter().map(|item| name(item, key)).collect::<Vec<_>>().join(", ");
        let difference = Difference::Changed(format!("order {}", order(old)), format!("order {}", order(new)));
        lines.push(Line { path: path.to_owned(), difference });
    }
}

/// Returns true if every item has this key and each value is a unique string.
fn names_items(key: &str, items: &[Value]) -> bool {
    let names: Option<BTreeSet<_>> = items.iter().map(|item| item.get(key)?.as_str()).collect();
    names.is_some_and(|names| names.len() == items.len())
}

/// Returns the items that aren't among the others, as JSON.
fn without(items: &[Value], others: &[Value]) -> Vec<String> {
    let others: BTreeSet<_> = others.iter().map(Value::to_string).collect();
    items.iter().map(Value::to_string).filter(|item| !others.contains(item)).collect()
}

/// Returns the path of a key below a path, quoted if it isn't a plain word.
fn field(path: &str, key: &str) -> String {
    let plain = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
    match (plain, path.is_empty()) {
        (true, true) => key.to_owned(),
        (true, false) => format!("{path}.{key}"),
        (false, _) => format!("{path}[{}]", Value::from(key)),
    }
}

/// Returns a JSON pointer as a path with dots.
fn path_of(pointer: &str, root: &Value) -> String {
    let mut path = String::new();
    let mut value = Some(root);
    for segment in pointer.split('/').skip(1).map(unescape) {
        let in_list = value.is_some_and(Value::is_array);
        path = if in_list { format!("{path}[{segment}]") } else { field(&path, &segment) };
        value = value.and_then(|value| match value {
            Value::Array(items) => items.get(segment.parse::<usize>().ok()?),
            value => value.get(&segment),
        });
    }
    path
}
