//! What the API fills into objects of core kinds by itself, and what it checks in them besides metadata.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use super::{crd, kind::KindSpec, object::text, refusal::FieldCause};

/// Fills in what clients leave to the API.
pub(crate) fn fill(kind: &KindSpec, value: &mut Value, time: &str) {
    if crd::is_definition(kind) {
        crd::fill(value, time);
        return;
    }
    if !kind.group.is_empty() || !kind.rules.strategic {
        return;
    }
    for field in ["spec", "status"] {
        if value.get(field).is_some_and(|part| !part.is_object()) {
            // The causes say that it is wrong.
            return;
        }
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
        // Other kinds are stored as they come.
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

/// Texts become data.
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

/// What is wrong with the parts of an object besides its metadata.
pub(crate) fn causes(kind: &KindSpec, value: &Value) -> Vec<FieldCause> {
    let mut causes = Vec::new();
    if kind.rules.strategic {
        for field in ["spec", "status"] {
            if value.get(field).is_some_and(|part| !part.is_object()) {
                causes.push(FieldCause::invalid(field, &value[field].to_string(), "must be an object"));
            }
        }
    }
    if crd::is_definition(kind) && causes.is_empty() {
        causes.extend(crd::causes(value));
    }
    causes
}
