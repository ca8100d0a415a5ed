//! The simulation's access to one API: reads by kind and name, changes since the last call, and the writes of a plan.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::watch;

use crate::{
    api::{Api, ChangeKind, DeleteOptions, Refusal, Resource, Selection},
    controllers::object::Object,
};

/// A change in an API.
pub(super) enum Change {
    /// An object was created, changed or deleted.
    Object(ChangeKind, Arc<Value>),
    /// The changes of a kind were dropped: every object of it may have changed.
    Anything(Resource),
}

/// An API, and the revision up to which its changes have been read.
pub(super) struct Port {
    api: Api,
    /// The kinds whose changes are followed, each with the revision up to which they have been read.
    kinds: Vec<(Resource, u64)>,
    /// The revision up to which all of them have been read.
    read: u64,
}

impl Port {
    /// Follows `kinds` from now on.
    pub(super) fn new(api: Api, kinds: Vec<Resource>) -> Self {
        let read = api.revision();
        Self { kinds: kinds.into_iter().map(|kind| (kind, read)).collect(), read, api }
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.api.subscribe()
    }

    /// Returns the changes since the last call.
    pub(super) fn changes(&mut self) -> Vec<Change> {
        let now = self.api.revision();
        if now == self.read {
            return Vec::new();
        }
        self.read = now;
        let mut changes = Vec::new();
        for (kind, read) in &mut self.kinds {
            if let Ok(events) = self.api.changes(kind, &Selection::default(), *read) {
                for event in events {
                    *read = event.revision;
                    changes.push(Change::Object(event.kind, event.object));
                }
            } else {
                // The changes since then were dropped, or the kind doesn't exist.
                *read = now;
                changes.push(Change::Anything(kind.clone()));
            }
        }
        changes
    }

    pub(super) fn get(&self, resource: &Resource, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.api.get(resource, namespace, name).ok()
    }

    /// Returns all objects of a kind; none if the kind doesn't exist.
    pub(super) fn list(&self, resource: &Resource) -> Vec<Arc<Value>> {
        self.api.list(resource, &Selection::default()).unwrap_or_default()
    }

    /// Returns the objects of a kind that an object controls.
    pub(super) fn controlled(&self, owner: &Value, kind: &str) -> Vec<Arc<Value>> {
        let uid = owner.uid();
        let dependents = self.api.dependents(uid).into_iter().map(|(_, object)| object);
        dependents
            .filter(|object| object.kind() == kind && object.controller().is_some_and(|owner| owner["uid"] == uid))
            .collect()
    }

    /// Returns the object that a reference names.
    pub(super) fn referred(&self, reference: &Value, namespace: &str) -> Option<Arc<Value>> {
        referred(&self.api, reference, namespace)
    }

    fn resource(&self, object: &Value) -> Result<Resource, Refusal> {
        let api_version = object["apiVersion"].as_str().unwrap_or_default();
        self.api.resource_of(api_version, object.kind()).ok_or_else(|| {
            Refusal::new(404, "NotFound", format!("no kind {} is known in {api_version}", object.kind()))
        })
    }

    pub(super) fn create(&self, object: &Value) -> Result<(), Refusal> {
        let resource = self.resource(object)?;
        let created = self.api.create(&resource, object.clone())?;
        self.write_status(&resource, &created, object)
    }

    /// Changes an object from one state to another.
    pub(super) fn change(&self, before: &Value, after: &Value) -> Result<(), Refusal> {
        let resource = self.resource(before)?;
        let mut stored = Arc::new(before.clone());
        if main_part(before) != main_part(after) {
            stored = self.api.update(&resource, after.clone())?;
            if stored.deleting() && stored["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty) {
                // The object is gone with its last finalizer.
                return Ok(());
            }
        }
        self.write_status(&resource, &stored, after)
    }

    /// Writes the status of `wanted`, if that of `stored` differs.
    fn write_status(&self, resource: &Resource, stored: &Value, wanted: &Value) -> Result<(), Refusal> {
        let status = wanted.get("status");
        if status.is_none() || stored.get("status") == status {
            return Ok(());
        }
        let mut next = stored.clone();
        next.set("/status", wanted["status"].clone());
        self.api.update_status(resource, next).map(|_| ())
    }

    pub(super) fn delete(&self, object: &Value) -> Result<(), Refusal> {
        let options = DeleteOptions { uid: Some(object.uid().to_owned()), ..DeleteOptions::default() };
        match self.api.delete(&self.resource(object)?, object.namespace(), object.name(), &options) {
            Err(refusal) if refusal.code != 404 => Err(refusal),
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

/// Returns the object that a reference of either contract version names, in the version in which it is stored.
pub(crate) fn referred(api: &Api, reference: &Value, namespace: &str) -> Option<Arc<Value>> {
    let group = reference["apiGroup"].as_str().or_else(|| Some(reference["apiVersion"].as_str()?.split_once('/')?.0));
    let kind = reference["kind"].as_str()?;
    let known = api.kinds();
    let spec = known.iter().find(|spec| Some(spec.group.as_str()) == group && spec.kind == kind)?;
    api.get(&spec.storage_resource(), namespace, reference["name"].as_str()?).ok()
}

/// Returns the part that an update writes: everything except the status and the generation.
fn main_part(object: &Value) -> Value {
    let mut part = object.clone();
    part.unset("/status");
    part.unset("/metadata/generation");
    part
}
