//! The field managers of objects: `metadata.managedFields`, updated with each write; and the sets of fields in it.
//!
//! The form is that of `fieldsV1`: `f:` before the name of a field, `k:` before the keys of a list's item, `v:` before
//! a value in a set, `.` for a map or item as such.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// The manager of a write, and the part of the object that it writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writer<'w> {
    pub(crate) manager: &'w str,
    /// `status` or `scale`; empty for the object itself.
    pub(crate) subresource: &'w str,
    pub(crate) api_version: &'w str,
    /// The time in the API's format.
    pub(crate) time: &'w str,
}

/// The operation of all writes here; a loaded object may have fields that were applied.
const UPDATE: &str = "Update";

/// The entries of an object's `managedFields`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Managers(Vec<Entry>);

#[derive(Debug, Clone)]
struct Entry {
    manager: String,
    operation: String,
    subresource: String,
    api_version: String,
    time: Value,
    fields: FieldSet,
}

impl Managers {
    pub(crate) fn of(object: &Value) -> Self {
        let list = object["metadata"]["managedFields"].as_array();
        Self(list.into_iter().flatten().map(Entry::parse).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn store(self, object: &mut Value) {
        let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
        match self.into_value() {
            None => metadata.remove("managedFields"),
            Some(list) => metadata.insert("managedFields".to_owned(), list),
        };
    }

    /// Returns the value of the field; `None` if nothing is managed.
    pub(crate) fn into_value(self) -> Option<Value> {
        let list: Vec<Value> =
            self.0.into_iter().filter(|entry| !entry.fields.is_empty()).map(Entry::into_value).collect();
        (!list.is_empty()).then_some(Value::Array(list))
    }

    /// Records that the writer has changed an object from `old` to `new`.
    pub(crate) fn update(&mut self, writer: Writer<'_>, old: &Value, new: &Value, is_core: bool) {
        let changed = FieldSet::changed(old, new, is_core);
        let gone = FieldSet::of(old, is_core).without(&FieldSet::of(new, is_core));
        self.drop_fields(&gone, |_| true);
        if changed.is_empty() {
            return;
        }
        self.drop_fields(&changed, |entry| !entry.is_of(writer));
        match self.0.iter_mut().find(|entry| entry.is_of(writer)) {
            Some(entry) => {
                entry.fields.add(&changed);
                entry.time = json!(writer.time);
            }
            None => self.0.push(Entry::new(writer, changed)),
        }
    }

    fn drop_fields(&mut self, fields: &FieldSet, of: impl Fn(&Entry) -> bool) {
        for entry in self.0.iter_mut().filter(|entry| of(entry)) {
            entry.fields = entry.fields.without(fields);
        }
    }
}

impl Entry {
    fn new(writer: Writer<'_>, fields: FieldSet) -> Self {
        Self {
            manager: writer.manager.to_owned(),
            operation: UPDATE.to_owned(),
            subresource: writer.subresource.to_owned(),
            api_version: writer.api_version.to_owned(),
            time: json!(writer.time),
            fields,
        }
    }

    fn parse(entry: &Value) -> Self {
        let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
        Self {
            manager: text("manager"),
            operation: text("operation"),
            subresource: text("subresource"),
            api_version: text("apiVersion"),
            time: entry["time"].clone(),
            fields: FieldSet::parse(&entry["fieldsV1"]),
        }
    }

    fn into_value(self) -> Value {
        let mut entry = json!({
            "manager": self.manager,
            "operation": self.operation,
            "apiVersion": self.api_version,
            "time": self.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": self.fields.to_value(),
        });
        if !self.subresource.is_empty() {
            entry["subresource"] = json!(self.subresource);
        }
        entry
    }

    fn is_of(&self, writer: Writer<'_>) -> bool {
        self.manager == writer.manager && self.operation == UPDATE && self.subresource == writer.subresource
    }
}

const SELF: &str = ".";

/// A set of fields. A field without fields below it is a leaf.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct FieldSet(BTreeMap<String, FieldSet>);

impl FieldSet {
    /// Returns all fields of an object that can be owned.
    pub(crate) fn of(object: &Value, is_core: bool) -> Self {
        changed_below(&Value::Null, object, is_core, "")
    }

    /// Writes a fingerprint of everything that [`FieldSet::of`] depends on: objects with the same fingerprint have the
    /// same fields.
    pub(crate) fn write_shape(object: &Value, is_core: bool, out: &mut Vec<u8>) {
        write_shape(object, is_core, &mut String::new(), out);
    }

    /// Returns the fields of `new` that `old` lacks or has with other values.
    pub(crate) fn changed(old: &Value, new: &Value, is_core: bool) -> Self {
        changed_below(old, new, is_core, "")
    }

    pub(crate) fn parse(fields: &Value) -> Self {
        let fields = fields.as_object().into_iter().flatten();
        Self(fields.map(|(name, below)| (name.clone(), Self::parse(below))).collect())
    }

    pub(crate) fn to_value(&self) -> Value {
        Value::Object(self.0.iter().map(|(name, below)| (name.clone(), below.to_value())).collect::<Map<_, _>>())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (name, below) in &other.0 {
            self.0.entry(name.clone()).or_default().add(below);
        }
    }

    pub(crate) fn without(&self, other: &Self) -> Self {
        let rest = self.0.iter().filter_map(|(name, below)| match other.0.get(name) {
            None => Some((name.clone(), below.clone())),
            Some(_) if below.is_empty() => None,
            Some(taken) => {
                let rest = below.without(taken);
                (!rest.is_empty()).then(|| (name.clone(), rest))
            }
        });
        Self(rest.collect())
    }
}

/// Returns true if the field at `path` belongs to the API and not to a manager.
fn is_system(path: &str) -> bool {
    const SYSTEM: [&str; 11] = [
        ".apiVersion",
        ".kind",
        ".metadata.creationTimestamp",
        ".metadata.deletionGracePeriodSeconds",
        ".metadata.deletionTimestamp",
        ".metadata.generation",
        ".metadata.managedFields",
        ".metadata.name",
        ".metadata.namespace",
        ".metadata.resourceVersion",
        ".metadata.uid",
    ];
    SYSTEM.contains(&path)
}

fn changed_below(old: &Value, new: &Value, is_core: bool, path: &str) -> FieldSet {
    match new {
        Value::Object(map) => {
            let mut set = BTreeMap::new();
            for (name, value) in map {
                let path = format!("{path}.{name}");
                let before = old.get(name);
                if is_system(&path) || before == Some(value) {
                    continue;
                }
                let below = changed_below(before.unwrap_or(&Value::Null), value, is_core, &path);
                // A map that only lost fields has no changed ones.
                let only_lost = below.is_empty()
                    && before.is_some_and(Value::is_object)
                    && value.as_object().is_some_and(|map| !map.is_empty());
                let is_empty_metadata = path == ".metadata" && below.is_empty();
                if !only_lost && !is_empty_metadata {
                    set.insert(format!("f:{name}"), below);
                }
            }
            if !set.is_empty() && old.is_null() && matches!(path, ".metadata.labels" | ".metadata.annotations") {
                set.insert(SELF.to_owned(), FieldSet::default());
            }
            FieldSet(set)
        }
        Value::Array(items) => changed_items(old, items, is_core, path),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => FieldSet::default(),
    }
}

fn changed_items(old: &Value, items: &[Value], is_core: bool, path: &str) -> FieldSet {
    let before = |keys: &Map<String, Value>| {
        let old = old.as_array().into_iter().flatten();
        old.into_iter().find(|item| keys.iter().all(|(key, value)| item.get(key) == Some(value)))
    };
    let mut set = BTreeMap::new();
    match merge_keys(is_core, path) {
        None => {}
        Some([]) => {
            for item in items.iter().filter(|item| !old.as_array().is_some_and(|old| old.contains(item))) {
                set.insert(format!("v:{item}"), FieldSet::default());
            }
        }
        Some(keys) => {
            for item in items {
                let keys = keys_of(item, keys);
                let before = before(&keys);
                if before == Some(item) {
                    continue;
                }
                let mut below = changed_below(before.unwrap_or(&Value::Null), item, is_core, &format!("{path}[]"));
                if before.is_none() {
                    below.0.insert(SELF.to_owned(), FieldSet::default());
                }
                if !below.is_empty() {
                    set.insert(format!("k:{}", Value::Object(keys)), below);
                }
            }
        }
    }
    FieldSet(set)
}

// Bytes that never occur in UTF-8.
const END_OF_NAME: u8 = 0xfd;
const START: u8 = 0xfe;
const END: u8 = 0xff;

fn write_shape(value: &Value, is_core: bool, path: &mut String, out: &mut Vec<u8>) {
    let outer = path.len();
    match value {
        Value::Object(map) => {
            out.push(START);
            for (name, value) in map {
                path.push('.');
                path.push_str(name);
                if !is_system(path) {
                    out.extend_from_slice(name.as_bytes());
                    out.push(END_OF_NAME);
                    write_shape(value, is_core, path, out);
                }
                path.truncate(outer);
            }
            out.push(END);
        }
        Value::Array(items) => match merge_keys(is_core, path) {
            None => {}
            Some([]) => out.extend_from_slice(Value::from(items.clone()).to_string().as_bytes()),
            Some(keys) => {
                path.push_str("[]");
                out.push(START);
                for item in items {
                    out.extend_from_slice(Value::Object(keys_of(item, keys)).to_string().as_bytes());
                    write_shape(item, is_core, path, out);
                }
                out.push(END);
                path.truncate(outer);
            }
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Returns the key fields of a list's item.
fn keys_of(item: &Value, keys: &[&str]) -> Map<String, Value> {
    keys.iter()
        .filter_map(|key| {
            let value = item.get(key).cloned();
            // The only key that the API fills in.
            let value = value.or_else(|| (*key == "protocol").then(|| Value::String("TCP".to_owned())));
            Some(((*key).to_owned(), value?))
        })
        .collect()
}

/// Returns the keys of the list at `path`, the first of which identifies an item in a patch; no keys for a set of plain
/// values, and `None` for a list that is one value. Items of lists are written `[]`.
pub(crate) fn merge_keys(is_core: bool, path: &str) -> Option<&'static [&'static str]> {
    match path {
        ".metadata.ownerReferences" => return Some(&["uid"]),
        ".metadata.finalizers" => return Some(&[]),
        _ if !is_core => return None,
        _ => {}
    }
    Some(match path.rsplit('.').next().unwrap_or_default() {
        "addresses" | "conditions" => &["type"],
        "containers"
        | "env"
        | "ephemeralContainers"
        | "imagePullSecrets"
        | "initContainers"
        | "secrets"
        | "volumes" => &["name"],
        "hostAliases" | "podIPs" => &["ip"],
        "podCIDRs" => &[],
        "ports" if path.ends_with("[].ports") => &["containerPort", "protocol"],
        "ports" => &["port", "protocol"],
        "topologySpreadConstraints" => &["topologyKey", "whenUnsatisfiable"],
        "volumeDevices" => &["devicePath"],
        "volumeMounts" => &["mountPath"],
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_fields_of_an_object_are_named_as_managed_fields_name_them() {
        let node = json!({
            "metadata": {"name": "n", "labels": {"a": "b"}, "finalizers": ["x"], "ownerReferences": [{"uid": "u", "name": "o"}]},
            "spec": {"taints": [{"key": "k"}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        let expected = json!({
            "f:metadata": {
                "f:labels": {".": {}, "f:a": {}},
                "f:finalizers": {"v:\"x\"": {}},
                "f:ownerReferences": {"k:{\"uid\":\"u\"}": {".": {}, "f:uid": {}, "f:name": {}}},
            },
            "f:spec": {"f:taints": {}},
            "f:status": {"f:conditions": {"k:{\"type\":\"Ready\"}": {".": {}, "f:type": {}, "f:status": {}}}},
        });
        assert_eq!(FieldSet::of(&node, true).to_value(), expected);
    }

    #[test]
    fn only_what_differs_has_changed() {
        let old = json!({"spec": {"replicas": 1, "paused": true}, "metadata": {"labels": {"a": "b"}}});
        let new = json!({"spec": {"replicas": 2}, "metadata": {"labels": {"a": "b", "c": "d"}}});
        let changed = FieldSet::changed(&old, &new, false).to_value();
        let expected = json!({"f:metadata": {"f:labels": {"f:c": {}}}, "f:spec": {"f:replicas": {}}});
        assert_eq!(changed, expected);
        let gone = FieldSet::of(&old, false).without(&FieldSet::of(&new, false));
        assert_eq!(gone.to_value(), json!({"f:spec": {"f:paused": {}}}));
    }
}
