//! Access to objects as JSON. Absent fields and fields of the wrong type count as empty.

use std::collections::BTreeMap;

use serde_json::Value;

/// An object of a Kubernetes API.
pub(crate) trait Object {
    fn kind(&self) -> &str;
    fn group(&self) -> &str;
    fn name(&self) -> &str;
    fn namespace(&self) -> &str;
    fn uid(&self) -> &str;
    /// Returns the text at a JSON pointer; empty text is `None`.
    fn text(&self, pointer: &str) -> Option<&str>;
    /// Returns the number at a JSON pointer.
    fn number(&self, pointer: &str) -> Option<i64>;
    /// Returns the list at a JSON pointer, or an empty one.
    fn list(&self, pointer: &str) -> &[Value];
    /// Returns the texts of the map at a JSON pointer.
    fn texts(&self, pointer: &str) -> BTreeMap<String, String>;
    fn label(&self, key: &str) -> Option<&str>;
    fn annotation(&self, key: &str) -> Option<&str>;
    fn is_deleting(&self) -> bool;
    /// Returns the owner reference of the controller.
    fn controller(&self) -> Option<&Value>;
    /// Returns `Kind namespace/name`, for people.
    fn title(&self) -> String;
}

impl Object for Value {
    fn kind(&self) -> &str {
        self["kind"].as_str().unwrap_or_default()
    }

    fn group(&self) -> &str {
        let api_version = self["apiVersion"].as_str().unwrap_or_default();
        api_version.split_once('/').map_or("", |(group, _)| group)
    }

    fn name(&self) -> &str {
        self["metadata"]["name"].as_str().unwrap_or_default()
    }

    fn namespace(&self) -> &str {
        self["metadata"]["namespace"].as_str().unwrap_or_default()
    }

    fn uid(&self) -> &str {
        self["metadata"]["uid"].as_str().unwrap_or_default()
    }

    fn text(&self, pointer: &str) -> Option<&str> {
        self.pointer(pointer)?.as_str().filter(|text| !text.is_empty())
    }

    fn number(&self, pointer: &str) -> Option<i64> {
        self.pointer(pointer)?.as_i64()
    }

    fn list(&self, pointer: &str) -> &[Value] {
        self.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
    }

    fn texts(&self, pointer: &str) -> BTreeMap<String, String> {
        let map = self.pointer(pointer).and_then(Value::as_object).into_iter().flatten();
        map.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
    }

    fn label(&self, key: &str) -> Option<&str> {
        self["metadata"]["labels"][key].as_str()
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self["metadata"]["annotations"][key].as_str()
    }

    fn is_deleting(&self) -> bool {
        self["metadata"]["deletionTimestamp"].is_string()
    }

    fn controller(&self) -> Option<&Value> {
        self.list("/metadata/ownerReferences").iter().find(|owner| owner["controller"] == true)
    }

    fn title(&self) -> String {
        title(self.kind(), self.namespace(), self.name())
    }
}

/// Returns `Kind namespace/name`, for people.
pub(crate) fn title(kind: &str, namespace: &str, name: &str) -> String {
    if namespace.is_empty() { format!("{kind} {name}") } else { format!("{kind} {namespace}/{name}") }
}

/// Returns true if a Pod has ended.
pub(crate) fn is_finished(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// Returns true if a Node's kubelet reports it as Ready.
pub(crate) fn is_ready(node: &Value) -> bool {
    has_condition(node, "Ready")
}

/// Returns true if a condition of this type is true.
pub(crate) fn has_condition(object: &Value, kind: &str) -> bool {
    object.list("/status/conditions").iter().any(|condition| condition["type"] == kind && condition["status"] == "True")
}
