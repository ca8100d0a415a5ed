//! Reduces an object's JSON to the part that is compared: without noise, ignored paths and secrets. The managed fields,
//! half of the text of many objects, never become part of its tree.

use std::fmt;

use serde::{
    Deserialize,
    de::{DeserializeSeed, Deserializer, MapAccess, Visitor},
};
use serde_json::{Map, Value, value::RawValue};

use super::{
    Kind,
    managers::{self, Entry},
    pattern::Pattern,
    redact::{Redacted, redact},
};

/// The paths that are removed from the objects of one kind before they are compared.
#[derive(Clone, Debug)]
pub struct Filter {
    kind: Kind,
    ignored: Vec<Pattern>,
}

/// The part of an object that is compared. It must never hold a value of a Secret.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub(super) value: Value,
    pub(super) redacted: Redacted,
    pub(super) managers: Vec<Entry>,
}

impl Filter {
    /// Returns the filter for objects of this kind, which removes `ignored` and the noise.
    #[must_use]
    pub fn new(kind: Kind, ignored: &[Pattern]) -> Self {
        let ignored = noise(&kind).into_iter().chain(ignored.iter().cloned()).collect();
        Self { kind, ignored }
    }

    /// Returns the part of an object that is compared.
    #[must_use]
    pub fn snapshot(&self, object: ObjectJson) -> Snapshot {
        let ObjectJson { mut value, managers } = object;
        if let Value::Object(map) = &mut value {
            // A list leaves out the kind of its items; a watch event carries it.
            map.entry("apiVersion").or_insert_with(|| self.kind.api_version().into());
            map.entry("kind").or_insert_with(|| self.kind.kind.clone().into());
        }
        // Redaction comes first: an ignored path must not make a Secret look like another kind.
        let mut redacted = redact(&mut value, self.kind.is_secret());
        for pattern in &self.ignored {
            pattern.remove_from(&mut value);
        }
        redacted.retain(|pointer, _| value.pointer(pointer).is_some_and(Value::is_string));
        Snapshot { value, redacted, managers }
    }
}

fn bytes_of(value: &Value) -> usize {
    let content = match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(bytes_of).sum(),
        Value::Object(map) => map.iter().map(|(key, value)| size_of::<String>() + key.len() + bytes_of(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    size_of::<Value>() + content
}

impl Snapshot {
    /// Returns the memory of its texts and values, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let redacted: usize = self.redacted.keys().map(|pointer| size_of::<(String, u64)>() + pointer.len()).sum();
        let managers: usize = self.managers.iter().map(Entry::bytes).sum();
        bytes_of(&self.value) + redacted + managers
    }

    /// Returns the filtered object.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.value
    }
}

/// Paths that change without a change of the object, and those that only record that something changed.
/// `docs/reference/watch.md` lists them.
fn noise(kind: &Kind) -> Vec<Pattern> {
    let mut noise = vec![
        Pattern::of(["metadata", "resourceVersion"]),
        Pattern::of(["metadata", "generation"]),
        Pattern::of(["metadata", "selfLink"]),
        Pattern::of(["metadata", "annotations", "control-plane.alpha.kubernetes.io/leader"]),
        Pattern::of(["status", "conditions", "*", "lastHeartbeatTime"]),
        Pattern::of(["status", "conditions", "*", "lastProbeTime"]),
    ];
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("coordination.k8s.io", "Lease") => noise.push(Pattern::of(["spec", "renewTime"])),
        // The kubelet rewrites the images of a Node with its heartbeats, in any order.
        ("", "Node") => noise.push(Pattern::of(["status", "images"])),
        _ => {}
    }
    noise
}

/// An object's JSON, with its managed fields apart.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectJson {
    /// The object without `metadata.managedFields`.
    pub(super) value: Value,
    pub(super) managers: Vec<Entry>,
}

impl ObjectJson {
    /// Returns the object without its managed fields.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.value
    }
}

impl<'de> Deserialize<'de> for ObjectJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut managers = Vec::new();
        let fields = deserializer.deserialize_map(Fields { managers: &mut managers, within: Within::Object })?;
        Ok(Self { value: Value::Object(fields), managers })
    }
}

#[derive(Clone, Copy)]
enum Within {
    Object,
    Metadata,
}

/// Reads a map without the managed fields, which become entries.
struct Fields<'a> {
    managers: &'a mut Vec<Entry>,
    within: Within,
}

impl<'de> DeserializeSeed<'de> for Fields<'_> {
    type Value = Map<String, Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Fields<'_> {
    type Value = Map<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.within {
            Within::Object => "an object",
            Within::Metadata => "an object's metadata",
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            match (self.within, key.as_str()) {
                (Within::Object, "metadata") => {
                    // The last of repeated fields counts.
                    self.managers.clear();
                    let metadata = Fields { managers: &mut *self.managers, within: Within::Metadata };
                    let metadata = map.next_value_seed(metadata)?;
                    fields.insert(key, Value::Object(metadata));
                }
                (Within::Metadata, "managedFields") => {
                    let text = map.next_value::<Box<RawValue>>()?;
                    *self.managers = managers::entries(text.get());
                }
                (Within::Object | Within::Metadata, _) => {
                    fields.insert(key, map.next_value()?);
                }
            }
        }
        Ok(fields)
    }
}
