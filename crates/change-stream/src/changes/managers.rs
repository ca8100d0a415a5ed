//! Finds the authors of a change in the object's `metadata.managedFields`, where the API server records which manager
//! owns which fields and when it last changed one. A delete leaves no record there.

use serde::Serialize;
use serde_json::Value;

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

/// One entry of `managedFields`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    by: ChangedBy,
    api_version: String,
    /// The JSON text of `fieldsV1`: a tree would take many times the memory.
    fields: Box<str>,
}

impl Entry {
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.api_version.len() + self.fields.len()
    }

    fn owns_any(&self, pointers: &[String]) -> bool {
        let fields: Value = serde_json::from_str(&self.fields).unwrap_or_default();
        fields.is_object() && pointers.iter().any(|pointer| owns(&fields, pointer))
    }

    fn is_same_manager(&self, other: &Self) -> bool {
        self.by.manager == other.by.manager
            && self.by.operation == other.by.operation
            && self.by.subresource == other.by.subresource
            && self.api_version == other.api_version
    }
}

/// Reads `managedFields`; a malformed field counts as empty.
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
    let named = |entry: &Entry| !entry.by.manager.is_empty();
    managed_fields.as_array().into_iter().flatten().map(entry).filter(named).collect()
}

/// Returns the authors of a change: the managers that are new or whose time advanced. Times are whole seconds, so that
/// another change within the same second advances none. Then they are the managers whose fields changed, or else those
/// with the latest time that own one of the paths that changed.
pub(super) fn authors(old: &[Entry], new: &[Entry], pointers: &[String]) -> Vec<ChangedBy> {
    let those = |made: &dyn Fn(&Entry) -> bool| all(new.iter().filter(|entry| made(entry)));
    let before = |entry: &Entry| old.iter().find(|old| old.is_same_manager(entry));
    let moved = those(&|entry| before(entry).is_none_or(|old| old.by.time != entry.by.time));
    if !moved.is_empty() {
        return moved;
    }
    let regrown = those(&|entry| before(entry).is_none_or(|old| old.fields != entry.fields));
    if !regrown.is_empty() {
        return regrown;
    }
    let last = new.iter().map(|entry| &entry.by.time).max();
    those(&|entry| Some(&entry.by.time) == last && entry.owns_any(pointers))
}

/// Returns true if a set of fields owns the path of a JSON pointer, or one below or above it. Items of a list count as one.
fn owns(mut fields: &Value, pointer: &str) -> bool {
    for segment in pointer.split('/').skip(1) {
        let Value::Object(owned) = fields else { return true };
        fields = match owned.get(&format!("f:{}", unescape(segment))) {
            Some(below) => below,
            None => {
                return owned.is_empty()
                    || owned.keys().any(|key| ["k:", "v:", "i:"].into_iter().any(|of_item| key.starts_with(of_item)));
            }
        };
    }
    true
}

/// Returns the managers of these entries: all took part in making a new object.
pub(super) fn all<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Vec<ChangedBy> {
    entries.into_iter().map(|entry| entry.by.clone()).collect()
}
