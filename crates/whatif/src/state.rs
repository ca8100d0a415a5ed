//! What the workload cluster's API holds at one time, how its objects are read, and the writes that controllers make
//! there.

use std::{collections::BTreeMap, sync::Arc};

use sandbox::{
    Object,
    api::{Api, PatchKind, Resource, Selection, Subresource},
};
use serde_json::{Value, json};

/// The Pods and Nodes at one time.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) pods: Vec<Arc<Value>>,
    pub(crate) nodes: Vec<Arc<Value>>,
}

impl State {
    pub(crate) fn read(workload: &Api) -> Self {
        Self { pods: list(workload, &Resource::core("pods")), nodes: list(workload, &Resource::core("nodes")) }
    }
}

/// Returns all objects of a kind; none if the kind isn't served.
pub(crate) fn list(api: &Api, resource: &Resource) -> Vec<Arc<Value>> {
    api.list(resource, &Selection::default()).unwrap_or_default()
}

pub(crate) fn node_of(pod: &Value) -> Option<&str> {
    pod.text("/spec/nodeName")
}

/// Returns `Kind namespace/name` of an object.
pub(crate) fn title_of(object: &Value) -> String {
    title(object.kind(), object.namespace(), object.name())
}

pub(crate) fn title(kind: &str, namespace: &str, name: &str) -> String {
    if namespace.is_empty() { format!("{kind} {name}") } else { format!("{kind} {namespace}/{name}") }
}

pub(crate) fn is_finished(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// Returns true if a Node's kubelet reports it as Ready.
pub(crate) fn is_ready(node: &Value) -> bool {
    has_condition(node, "Ready")
}

pub(crate) fn has_condition(object: &Value, kind: &str) -> bool {
    object.list("/status/conditions").iter().any(|condition| condition["type"] == kind && condition["status"] == "True")
}

pub(crate) fn texts(map: &Value) -> BTreeMap<String, String> {
    let map = map.as_object().into_iter().flatten();
    map.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// Writes a condition of an object, unless it is as it should be. A write to an object that has gone is lost.
pub(crate) fn set_condition(api: &Api, resource: &Resource, object: &Value, condition: &Value, phase: Option<&str>) {
    let mut conditions = object.list("/status/conditions").to_vec();
    let is_same = |old: &Value| {
        ["type", "status", "reason", "message"].iter().all(|field| old.get(field) == condition.get(field))
    };
    if phase.is_none() && conditions.iter().any(is_same) {
        return;
    }
    conditions.retain(|old| old["type"] != condition["type"]);
    conditions.push(condition.clone());
    let mut status = json!({ "conditions": conditions });
    if let Some(phase) = phase {
        status["phase"] = json!(phase);
    }
    patch_status(api, resource, object, &status);
}

/// Merges fields into the status of an object. A write to an object that has gone is lost.
pub(crate) fn patch_status(api: &Api, resource: &Resource, object: &Value, status: &Value) {
    let (namespace, name) = (object.namespace(), object.name());
    let body = json!({ "status": status });
    let _ = api.patch(resource, namespace, name, PatchKind::Merge, Subresource::Status, body);
}
