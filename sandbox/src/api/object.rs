//! An object as it is stored: its value, and its JSON made once, so that lists and watches only copy bytes.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use serde::ser::{SerializeMap, Serializer};
use serde_json::Value;

/// Where an object is found among those of its kind: in order, as lists show them.
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

/// One state of an object.
pub(crate) struct Object {
    /// The whole object, in the version in which its kind is stored.
    pub(crate) value: Arc<Value>,
    /// Its JSON without `apiVersion` and `kind`: from the second key on, up to and with the closing brace.
    tail: Bytes,
}

impl fmt::Debug for Object {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Object").field(&self.value).finish()
    }
}

impl Object {
    /// The state that `value` is at `revision`, which is written into it.
    pub(crate) fn new(mut value: Value, revision: u64) -> Self {
        value["metadata"]["resourceVersion"] = Value::String(revision.to_string());
        let tail = tail(&value);
        Self { value: Arc::new(value), tail }
    }

    /// The same object under another revision, as deletions are shown.
    pub(crate) fn at(&self, revision: u64) -> Self {
        Self::new((*self.value).clone(), revision)
    }

    pub(crate) fn key(&self) -> ObjectKey {
        ObjectKey::of(&self.value)
    }

    /// What follows the opening brace where `apiVersion` and `kind` are left out.
    pub(crate) fn tail(&self) -> &Bytes {
        &self.tail
    }

    /// The value under a version's `apiVersion`.
    pub(crate) fn under(&self, api_version: &str) -> Arc<Value> {
        if self.value.get("apiVersion").and_then(Value::as_str) == Some(api_version) {
            return Arc::clone(&self.value);
        }
        let mut value = (*self.value).clone();
        value["apiVersion"] = Value::String(api_version.to_owned());
        Arc::new(value)
    }
}

fn tail(value: &Value) -> Bytes {
    let mut out = Vec::with_capacity(1024);
    let mut serializer = serde_json::Serializer::new(&mut out);
    let written = (|| {
        let mut map = serializer.serialize_map(None)?;
        for (key, value) in value.as_object().into_iter().flatten() {
            if key != "apiVersion" && key != "kind" {
                map.serialize_entry(key, value)?;
            }
        }
        map.end()
    })();
    debug_assert!(written.is_ok(), "a JSON value always has a JSON form");
    Bytes::from(out).slice(1..)
}

/// A text of the object's metadata, empty where there is none.
pub(crate) fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value.get("metadata").and_then(|metadata| metadata.get(field)).and_then(Value::as_str).unwrap_or_default()
}

/// The finalizers of an object.
pub(crate) fn finalizers(value: &Value) -> impl Iterator<Item = &str> {
    let list = value.get("metadata").and_then(|metadata| metadata.get("finalizers")).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str)
}

/// The uids of an object's owners, each with whether it blocks the owner's deletion.
pub(crate) fn owners(value: &Value) -> impl Iterator<Item = (&str, bool)> {
    let list = value.get("metadata").and_then(|metadata| metadata.get("ownerReferences")).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(|owner| {
        let blocks = owner.get("blockOwnerDeletion").and_then(Value::as_bool).unwrap_or_default();
        Some((owner.get("uid")?.as_str()?, blocks))
    })
}
