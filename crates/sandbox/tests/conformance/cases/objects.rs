//! The suite's own kind, and small objects of it and of core kinds.

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// A group that nobody else uses.
pub(super) const GROUP: &str = "conformance.sandbox.test";
/// The version in which objects are stored.
pub(super) const VERSION: &str = "v1";
/// Another served version, with the same fields.
pub(super) const OLD_VERSION: &str = "v1alpha1";

/// The path of CustomResourceDefinitions.
pub(super) const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Returns the definition of a kind with all features under test: two versions, both subresources, columns and names.
pub(super) fn definition(kind: &str) -> Value {
    let singular = kind.to_lowercase();
    let anything = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let spec = json!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "replicas": { "type": "integer", "format": "int32" },
            "colour": { "type": "string" },
        },
    });
    let version = |name: &str| {
        json!({
            "name": name,
            "served": true,
            "storage": name == VERSION,
            "subresources": {
                "status": {},
                "scale": {
                    "specReplicasPath": ".spec.replicas",
                    "statusReplicasPath": ".status.replicas",
                    "labelSelectorPath": ".status.selector",
                },
            },
            "additionalPrinterColumns": [
                { "name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas", "description": "How many there are to be" },
                { "name": "Phase", "type": "string", "jsonPath": ".status.phase" },
                { "name": "Colour", "type": "string", "jsonPath": ".spec.colour", "priority": 1 },
                { "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp" },
            ],
            "schema": { "openAPIV3Schema": { "type": "object", "properties": { "spec": spec, "status": anything } } },
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{singular}s.{GROUP}") },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "listKind": format!("{kind}List"),
                "plural": format!("{singular}s"),
                "singular": singular,
                "shortNames": [format!("{}x", &singular[..2])],
                "categories": ["conformance"],
            },
            "versions": [version(VERSION), version(OLD_VERSION)],
            "conversion": { "strategy": "None" },
        },
    })
}

/// Returns a widget.
pub(super) fn widget(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "Widget",
        "metadata": { "name": name },
        "spec": spec,
    })
}

/// Returns a widget with labels.
pub(super) fn labelled(name: &str, labels: &Value) -> Value {
    let mut widget = widget(name, &json!({}));
    widget["metadata"]["labels"] = labels.clone();
    widget
}

/// Returns a ConfigMap.
pub(super) fn config_map(name: &str, data: &Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": data })
}

/// Returns a Node.
pub(super) fn node(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name } })
}

/// Returns a Pod, which may be bound to a Node.
pub(super) fn pod(name: &str, node: Option<&str>) -> Value {
    let mut spec = json!({ "containers": [{ "name": "main", "image": "registry.invalid/main" }] });
    if let Some(node) = node {
        spec["nodeName"] = json!(node);
    }
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name }, "spec": spec })
}

/// Returns the resource version of an object or list, which must be a decimal number.
pub(super) fn version(object: &Value) -> Result<u64> {
    let text = object["metadata"]["resourceVersion"].as_str();
    let text = text.with_context(|| format!("no resourceVersion in {object}"))?;
    text.parse().with_context(|| format!("the resourceVersion {text:?} is no decimal number"))
}

/// Returns the names of a list's items, in their order.
pub(super) fn names(list: &Value) -> Result<Vec<&str>> {
    let items = list["items"].as_array().with_context(|| format!("no items in {list}"))?;
    Ok(items.iter().map(|item| item["metadata"]["name"].as_str().unwrap_or_default()).collect())
}

/// Returns an Event about a ConfigMap, for cases that need the server's separate store of Events.
pub(super) fn event(name: &str, namespace: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": { "name": name, "namespace": namespace },
        "involvedObject": { "apiVersion": "v1", "kind": "ConfigMap", "name": "a", "namespace": namespace },
        "reason": "Tried",
        "message": "for the suite",
        "type": "Normal",
    })
}
