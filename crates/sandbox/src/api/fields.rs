//! Sets of fields as in `managedFields`: the fields of an object, those that a write has changed, and those that it has
//! removed.
//!
//! The form is that of `fieldsV1`: `f:` before the name of a field, `k:` before the keys of a list's item, `v:` before
//! a value in a set, `.` for a map or item as such.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::lists::{ListType, Lists};

const SELF: &str = ".";

/// A set of fields. A field without fields below it is a leaf.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct FieldSet(BTreeMap<String, FieldSet>);

impl FieldSet {
    /// Returns all fields of an object that can be owned.
    pub(crate) fn of(object: &Value, lists: &Lists) -> Self {
        below(object, lists, "")
    }

    /// Writes a fingerprint of everything that [`FieldSet::of`] depends on: objects with the same fingerprint have the
    /// same fields.
    pub(crate) fn write_shape(object: &Value, lists: &Lists, out: &mut Vec<u8>) {
        write_shape(object, lists, &mut String::new(), out);
    }

    /// Returns the fields of `new` that `old` lacks or has with other values.
    pub(crate) fn changed(old: &Value, new: &Value, lists: &Lists) -> Self {
        changed_below(old, new, lists, "")
    }

    /// Parses `fieldsV1`.
    pub(crate) fn parse(fields: &Value) -> Self {
        let fields = fields.as_object().into_iter().flatten();
        Self(fields.map(|(name, below)| (name.clone(), Self::parse(below))).collect())
    }

    /// Returns the set as `fieldsV1`.
    pub(crate) fn to_value(&self) -> Value {
        Value::Object(self.0.iter().map(|(name, below)| (name.clone(), below.to_value())).collect::<Map<_, _>>())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the fields of `other`.
    pub(crate) fn add(&mut self, other: &Self) {
        for (name, below) in &other.0 {
            self.0.entry(name.clone()).or_default().add(below);
        }
    }

    /// Returns the fields that aren't in `other`.
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

    /// Returns the fields that are in both sets.
    pub(crate) fn common(&self, other: &Self) -> Self {
        let common = self.0.iter().filter_map(|(name, below)| {
            let theirs = other.0.get(name)?;
            if below.is_empty() || theirs.is_empty() {
                return Some((name.clone(), Self::default()));
            }
            let common = below.common(theirs);
            (!common.is_empty()).then(|| (name.clone(), common))
        });
        Self(common.collect())
    }

    /// Returns the leaves as paths, such as `.spec.replicas`.
    pub(crate) fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect_paths("", &mut paths);
        paths
    }

    fn collect_paths(&self, path: &str, paths: &mut Vec<String>) {
        for (name, below) in &self.0 {
            let path = match name.split_once(':') {
                Some(("f", field)) => format!("{path}.{field}"),
                Some(("k", keys)) => {
                    format!("{path}[{}]", keys.trim_matches(['{', '}']).replace("\":", "\"=").replace('"', ""))
                }
                Some((_, value)) => format!("{path}[={value}]"),
                None => path.to_owned(),
            };
            if below.is_empty() {
                paths.push(path);
            } else {
                below.collect_paths(&path, paths);
            }
        }
    }

    /// Removes these fields from an object, and the maps and items that become empty.
    pub(crate) fn remove_from(&self, value: &mut Value) {
        match value {
            Value::Object(map) => {
                for (name, below) in &self.0 {
                    let Some(field) = name.strip_prefix("f:") else { continue };
                    let Some(inner) = map.get_mut(field) else { continue };
                    if below.is_empty() {
                        map.remove(field);
                        continue;
                    }
                    below.remove_from(inner);
                    if is_empty(inner) {
                        map.remove(field);
                    }
                }
            }
            Value::Array(items) => items.retain_mut(|item| self.keeps(item)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn keeps(&self, item: &mut Value) -> bool {
        for (name, below) in &self.0 {
            if let Some(keys) = name.strip_prefix("k:") {
                let Ok(Value::Object(keys)) = serde_json::from_str(keys) else { continue };
                if keys.iter().all(|(key, value)| item.get(key) == Some(value)) {
                    if below.is_empty() || below.0.contains_key(SELF) {
                        return false;
                    }
                    below.remove_from(item);
                }
            } else if let Some(value) = name.strip_prefix("v:")
                && serde_json::from_str::<Value>(value).is_ok_and(|value| value == *item)
            {
                return false;
            }
        }
        true
    }
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
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

fn below(value: &Value, lists: &Lists, path: &str) -> FieldSet {
    changed_below(&Value::Null, value, lists, path)
}

fn changed_below(old: &Value, new: &Value, lists: &Lists, path: &str) -> FieldSet {
    match new {
        Value::Object(map) if !lists.is_atomic_map(path) => {
            let mut set = BTreeMap::new();
            for (name, value) in map {
                let path = format!("{path}.{name}");
                let before = old.get(name);
                if is_system(&path) || before == Some(value) {
                    continue;
                }
                let below = changed_below(before.unwrap_or(&Value::Null), value, lists, &path);
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
        Value::Array(items) => changed_items(old, items, lists, path),
        Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => FieldSet::default(),
    }
}

fn changed_items(old: &Value, items: &[Value], lists: &Lists, path: &str) -> FieldSet {
    let before = |keys: &Map<String, Value>| {
        let old = old.as_array().into_iter().flatten();
        old.into_iter().find(|item| keys.iter().all(|(key, value)| item.get(key) == Some(value)))
    };
    let mut set = BTreeMap::new();
    match lists.apply(path) {
        None => {}
        Some(ListType::Set) => {
            for item in items.iter().filter(|item| !old.as_array().is_some_and(|old| old.contains(item))) {
                set.insert(format!("v:{item}"), FieldSet::default());
            }
        }
        Some(ListType::Map(keys)) => {
            for item in items {
                let keys = keys_of(item, keys);
                let before = before(&keys);
                if before == Some(item) {
                    continue;
                }
                let mut below = changed_below(before.unwrap_or(&Value::Null), item, lists, &format!("{path}[]"));
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

fn write_shape(value: &Value, lists: &Lists, path: &mut String, out: &mut Vec<u8>) {
    let outer = path.len();
    match value {
        Value::Object(map) if !lists.is_atomic_map(path) => {
            out.push(START);
            for (name, value) in map {
                path.push('.');
                path.push_str(name);
                if !is_system(path) {
                    out.extend_from_slice(name.as_bytes());
                    out.push(END_OF_NAME);
                    write_shape(value, lists, path, out);
                }
                path.truncate(outer);
            }
            out.push(END);
        }
        Value::Array(items) => match lists.apply(path) {
            None => {}
            Some(ListType::Set) => out.extend_from_slice(Value::from(items.clone()).to_string().as_bytes()),
            Some(ListType::Map(keys)) => {
                path.push_str("[]");
                out.push(START);
                for item in items {
                    out.extend_from_slice(Value::Object(keys_of(item, keys)).to_string().as_bytes());
                    write_shape(item, lists, path, out);
                }
                out.push(END);
                path.truncate(outer);
            }
        },
        Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Returns the key fields of a list's item.
pub(crate) fn keys_of(item: &Value, keys: &[String]) -> Map<String, Value> {
    keys.iter()
        .filter_map(|key| {
            let value = item.get(key).cloned();
            // The only key that the API fills in.
            let value = value.or_else(|| (key == "protocol").then(|| Value::String("TCP".to_owned())));
            Some((key.clone(), value?))
        })
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

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
        assert_eq!(FieldSet::of(&node, &Lists::core("Node")).to_value(), expected);
    }

    #[test]
    fn only_what_differs_has_changed() {
        let old = json!({"spec": {"replicas": 1, "paused": true}, "metadata": {"labels": {"a": "b"}}});
        let new = json!({"spec": {"replicas": 2}, "metadata": {"labels": {"a": "b", "c": "d"}}});
        let lists = Lists::default();
        let changed = FieldSet::changed(&old, &new, &lists);
        assert_eq!(changed.paths(), [".metadata.labels.c", ".spec.replicas"]);
        let gone = FieldSet::of(&old, &lists).without(&FieldSet::of(&new, &lists));
        assert_eq!(gone.paths(), [".spec.paused"]);
    }

    #[test]
    fn fields_are_taken_out_with_the_items_that_they_make_up() {
        let mut node = json!({"status": {"phase": "x", "conditions": [{"type": "A"}, {"type": "B"}]}});
        let gone =
            json!({"f:status": {"f:phase": {}, "f:conditions": {"k:{\"type\":\"A\"}": {".": {}, "f:type": {}}}}});
        FieldSet::parse(&gone).remove_from(&mut node);
        assert_eq!(node, json!({"status": {"conditions": [{"type": "B"}]}}));
    }
}
