//! OpenShift's Machine API: CRDs modelled on its own.
//!
//! The CRDs are written for these tests: they define the fields of its types that are read or written here, accept all
//! others, and serve the same subresources. No other kind of the group is served, as on OpenShift.

use serde_json::{Value, json};

use crate::objects::{Contract, MACHINE_API_GROUP, Place};

/// The kinds of the group that are served.
pub const KINDS: [&str; 2] = ["MachineSet", "Machine"];

/// Returns the CRD of one of its kinds.
#[must_use]
pub fn definition(kind: &str) -> Value {
    let place = Place::of(kind, Contract::MachineApi);
    let mut version = json!({
        "name": place.resource.version,
        "served": true,
        "storage": true,
        "subresources": { "status": {} },
        "schema": { "openAPIV3Schema": {
            "type": "object",
            "properties": if kind == "Machine" { of_machine() } else { of_machine_set() },
        } },
    });
    if kind == "MachineSet" {
        version["subresources"]["scale"] = json!({
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.labelSelector",
        });
    }
    json!({
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{}.{MACHINE_API_GROUP}", place.resource.plural) },
        "spec": {
            "group": MACHINE_API_GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "plural": place.resource.plural,
                "singular": kind.to_lowercase(),
                "listKind": format!("{kind}List"),
            },
            "versions": [version],
        },
    })
}

/// Returns the schema of an object with these fields, and any others.
fn open(properties: &Value) -> Value {
    json!({ "type": "object", "properties": properties, "x-kubernetes-preserve-unknown-fields": true })
}

fn text() -> Value {
    json!({ "type": "string" })
}

fn count() -> Value {
    json!({ "type": "integer", "format": "int32" })
}

/// Returns the schema of a Machine's spec: labels, annotations and taints of its Node, and the provider's part.
fn spec_of_machine() -> Value {
    let texts = json!({ "type": "object", "additionalProperties": text() });
    open(&json!({
        "metadata": open(&json!({ "labels": texts, "annotations": texts })),
        "providerID": text(),
        "providerSpec": open(&json!({})),
        "taints": { "type": "array", "items": open(&json!({ "key": text(), "value": text(), "effect": text() })) },
    }))
}

fn of_machine() -> Value {
    json!({
        "spec": spec_of_machine(),
        "status": open(&json!({
            "phase": text(),
            "errorReason": text(),
            "errorMessage": text(),
            "nodeRef": open(&json!({ "kind": text(), "name": text(), "uid": text() })),
            "conditions": conditions(),
        })),
    })
}

fn of_machine_set() -> Value {
    let mut replicas = count();
    replicas["default"] = json!(1);
    json!({
        "spec": open(&json!({
            "replicas": replicas,
            "deletePolicy": { "type": "string", "enum": ["Random", "Newest", "Oldest"] },
            "selector": open(&json!({})),
            "template": open(&json!({ "spec": spec_of_machine() })),
        })),
        "status": open(&json!({
            "replicas": count(),
            "observedGeneration": { "type": "integer", "format": "int64" },
            "labelSelector": text(),
            "authoritativeAPI": { "type": "string", "enum": ["MachineAPI", "ClusterAPI", "Migrating"] },
            "conditions": conditions(),
        })),
    })
}

/// Returns the schema of conditions, which have a severity and no generation.
fn conditions() -> Value {
    let condition = open(&json!({ "type": text(), "status": text(), "severity": text(), "reason": text() }));
    json!({
        "type": "array",
        "items": {
            "type": "object",
            "properties": condition["properties"],
            "required": ["type", "status"],
            "x-kubernetes-preserve-unknown-fields": true,
        },
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    })
}
