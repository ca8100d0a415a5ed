//! From an object's JSON to what is compared of it: without noise, without what the operator ignores, without secrets.

use serde_json::Value;

use super::{
    change::Kind,
    managers::{self, Entry},
    pattern::Pattern,
    redact::{Redacted, redact},
};

/// The paths that are left out of the objects of one kind.
#[derive(Clone, Debug)]
pub struct Filter {
    kind: Kind,
    ignored: Vec<Pattern>,
}

/// The part of an object that is compared. It holds no value of a Secret.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub(super) value: Value,
    pub(super) redacted: Redacted,
    pub(super) managers: Vec<Entry>,
}

impl Filter {
    /// For objects of this kind; `ignored` is left out besides noise.
    #[must_use]
    pub fn new(kind: Kind, ignored: &[Pattern]) -> Self {
        let ignored = noise(&kind).into_iter().chain(ignored.iter().cloned()).collect();
        Self { kind, ignored }
    }

    /// Returns the part of an object that is compared.
    #[must_use]
    pub fn snapshot(&self, mut value: Value) -> Snapshot {
        let managers = managers::entries(&value["metadata"]["managedFields"]);
        if let Value::Object(map) = &mut value {
            // The items of a list don't say what they are; events of a watch do.
            map.entry("apiVersion").or_insert_with(|| self.kind.api_version().into());
            map.entry("kind").or_insert_with(|| self.kind.kind.clone().into());
        }
        // Before what is ignored goes: an ignored path must not turn a Secret into something else.
        let mut redacted = redact(&mut value, self.kind.is_secret());
        for pattern in &self.ignored {
            pattern.remove_from(&mut value);
        }
        redacted.retain(|pointer, _| value.pointer(pointer).is_some_and(Value::is_string));
        Snapshot { value, redacted, managers }
    }
}

impl Snapshot {
    /// The object, filtered.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.value
    }
}

/// Paths that change without a change of the object, and those that only record that something changed.
/// `docs/reference/watch.md` lists them.
fn noise(kind: &Kind) -> Vec<Pattern> {
    let mut noise = vec![
        Pattern::of(["metadata", "managedFields"]),
        Pattern::of(["metadata", "resourceVersion"]),
        Pattern::of(["metadata", "generation"]),
        Pattern::of(["metadata", "selfLink"]),
        Pattern::of(["metadata", "annotations", "control-plane.alpha.kubernetes.io/leader"]),
        Pattern::of(["status", "conditions", "*", "lastHeartbeatTime"]),
        Pattern::of(["status", "conditions", "*", "lastProbeTime"]),
    ];
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("coordination.k8s.io", "Lease") => noise.push(Pattern::of(["spec", "renewTime"])),
        // The kubelet writes the images of a Node anew with its heartbeats, in any order.
        ("", "Node") => noise.push(Pattern::of(["status", "images"])),
        _ => {}
    }
    noise
}
