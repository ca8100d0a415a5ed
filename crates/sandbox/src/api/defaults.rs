//! The defaults that the API fills into objects of core kinds, and its checks of them besides those of metadata.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use super::{
    crd,
    kind::KindSpec,
    object::text,
    refusal::{FieldCause, Refusal},
};

/// Fills in the defaults of a kind.
pub(crate) fn fill(kind: &KindSpec, value: &mut Value, time: &str) {
    if crd::is_definition(kind) {
        crd::fill(value, time);
        return;
    }
    if !kind.group.is_empty() || !kind.rules.strategic {
        return;
    }
    match kind.kind.as_str() {
        "Namespace" => namespace(value),
        "Pod" => or_insert(value, "status", json!({"phase": "Pending"})),
        "Secret" => secret(value),
        "Service" => {
            or_insert(value, "spec", json!({}));
            or_insert(&mut value["spec"], "type", json!("ClusterIP"));
            or_insert(&mut value["spec"], "sessionAffinity", json!("None"));
        }
        // Objects of other kinds are stored unchanged.
        _ => {}
    }
}

fn or_insert(value: &mut Value, field: &str, default: Value) {
    if value.get(field).is_none_or(Value::is_null) {
        value[field] = default;
    }
}

fn namespace(value: &mut Value) {
    let name = text(value, "name").to_owned();
    or_insert(&mut value["metadata"], "labels", json!({}));
    or_insert(&mut value["metadata"]["labels"], "kubernetes.io/metadata.name", json!(name));
    or_insert(value, "spec", json!({}));
    or_insert(&mut value["spec"], "finalizers", json!(["kubernetes"]));
    or_insert(value, "status", json!({"phase": "Active"}));
}

/// Moves `stringData` into `data`.
fn secret(value: &mut Value) {
    or_insert(value, "type", json!("Opaque"));
    let Some(object) = value.as_object_mut() else { return };
    let Some(Value::Object(texts)) = object.remove("stringData") else { return };
    let data = object.entry("data").or_insert_with(|| json!({}));
    for (key, text) in texts {
        if let (Some(data), Some(text)) = (data.as_object_mut(), text.as_str()) {
            data.insert(key, json!(BASE64_STANDARD.encode(text)));
        }
    }
}

/// Refuses objects of core kinds whose parts have the wrong types.
pub(crate) fn check_types(kind: &KindSpec, value: &Value) -> Result<(), Refusal> {
    if !kind.rules.strategic {
        return Ok(());
    }
    let is_map = |value: &Value| value.is_null() || value.is_object();
    let holds_texts =
        |value: &Value| value.is_null() || value.as_object().is_some_and(|map| map.values().all(Value::is_string));
    let parts = ["spec", "status"].into_iter().filter(|&part| !is_map(&value[part]));
    let maps = ["data", "binaryData", "stringData"].into_iter().filter(|&map| !holds_texts(&value[map]));
    match parts.chain(maps).next() {
        None => Ok(()),
        Some(field) => Err(Refusal::bad_request(format!(
            "{} in version {:?} cannot be handled as a {}: {field} has the wrong type: {}",
            kind.kind,
            value["apiVersion"].as_str().unwrap_or_default(),
            kind.kind,
            value[field]
        ))),
    }
}

/// Returns the faults of an object outside its metadata.
pub(crate) fn causes(kind: &KindSpec, value: &Value) -> Vec<FieldCause> {
    if crd::is_definition(kind) { crd::causes(value) } else { Vec::new() }
}

/// Returns the faults of a change: an object that is declared immutable must not change.
pub(crate) fn causes_of_change(kind: &KindSpec, old: &Value, new: &Value) -> Vec<FieldCause> {
    let can_be_immutable = kind.group.is_empty() && matches!(kind.kind.as_str(), "ConfigMap" | "Secret");
    if !can_be_immutable || old["immutable"] != true {
        return Vec::new();
    }
    ["immutable", "data", "binaryData"]
        .into_iter()
        .filter(|&field| old[field] != new[field])
        .map(|field| FieldCause::forbidden(field, "field is immutable when `immutable` is set"))
        .collect()
}
