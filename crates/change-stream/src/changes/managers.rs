//! Finds the authors of a change in the object's `metadata.managedFields`, where the API server records which manager
//! owns which fields and when it last changed one. A delete leaves no record there.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, value::RawValue};

use super::pattern::unescape;

/// A field manager that made a change.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangedBy {
    /// Its name, such as `kubectl-edit`.
    pub manager: String,
    /// `Apply` or `Update`.
    pub operation: String,
    /// The subresource that it wrote, such as `status`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subresource: Option<String>,
    /// The time of the manager's last write, in whole seconds of the API server's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
}

/// One entry of `managedFields`. Two are equal if they say the same, in whatever form.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    by: ChangedBy,
    api_version: String,
    /// The JSON text of `fieldsV1` as it came: it is seldom parsed, and a tree would take many times the memory.
    fields: Box<str>,
}

impl Entry {
    /// Returns its memory, in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.api_version.len() + self.fields.len()
    }

    /// Returns true if both own the same fields, in whatever order and form their texts have them.
    fn owns_the_same(&self, other: &Self) -> bool {
        let fields = |entry: &Self| serde_json::from_str::<Value>(&entry.fields).ok();
        self.fields == other.fields || fields(self).is_some_and(|own| Some(own) == fields(other))
    }

    fn is_same_manager(&self, other: &Self) -> bool {
        self.by.manager == other.by.manager
            && self.by.operation == other.by.operation
            && self.by.subresource == other.by.subresource
            && self.api_version == other.api_version
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.by == other.by && self.api_version == other.api_version && self.owns_the_same(other)
    }
}

/// An entry of `managedFields` as an API server writes it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EntryJson<'a> {
    manager: String,
    operation: String,
    subresource: Option<String>,
    time: Option<String>,
    api_version: String,
    #[serde(borrow, rename = "fieldsV1")]
    fields: &'a RawValue,
}

impl From<EntryJson<'_>> for Entry {
    fn from(json: EntryJson<'_>) -> Self {
        let EntryJson { manager, operation, subresource, time, api_version, fields } = json;
        let some = |text: Option<String>| text.filter(|text| !text.is_empty());
        let by = ChangedBy { manager, operation, subresource: some(subresource), time: some(time) };
        Self { by, api_version, fields: fields.get().into() }
    }
}

/// Parses the text of `managedFields`; a malformed field counts as empty.
pub(super) fn entries(managed_fields: &str) -> Vec<Entry> {
    if let Ok(entries) = serde_json::from_str::<Vec<EntryJson<'_>>>(managed_fields) {
        return entries.into_iter().map(Entry::from).collect();
    }
    let entry = |value: &Value| {
        let text = |key: &str| value[key].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let by = ChangedBy {
            manager: text("manager").unwrap_or_default(),
            operation: text("operation").unwrap_or_default(),
            subresource: text("subresource"),
            time: text("time"),
        };
        Entry { by, api_version: text("apiVersion").unwrap_or_default(), fields: value["fieldsV1"].to_string().into() }
    };
    let odd: Value = serde_json::from_str(managed_fields).unwrap_or_default();
    odd.as_array().map(|entries| entries.iter().map(entry).collect()).unwrap_or_default()
}

/// The input from which the authors of a change are found.
pub(super) struct Evidence<'a> {
    pub(super) old: &'a [Entry],
    pub(super) new: &'a [Entry],
    /// The object after the change.
    pub(super) object: &'a Value,
    /// The JSON pointers at which the object changed.
    pub(super) pointers: &'a [String],
}

impl Evidence<'_> {
    /// Returns the authors of the change: the managers that are new or whose time advanced. Times are whole seconds, so
    /// that another change within the same second advances none. Then the authors are the managers whose fields
    /// changed, or else those with the latest time that own a changed path.
    pub(super) fn changed_by(&self) -> Vec<ChangedBy> {
        let before = |entry: &Entry| self.old.iter().find(|old| old.is_same_manager(entry));
        let moved = |entry: &Entry| before(entry).is_none_or(|old| old.by.time != entry.by.time);
        let regrown = |entry: &Entry| before(entry).is_none_or(|old| !old.owns_the_same(entry));
        let by = self.those(moved);
        if !by.is_empty() {
            return by;
        }
        let by = self.those(regrown);
        if !by.is_empty() {
            return by;
        }
        let last = self.new.iter().filter_map(|entry| entry.by.time.clone()).max();
        self.those(|entry| entry.by.time == last && self.owns_something(entry))
    }

    fn those(&self, made: impl Fn(&Entry) -> bool) -> Vec<ChangedBy> {
        self.new.iter().filter(|entry| made(entry)).map(|entry| entry.by.clone()).collect()
    }

    fn owns_something(&self, entry: &Entry) -> bool {
        let Ok(Value::Object(fields)) = serde_json::from_str(&entry.fields) else { return false };
        let segments = |pointer: &String| pointer.split('/').skip(1).map(unescape).collect();
        let paths: Vec<Vec<String>> = self.pointers.iter().map(segments).collect();
        owns_any(&fields, &paths.iter().map(Vec::as_slice).collect::<Vec<_>>(), self.object)
    }
}

/// Returns every manager that has an entry: all took part in making a new object.
pub(super) fn all(entries: &[Entry]) -> Vec<ChangedBy> {
    entries.iter().map(|entry| entry.by.clone()).collect()
}

/// Returns true if a set of fields owns one of these paths, or a path below or above one. Paths with a common prefix
/// are walked together, so that the time grows with the sum of paths and fields rather than their product: a user who
/// can write long lists into an object must not be able to keep a thread busy.
fn owns_any(fields: &Map<String, Value>, paths: &[&[String]], value: &Value) -> bool {
    let mut steps: BTreeMap<&str, Vec<&[String]>> = BTreeMap::new();
    for path in paths {
        let Some((first, rest)) = path.split_first() else { return true };
        steps.entry(first).or_default().push(rest);
    }
    let owns_below = |field: &Value, rest: &[&[String]], below: &Value| match field {
        Value::Object(field) if field.is_empty() => true,
        Value::Object(field) => owns_any(field, rest, below),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => true,
    };
    if let Value::Array(items) = value {
        let owned = OwnedItems::of(fields);
        return steps.into_iter().any(|(step, rest)| {
            let index = step.parse().ok();
            let found = index.and_then(|index: usize| Some((index, items.get(index)?)));
            found.is_some_and(|(index, item)| {
                owned.field(index, item).is_some_and(|field| owns_below(field, &rest, item))
            })
        });
    }
    steps.into_iter().any(|(step, rest)| {
        let field = fields.get(&format!("f:{step}"));
        field.is_some_and(|field| owns_below(field, &rest, &value[step]))
    })
}

/// The items of a list that a set of fields owns, by their keys, their value or their index.
struct OwnedItems<'a> {
    /// The items by the values of their keys, in the order of the keys' names.
    by_keys: HashMap<String, &'a Value>,
    /// The sets of names that serve as keys.
    names: BTreeSet<Vec<String>>,
    by_value: HashMap<String, &'a Value>,
    by_index: HashMap<usize, &'a Value>,
}

impl<'a> OwnedItems<'a> {
    fn of(fields: &'a Map<String, Value>) -> Self {
        let (mut by_keys, mut names) = (HashMap::new(), BTreeSet::new());
        let (mut by_value, mut by_index) = (HashMap::new(), HashMap::new());
        for (key, field) in fields {
            match key.split_at_checked(2) {
                Some(("k:", keys)) => {
                    if let Ok(keys) = serde_json::from_str::<BTreeMap<String, Value>>(keys) {
                        by_keys.insert(text_of(keys.iter().map(|(name, value)| (name.as_str(), value))), field);
                        names.insert(keys.into_keys().collect());
                    }
                }
                Some(("v:", value)) => {
                    if let Ok(value) = serde_json::from_str::<Value>(value) {
                        by_value.insert(value.to_string(), field);
                    }
                }
                Some(("i:", index)) => {
                    if let Ok(index) = index.parse() {
                        by_index.insert(index, field);
                    }
                }
                Some(_) | None => {}
            }
        }
        Self { by_keys, names, by_value, by_index }
    }

    /// Returns the field that owns this item.
    fn field(&self, index: usize, item: &Value) -> Option<&'a Value> {
        let by_keys = || {
            self.names.iter().find_map(|names| {
                let keys = names.iter().map(|name| Some((name.as_str(), item.get(name)?)));
                self.by_keys.get(&text_of(keys.collect::<Option<Vec<_>>>()?.into_iter())).copied()
            })
        };
        let by_value = || (!self.by_value.is_empty()).then(|| self.by_value.get(&item.to_string()).copied()).flatten();
        by_keys().or_else(by_value).or_else(|| self.by_index.get(&index).copied())
    }
}

/// Returns the keys of an item as JSON.
fn text_of<'a>(keys: impl Iterator<Item = (&'a str, &'a Value)>) -> String {
    Value::Object(keys.map(|(name, value)| (name.to_owned(), value.clone())).collect()).to_string()
}
