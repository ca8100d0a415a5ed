//! Reduces an object's JSON to the part that is compared: without noise, ignored paths and secrets. The managed fields,
//! half of many an object, are kept as text.

use serde_json::Value;

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
    pub fn new(kind: Kind, ignored: &[Pattern]) -> Self {
        let ignored = noise(&kind).into_iter().chain(ignored.iter().cloned()).collect();
        Self { kind, ignored }
    }

    /// Returns the part of an object that is compared.
    pub fn snapshot(&self, mut value: Value) -> Snapshot {
        let metadata = value.get_mut("metadata").and_then(Value::as_object_mut);
        let managers = metadata.and_then(|metadata| metadata.remove("managedFields"));
        let managers = managers.as_ref().map(managers::entries).unwrap_or_default();
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
