//! The target of a request: a kind in one of its served versions.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    defaults,
    kind::{KindSpec, Resource, VersionSpec, api_version},
    object::text,
    refusal::{FieldCause, Refusal},
    store::{KindId, Store},
};

/// A kind, and the version in which a client addresses it.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) id: KindId,
    pub(crate) spec: Arc<KindSpec>,
    pub(crate) version: VersionSpec,
}

impl Target {
    /// Returns the kind that serves `resource`.
    pub(crate) fn find(store: &Store, resource: &Resource) -> Result<Self, Refusal> {
        let found = Self::defined(store, resource)?;
        if found.version.served { Ok(found) } else { Err(Refusal::no_such_resource()) }
    }

    /// Returns the kind that defines `resource`, served or not.
    pub(crate) fn defined(store: &Store, resource: &Resource) -> Result<Self, Refusal> {
        store
            .find(&resource.group, &resource.plural)
            .and_then(|id| {
                let spec = Arc::clone(&store.table(id)?.spec);
                let version = spec.versions.iter().find(|version| version.name == resource.version)?.clone();
                Some(Self { id, spec, version })
            })
            .ok_or_else(Refusal::no_such_resource)
    }

    /// Returns the kind in the version in which it is stored.
    pub(crate) fn stored(store: &Store, id: KindId) -> Option<Self> {
        let spec = Arc::clone(&store.table(id)?.spec);
        let version = spec.versions.get(spec.storage)?.clone();
        Some(Self { id, spec, version })
    }

    /// Returns the `apiVersion` of objects in this version.
    pub(crate) fn api_version(&self) -> String {
        api_version(&self.spec.group, &self.version.name)
    }

    /// Returns the `apiVersion` of stored objects.
    pub(crate) fn storage_api_version(&self) -> String {
        self.spec.storage_resource().api_version()
    }

    /// Checks that an object is of this kind and version, and fills in what it omits.
    pub(crate) fn check_type(&self, value: &mut Value) -> Result<(), Refusal> {
        let expected = self.api_version();
        let given = value["apiVersion"].as_str().unwrap_or_default();
        if !given.is_empty() && given != expected {
            return Err(Refusal::bad_request(format!(
                "the API version in the data ({given}) does not match the expected API version ({expected})"
            )));
        }
        let kind = value["kind"].as_str().unwrap_or_default();
        if !kind.is_empty() && kind != self.spec.kind {
            if !self.spec.rules.strategic {
                let why = format!("must be {}", self.spec.kind);
                let cause = FieldCause::invalid("kind", &format!("{kind:?}"), &why);
                return Err(Refusal::invalid(&self.spec, text(value, "name"), &[cause]));
            }
            return Err(Refusal::bad_request(format!(
                "{kind} in version {:?} cannot be handled as a {}: no kind {kind:?} is registered for this resource",
                self.version.name, self.spec.kind
            )));
        }
        value["apiVersion"] = json!(expected);
        value["kind"] = json!(self.spec.kind);
        defaults::check_types(&self.spec, value)
    }
}
