//! Who changed an object, read from its `metadata.managedFields`: the API server writes there which manager owns which
//! fields and when it last changed one. A delete leaves no trace there.

use serde::Serialize;
use serde_json::{Map, Value};

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
    /// When, to the second, by the API server's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
}

/// One entry of `managedFields`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Entry {
    by: ChangedBy,
    api_version: String,
    /// As text: it is seldom looked into, and a tree would be many times its size.
    fields: Box<str>,
}

impl Entry {
    fn is_same_manager(&self, other: &Self) -> bool {
        self.by.manager == other.by.manager
            && self.by.operation == other.by.operation
            && self.by.subresource == other.by.subresource
            && self.api_version == other.api_version
    }
}

/// The entries, read leniently.
pub(super) fn entries(managed_fields: &Value) -> Vec<Entry> {
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
    managed_fields.as_array().map(|entries| entries.iter().map(entry).collect()).unwrap_or_default()
}

/// What a change is judged by.
pub(super) struct Evidence<'a> {
    pub(super) old: &'a [Entry],
    pub(super) new: &'a [Entry],
    /// The changed object.
    pub(super) object: &'a Value,
    /// Where it changed, as JSON pointers.
    pub(super) pointers: &'a [String],
}

impl Evidence<'_> {
    /// Who made the change: managers that are new or whose time moved on. Times are whole seconds, so that the second
    /// change of one second moves none: then those whose fields changed, or else those that wrote last of all who own
    /// what changed.
    pub(super) fn changed_by(&self) -> Vec<ChangedBy> {
        let before = |entry: &Entry| self.old.iter().find(|old| old.is_same_manager(entry)).cloned();
        let moved = |entry: &Entry| before(entry).is_none_or(|old| old.by.time != entry.by.time);
        let regrown = |entry: &Entry| before(entry).is_none_or(|old| old.fields != entry.fields);
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
        let owns = |pointer: &String| {
            let segments: Vec<_> = pointer.split('/').skip(1).map(unescape).collect();
            owns(&fields, &segments, self.object)
        };
        self.pointers.iter().any(owns)
    }
}

/// Everyone who has an entry: of a new object, whoever took part in making it.
pub(super) fn all(entries: &[Entry]) -> Vec<ChangedBy> {
    entries.iter().map(|entry| entry.by.clone()).collect()
}

/// Whether a set of fields has this path in it, or something below or above it.
fn owns(fields: &Map<String, Value>, path: &[String], value: &Value) -> bool {
    let Some((first, rest)) = path.split_first() else { return true };
    let (field, below) = match value {
        Value::Array(items) => {
            let Some((index, item)) = first.parse().ok().and_then(|index: usize| Some((index, items.get(index)?)))
            else {
                return false;
            };
            (fields.iter().find(|(key, _)| means_item(key, index, item)).map(|(_, field)| field), item)
        }
        _ => (fields.get(&format!("f:{first}")), &value[first]),
    };
    match field {
        Some(Value::Object(field)) if field.is_empty() => true,
        Some(Value::Object(field)) => owns(field, rest, below),
        Some(_) => true,
        None => false,
    }
}

/// Whether a key of a set of fields means this item of a list: by its keys, its value or its index.
fn means_item(key: &str, index: usize, item: &Value) -> bool {
    match key.split_at_checked(2) {
        Some(("k:", keys)) => match serde_json::from_str(keys) {
            Ok(Value::Object(keys)) => keys.iter().all(|(key, value)| item.get(key) == Some(value)),
            _ => false,
        },
        Some(("v:", value)) => serde_json::from_str::<Value>(value).is_ok_and(|value| value == *item),
        Some(("i:", number)) => number.parse() == Ok(index),
        _ => false,
    }
}
