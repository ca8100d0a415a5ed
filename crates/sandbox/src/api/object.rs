//! A stored object: its value, and its JSON, which is serialised once so that lists and watches only copy bytes. A
//! loaded object has only its JSON at first, because a large fleet consists of such objects. The form of an object's
//! metadata is checked on input, so that all later code can rely on it.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use bytes::{Bytes, BytesMut};
use serde_json::{Map, Value};

use super::{
    kind::KindSpec,
    refusal::{FieldCause, Refusal},
    selector::{Selection, is_label_key, is_label_value},
};

/// The key of an object among those of its kind, in the order of lists.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectKey {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl ObjectKey {
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    pub(crate) fn of(value: &Value) -> Self {
        Self::new(text(value, "namespace"), text(value, "name"))
    }
}

/// The `managedFields` that all objects of one shape in a load share.
#[derive(Debug)]
pub(crate) struct SharedFields {
    value: Value,
    /// The last field of the metadata, as JSON.
    text: Bytes,
}

impl SharedFields {
    pub(crate) fn new(value: Value) -> Self {
        let text = Bytes::from(format!(",\"managedFields\":{value}"));
        Self { value, text }
    }
}

pub(crate) struct Object {
    key: ObjectKey,
    /// The whole object, in the version in which its kind is stored. A loaded object is parsed from its JSON on first
    /// use.
    value: OnceLock<Arc<Value>>,
    /// The JSON without `apiVersion` and `kind`: from the second key up to and including the closing brace.
    tail: Bytes,
    loaded: Option<Loaded>,
}

/// The parts of a loaded object that its JSON lacks because they are shared.
struct Loaded {
    kind: Arc<KindSpec>,
    /// The fields, and their offset in the JSON.
    fields: Option<(usize, Arc<SharedFields>)>,
}

impl fmt::Debug for Object {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Object").field(self.value()).finish()
    }
}

impl Object {
    /// Creates the state `value` at `revision`, which is written into it.
    pub(crate) fn new(mut value: Value, revision: u64) -> Self {
        value["metadata"]["resourceVersion"] = Value::String(revision.to_string());
        let (tail, _) = tail(&value);
        Self { key: ObjectKey::of(&value), tail, value: OnceLock::from(Arc::new(value)), loaded: None }
    }

    /// Creates a loaded state, whose value is parsed on first use: most objects of a fleet are only listed.
    pub(crate) fn loaded(
        mut value: Value,
        fields: Option<Arc<SharedFields>>,
        kind: Arc<KindSpec>,
        revision: u64,
    ) -> Self {
        value["metadata"]["resourceVersion"] = Value::String(revision.to_string());
        let (tail, metadata_end) = tail(&value);
        let fields = metadata_end.zip(fields);
        Self { key: ObjectKey::of(&value), tail, value: OnceLock::new(), loaded: Some(Loaded { kind, fields }) }
    }

    /// Returns the whole object, in the version in which its kind is stored.
    pub(crate) fn value(&self) -> &Arc<Value> {
        self.value.get_or_init(|| Arc::new(self.parsed()))
    }

    fn parsed(&self) -> Value {
        let mut text = BytesMut::with_capacity(self.tail.len() + 1);
        text.extend_from_slice(b"{");
        text.extend_from_slice(&self.tail);
        let parsed = serde_json::from_slice(&text);
        debug_assert!(parsed.is_ok(), "what was written as JSON is JSON");
        let mut value: Value = parsed.unwrap_or_default();
        if let Some(loaded) = &self.loaded {
            value["apiVersion"] = Value::String(loaded.kind.storage_resource().api_version());
            value["kind"] = Value::String(loaded.kind.kind.clone());
            if let Some((_, fields)) = &loaded.fields {
                value["metadata"]["managedFields"] = fields.value.clone();
            }
        }
        value
    }

    /// Returns the same object with another revision, as for deletions.
    pub(crate) fn at(&self, revision: u64) -> Self {
        Self::new(Value::clone(self.value()), revision)
    }

    pub(crate) fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// Returns true if the object is in a selection whose namespace is known to match.
    pub(crate) fn is_in(&self, selection: &Selection) -> bool {
        selection.is_everything() || selection.matches(self.value())
    }

    /// Writes the JSON after the opening brace, without `apiVersion` and `kind`.
    pub(crate) fn write_tail(&self, out: &mut BytesMut) {
        match self.loaded.as_ref().and_then(|loaded| loaded.fields.as_ref()) {
            None => out.extend_from_slice(&self.tail),
            Some((at, fields)) => {
                out.extend_from_slice(&self.tail[..*at]);
                out.extend_from_slice(&fields.text);
                out.extend_from_slice(&self.tail[*at..]);
            }
        }
    }

    /// Returns the number of bytes that [`Object::write_tail`] writes.
    pub(crate) fn tail_len(&self) -> usize {
        let fields = self.loaded.as_ref().and_then(|loaded| loaded.fields.as_ref());
        self.tail.len() + fields.map_or(0, |(_, fields)| fields.text.len())
    }

    /// Returns the value with the `apiVersion` of another version.
    pub(crate) fn under(&self, api_version: &str) -> Arc<Value> {
        under(self.value(), api_version)
    }
}

/// Returns an object with the `apiVersion` of another version.
pub(crate) fn under(value: &Arc<Value>, api_version: &str) -> Arc<Value> {
    if value["apiVersion"] == api_version {
        return Arc::clone(value);
    }
    let mut value = Value::clone(value);
    value["apiVersion"] = Value::String(api_version.to_owned());
    Arc::new(value)
}

/// Returns the JSON after its opening brace, and the offset of the metadata's closing brace in it.
fn tail(value: &Value) -> (Bytes, Option<usize>) {
    let mut out = Vec::with_capacity(2048);
    let mut metadata_end = None;
    for (key, value) in value.as_object().into_iter().flatten() {
        if key == "apiVersion" || key == "kind" {
            continue;
        }
        if !out.is_empty() {
            out.push(b',');
        }
        let key_written = serde_json::to_writer(&mut out, key);
        out.push(b':');
        let written = key_written.and_then(|()| serde_json::to_writer(&mut out, value));
        debug_assert!(written.is_ok(), "a JSON value always has a JSON form");
        if key == "metadata" {
            metadata_end = Some(out.len() - 1);
        }
    }
    out.push(b'}');
    // Loaded objects stay in memory, so the capacity is trimmed.
    (Bytes::from(out.into_boxed_slice()), metadata_end)
}

/// Returns a string field of the object's metadata, or an empty string.
pub(crate) fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value.get("metadata").and_then(|metadata| metadata.get(field)).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn finalizers(value: &Value) -> impl Iterator<Item = &str> {
    let list = value.get("metadata").and_then(|metadata| metadata.get("finalizers")).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str)
}

pub(crate) fn owners(value: &Value) -> impl Iterator<Item = &str> {
    let list = value.get("metadata").and_then(|metadata| metadata.get("ownerReferences")).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(|owner| owner.get("uid")?.as_str())
}

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
    let wrong = metadata.iter().find(|(field, value)| fits(field, value) == Some(false));
    if let Some((field, value)) = wrong {
        return Err(Refusal::bad_request(format!("metadata.{field} has the wrong type: {value}")));
    }
    metadata.retain(|field, value| fits(field, value).is_some() && !is_empty(value));
    Ok(())
}

/// Returns true if a field of the metadata has the right type; `None` if there is no such field.
fn fits(field: &str, value: &Value) -> Option<bool> {
    Some(match field {
        "labels" | "annotations" => value.as_object().is_some_and(|map| map.values().all(Value::is_string)),
        "finalizers" => value.as_array().is_some_and(|list| list.iter().all(Value::is_string)),
        "ownerReferences" | "managedFields" => value.as_array().is_some_and(|list| list.iter().all(Value::is_object)),
        "generation" | "deletionGracePeriodSeconds" => value.is_i64() || value.is_u64(),
        "name" | "namespace" | "uid" | "resourceVersion" | "creationTimestamp" | "deletionTimestamp" => {
            value.is_string()
        }
        _ => return None,
    })
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty)
        || value.as_array().is_some_and(Vec::is_empty)
        || value.as_str().is_some_and(str::is_empty)
}

/// Returns the faults in the values of an object's metadata.
pub(crate) fn causes(kind: &KindSpec, value: &Value) -> Vec<FieldCause> {
    let metadata = &value["metadata"];
    let mut causes = Vec::new();
    let name = metadata["name"].as_str().unwrap_or_default();
    if name.is_empty() {
        causes.push(FieldCause::required("metadata.name"));
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
