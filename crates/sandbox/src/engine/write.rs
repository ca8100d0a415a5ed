//! Single writes: a plan split into the requests that Cluster API sends one after the other. Its patches contain its
//! changes since it read the object, and no resource version, so a stale view overwrites what others wrote to the same
//! fields. Its deletes have no precondition.

use std::{collections::VecDeque, fmt, sync::Arc};

use serde_json::{Map, Value, json};

use super::{
    kind::Controller,
    view::{ObjectKey, key_of},
};
use crate::{
    api::{Api, DeleteOptions, Deleted, PatchKind, Refusal, Resource, Subresource},
    controllers::{
        CapiVersion, keys,
        object::{Object as _, annotation},
        plan::{Plan, Side, Write},
        propagation,
    },
};

/// The next operation of a reconcile.
#[derive(Clone, Debug)]
pub(super) enum Op {
    /// Creates an object, with the status it has.
    Create(Side, Value),
    /// Applies a merge patch.
    Patch(Patch),
    /// Deletes the object of this name, whatever its uid.
    Delete(Side, Arc<Value>),
    /// Waits until the controller's view shows all of these as created or as being deleted.
    Wait(VecDeque<Awaited>),
}

#[derive(Clone, Debug)]
pub(super) struct Patch {
    side: Side,
    api_version: String,
    kind: String,
    key: ObjectKey,
    subresource: Subresource,
    body: Value,
}

/// An object that a controller has created or deleted, as its cache doesn't show yet.
#[derive(Clone, Debug)]
pub(super) struct Awaited {
    pub(super) key: ObjectKey,
    pub(super) is_deleted: bool,
}

/// The result of a write.
#[derive(Clone, Debug)]
pub(super) struct Written {
    /// The revision of the written object; `None` if it is gone.
    pub(super) revision: Option<u64>,
}

impl fmt::Display for Op {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create(_, object) => write!(out, "creates {} {}", object.kind(), object.name()),
            Self::Patch(patch) => {
                let part = if patch.subresource == Subresource::Status { "status of " } else { "" };
                write!(out, "patches {part}{} {}", patch.kind, patch.key.1)?;
                match patch.body.pointer("/spec/replicas") {
                    Some(replicas) => write!(out, " to {replicas} replicas"),
                    None => Ok(()),
                }
            }
            Self::Delete(_, object) => write!(out, "deletes {} {}", object.kind(), object.name()),
            Self::Wait(left) => write!(out, "waits for its cache to show {} objects", left.len()),
        }
    }
}

impl Op {
    /// Creates a merge patch of an object except for its status.
    pub(super) fn patch(side: Side, object: &Value, body: Value) -> Self {
        Self::part(side, object, Subresource::Main, body)
    }

    fn part(side: Side, object: &Value, subresource: Subresource, body: Value) -> Self {
        let api_version = object["apiVersion"].as_str().unwrap_or_default().to_owned();
        let kind = object.kind().to_owned();
        Self::Patch(Patch { side, api_version, kind, key: key_of(object), subresource, body })
    }

    pub(super) fn is_status_of(&self, of: &str) -> bool {
        matches!(self, Self::Patch(patch) if patch.subresource == Subresource::Status && patch.kind == of)
    }

    /// Leaves `status.observedGeneration` unchanged.
    pub(super) fn keep_observed_generation(&mut self) {
        if let Self::Patch(patch) = self {
            patch.body.unset("/status/observedGeneration");
        }
    }

    /// Returns the kind and key of the written object.
    pub(super) fn target(&self) -> Option<(&str, ObjectKey)> {
        match self {
            Self::Create(_, object) => Some((object.kind(), key_of(object))),
            Self::Delete(_, object) => Some((object.kind(), key_of(object))),
            Self::Patch(patch) => Some((&patch.kind, patch.key.clone())),
            Self::Wait(_) => None,
        }
    }

    pub(super) fn side(&self) -> Side {
        match self {
            Self::Create(side, _) | Self::Delete(side, _) => *side,
            Self::Patch(patch) => patch.side,
            Self::Wait(_) => Side::Management,
        }
    }

    /// Executes the operation.
    pub(super) fn perform(&self, api: &Api) -> Result<Written, Refusal> {
        match self {
            Self::Create(_, object) => {
                let resource = resource(api, object["apiVersion"].as_str().unwrap_or_default(), object.kind())?;
                let mut created = api.create(&resource, object.clone())?;
                if object.get("status").is_some_and(|status| created.get("status") != Some(status)) {
                    let mut whole = Value::clone(&created);
                    whole.set("/status", object["status"].clone());
                    created = api.update_status(&resource, whole)?;
                }
                Ok(Written { revision: revision(&created) })
            }
            Self::Patch(patch) => {
                let Patch { key: (namespace, name), .. } = patch;
                let resource = resource(api, &patch.api_version, &patch.kind)?;
                let body = patch.body.clone();
                let after = api.patch(&resource, namespace, name, PatchKind::Merge, patch.subresource, body)?;
                Ok(Written { revision: revision(&after) })
            }
            Self::Delete(_, object) => {
                let resource = resource(api, object["apiVersion"].as_str().unwrap_or_default(), object.kind())?;
                match api.delete(&resource, object.namespace(), object.name(), &DeleteOptions::default())? {
                    Deleted::Waiting(after) => Ok(Written { revision: revision(&after) }),
                    Deleted::Gone(_) => Ok(Written { revision: None }),
                }
            }
            Self::Wait(_) => Ok(Written { revision: None }),
        }
    }
}

fn resource(api: &Api, api_version: &str, kind: &str) -> Result<Resource, Refusal> {
    api.resource_of(api_version, kind)
        .ok_or_else(|| Refusal::new(404, "NotFound", format!("no kind {kind} is known in {api_version}")))
}

fn revision(object: &Value) -> Option<u64> {
    object.text("/metadata/resourceVersion")?.parse().ok()
}

/// The inputs of a MachineDeployment's writes to its MachineSets.
struct Wish<'a> {
    deployment: &'a Value,
    /// The revision of the newest MachineSet.
    revision: Option<&'a str>,
    version: CapiVersion,
}

/// Returns the writes of a controller's plan for `object`, one by one.
pub(super) fn ops(plan: Plan, controller: Controller, object: &Value, version: CapiVersion) -> VecDeque<Op> {
    let mut ops = VecDeque::new();
    let mut awaited = VecDeque::new();
    let waits = version.waits_for_cache_in_reconcile() && !object.deleting();
    let own = plan.writes.iter().find_map(|write| match write {
        Write::Change(_, before, after) if before.uid() == object.uid() => Some(after),
        Write::Change(..) | Write::Create(..) | Write::Delete(..) => None,
    });
    let revision = own.unwrap_or(object).annotation(keys::REVISION).map(str::to_owned);
    for write in plan.writes {
        match write {
            Write::Create(side, object) => {
                awaited.push_back(Awaited { key: key_of(&object), is_deleted: false });
                ops.push_back(Op::Create(side, object));
                if waits && controller == Controller::MachineDeployment {
                    ops.push_back(Op::Wait(std::mem::take(&mut awaited)));
                }
            }
            Write::Delete(side, object) => {
                awaited.push_back(Awaited { key: key_of(&object), is_deleted: true });
                ops.push_back(Op::Delete(side, object));
            }
            Write::Change(side, before, after) => {
                let is_own = before.uid() == object.uid();
                if is_own && controller == Controller::MachineSet && waits && !awaited.is_empty() {
                    ops.push_back(Op::Wait(std::mem::take(&mut awaited)));
                }
                if !is_own && controller == Controller::MachineDeployment {
                    let wish = Wish { deployment: object, revision: revision.as_deref(), version };
                    resize(&mut ops, side, &before, &after, &wish);
                } else {
                    change(&mut ops, side, &before, &after);
                }
            }
        }
    }
    if controller == Controller::MachineSet && waits && !awaited.is_empty() {
        ops.push_back(Op::Wait(awaited));
    }
    ops
}

/// Adds the writes of a change: metadata and spec first, then the status.
fn change(ops: &mut VecDeque<Op>, side: Side, before: &Value, after: &Value) {
    if let Some(body) = main_difference(before, after) {
        ops.push_back(Op::part(side, before, Subresource::Main, body));
    }
    if let Some(status) = difference(&before["status"], &after["status"]) {
        ops.push_back(Op::part(side, before, Subresource::Status, json!({ "status": status })));
    }
}

/// Adds a MachineDeployment's write of a MachineSet. The applied fields are sent as a whole, not as a difference to the
/// read state.
fn resize(ops: &mut VecDeque<Op>, side: Side, before: &Value, after: &Value, wish: &Wish<'_>) {
    let Some(mut body) = main_difference(before, after) else { return };
    let replicas = &after["spec"]["replicas"];
    let is_resized = before["spec"]["replicas"] != *replicas;
    let is_newest = wish.revision.is_none() || after.annotation(keys::REVISION) == wish.revision;
    if !is_newest && !wish.version.annotates_older_sets() {
        if is_resized {
            let mut body = json!({ "spec": { "replicas": replicas } });
            for key in [keys::DESIRED_REPLICAS, keys::MAX_REPLICAS] {
                body.set(&annotation(key), after["metadata"]["annotations"][key].clone());
            }
            ops.push_back(Op::part(side, before, Subresource::Main, body));
        }
        return;
    }
    for (key, value) in propagation::wanted(wish.deployment) {
        body.set(&annotation(&key), value);
    }
    let is_apart = wish.version.sizes_machine_set_apart() || wish.deployment["spec"]["paused"] == true;
    let first = if is_apart { &before["spec"]["replicas"] } else { replicas };
    body.set("/spec/replicas", first.clone());
    ops.push_back(Op::part(side, before, Subresource::Main, body));
    if is_apart && is_resized {
        ops.push_back(Op::part(side, before, Subresource::Main, json!({ "spec": { "replicas": replicas } })));
    }
}

fn main_difference(before: &Value, after: &Value) -> Option<Value> {
    let mut body = difference(before, after)?;
    body.unset("/status");
    for field in ["generation", "resourceVersion", "managedFields"] {
        body.unset(&format!("/metadata/{field}"));
    }
    if body["metadata"].as_object().is_some_and(Map::is_empty) {
        body.unset("/metadata");
    }
    body.as_object().is_some_and(|body| !body.is_empty()).then_some(body)
}

/// Returns the merge patch that turns `before` into `after`.
fn difference(before: &Value, after: &Value) -> Option<Value> {
    let (Value::Object(old), Value::Object(new)) = (before, after) else {
        return (before != after).then(|| after.clone());
    };
    let mut patch = Map::new();
    for (key, value) in new {
        match old.get(key) {
            Some(known) => {
                if let Some(value) = difference(known, value) {
                    patch.insert(key.clone(), value);
                }
            }
            None => {
                patch.insert(key.clone(), value.clone());
            }
        }
    }
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}
