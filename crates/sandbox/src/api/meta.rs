//! The form of an object's metadata, which is checked on input so that all later code can rely on it.

use serde_json::{Map, Value};

use super::{
    kind::KindSpec,
    refusal::{FieldCause, Refusal},
    selector::{is_label_key, is_label_value},
};

/// Checks that `value` is an object whose metadata fields have the right types.
pub(crate) fn check_types(value: &mut Value) -> Result<(), Refusal> {
    let Some(object) = value.as_object_mut() else {
        return Err(Refusal::bad_request("the body must be a JSON object with apiVersion, kind and metadata"));
    };
    let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if metadata.is_null() {
        *metadata = Value::Object(Map::new());
    }
    let Some(metadata) = metadata.as_object_mut() else {
        return Err(Refusal::bad_request("metadata must be an object"));
    };
    metadata.retain(|_, value| !value.is_null());
    for (field, value) in metadata.iter() {
        let fits = match field.as_str() {
            "labels" | "annotations" => is_text_map(value),
            "finalizers" => value.as_array().is_some_and(|list| list.iter().all(Value::is_string)),
            "ownerReferences" | "managedFields" => {
                value.as_array().is_some_and(|list| list.iter().all(Value::is_object))
            }
            "generation" | "deletionGracePeriodSeconds" => value.is_i64() || value.is_u64(),
            "name" | "namespace" | "generateName" | "uid" | "resourceVersion" | "creationTimestamp"
            | "deletionTimestamp" | "selfLink" => value.is_string(),
            // Unknown fields are dropped below.
            _ => true,
        };
        if !fits {
            return Err(Refusal::bad_request(format!("metadata.{field} has the wrong type: {value}")));
        }
    }
    metadata.retain(|field, value| is_field(field) && !is_empty_collection(value));
    Ok(())
}

fn is_text_map(value: &Value) -> bool {
    value.as_object().is_some_and(|map| map.values().all(Value::is_string))
}

fn is_empty_collection(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty)
        || value.as_array().is_some_and(Vec::is_empty)
        || value.as_str().is_some_and(str::is_empty)
}

fn is_field(name: &str) -> bool {
    const FIELDS: [&str; 14] = [
        "annotations",
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generateName",
        "generation",
        "labels",
        "managedFields",
        "name",
        "namespace",
        "ownerReferences",
        "resourceVersion",
        "uid",
    ];
    FIELDS.contains(&name)
}

/// Returns the faults in the values of an object's metadata.
pub(crate) fn causes(kind: &KindSpec, value: &Value) -> Vec<FieldCause> {
    let metadata = &value["metadata"];
    let mut causes = Vec::new();
    let name = metadata["name"].as_str().unwrap_or_default();
    if name.is_empty() {
        causes.push(FieldCause::required("metadata.name", "name or generateName is required"));
    } else if let Some(why) = name_fault(kind, name) {
        causes.push(FieldCause::invalid("metadata.name", &format!("{name:?}"), why));
    }
    for (key, label) in metadata["labels"].as_object().into_iter().flatten() {
        if !is_label_key(key) {
            causes.push(FieldCause::invalid("metadata.labels", &format!("{key:?}"), LABEL_KEY));
        }
        let label = label.as_str().unwrap_or_default();
        if !is_label_value(label) {
            causes.push(FieldCause::invalid("metadata.labels", &format!("{label:?}"), LABEL_VALUE));
        }
    }
    for key in metadata["annotations"].as_object().into_iter().flat_map(Map::keys) {
        if !is_label_key(&key.to_lowercase()) {
            causes.push(FieldCause::invalid("metadata.annotations", &format!("{key:?}"), LABEL_KEY));
        }
    }
    for (at, owner) in metadata["ownerReferences"].as_array().into_iter().flatten().enumerate() {
        for field in ["apiVersion", "kind", "name", "uid"] {
            if owner[field].as_str().unwrap_or_default().is_empty() {
                let path = format!("metadata.ownerReferences[{at}].{field}");
                causes.push(FieldCause::invalid(&path, "\"\"", "must not be empty"));
            }
        }
    }
    causes
}

const LABEL_KEY: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character, at most 63 of them; a DNS name and '/' may come before it";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of at most 63 alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";

/// Returns the fault in the name of an object, if there is one.
fn name_fault(kind: &KindSpec, name: &str) -> Option<&'static str> {
    let (labels, limit): (Vec<&str>, _) = if kind.group.is_empty() && kind.kind == "Namespace" {
        (vec![name], 63)
    } else {
        (name.split('.').collect(), 253)
    };
    let part_fits = |part: &&str| {
        let bytes = part.as_bytes();
        let end = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        end(bytes.first())
            && end(bytes.last())
            && bytes.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-')
    };
    if name.len() > limit {
        return Some("must be no more than 253 bytes, or 63 for a Namespace");
    }
    (!labels.iter().all(part_fits)).then_some(
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
    )
}
