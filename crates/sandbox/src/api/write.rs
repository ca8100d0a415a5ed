//! Creates and updates, with the rules that are checked before an object is stored.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{
    collect, core_kinds,
    managed::{Managers, Writer},
    object::{self, Object, ObjectKey, finalizers, text},
    refusal::{FieldCause, Refusal},
    scale,
    store::{Place, Store, Target},
};

/// The metadata fields that only the API sets.
const SYSTEM: [&str; 5] = ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"];

pub(crate) fn create(
    store: &mut Store,
    target: &Target,
    namespace: &str,
    mut value: Value,
    request: &Request,
) -> Result<Arc<Value>, Refusal> {
    object::check_types(&mut value)?;
    target.check_type(&mut value)?;
    if !text(&value, "resourceVersion").is_empty() {
        return Err(Refusal::new(500, "", "resourceVersion should not be set on objects to be created"));
    }
    settle_namespace(target, namespace, &mut value)?;
    set_system_fields(target, &mut value, &request.time);
    if target.spec.rules.create_drops_status && target.version.status {
        remove(&mut value, "status");
    }
    value["apiVersion"] = json!(target.storage_api_version());
    core_kinds::fill(&target.spec, &mut value, &request.time);
    validate(target, &value)?;
    let place = Place { kind: target.id, key: ObjectKey::of(&value) };
    check_namespace(store, target, &place)?;
    if store.get(&place).is_some() {
        return Err(Refusal::already_exists(&target.spec, &place.key.name));
    }
    let api_version = target.api_version();
    if Managers::of(&value).is_empty() {
        let mut managers = Managers::default();
        managers.update(request.writer("", &api_version), &Value::Null, &value, target.spec.rules.strategic);
        managers.store(&mut value);
    }
    if request.dry_run {
        return Ok(Arc::new(value));
    }
    let created = commit(store, target, value)?;
    collect::after_create(store, &place, &request.time);
    Ok(created)
}

/// Stores the value unchanged, and applies its effects: a definition defines its kind.
pub(crate) fn commit(store: &mut Store, target: &Target, value: Value) -> Result<Arc<Value>, Refusal> {
    let object = store.put(target.id, value).ok_or_else(Refusal::no_such_resource)?;
    collect::after_put(store, target, &object);
    Ok(Arc::clone(object.value()))
}

fn settle_namespace(target: &Target, namespace: &str, value: &mut Value) -> Result<(), Refusal> {
    let given = text(value, "namespace");
    if !target.spec.namespaced {
        // The namespace of a cluster-scoped object is dropped.
        if let Some(metadata) = value["metadata"].as_object_mut() {
            metadata.remove("namespace");
        }
        return Ok(());
    }
    if !given.is_empty() && !namespace.is_empty() && given != namespace {
        return Err(Refusal::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    if given.is_empty() {
        if namespace.is_empty() {
            return Err(Refusal::bad_request("an empty namespace may not be set during creation"));
        }
        value["metadata"]["namespace"] = json!(namespace);
    }
    Ok(())
}

fn set_system_fields(target: &Target, value: &mut Value, time: &str) {
    if let Some(metadata) = value["metadata"].as_object_mut() {
        for field in SYSTEM {
            metadata.remove(field);
        }
        metadata.insert("uid".to_owned(), json!(uuid::Uuid::new_v4()));
        metadata.insert("creationTimestamp".to_owned(), json!(time));
        if target.spec.rules.generation {
            metadata.insert("generation".to_owned(), json!(1));
        }
    }
}

fn validate(target: &Target, value: &Value) -> Result<(), Refusal> {
    let mut causes = object::causes(&target.spec, value);
    causes.extend(scale::fault(target, value));
    if causes.is_empty() { Ok(()) } else { Err(Refusal::invalid(&target.spec, text(value, "name"), &causes)) }
}

/// Checks that the namespace exists and isn't being deleted.
fn check_namespace(store: &Store, target: &Target, place: &Place) -> Result<(), Refusal> {
    if !target.spec.namespaced {
        return Ok(());
    }
    let Some(id) = store.find("", "namespaces") else { return Ok(()) };
    let namespace = Place { kind: id, key: ObjectKey::new("", &place.key.namespace) };
    match (store.get(&namespace), store.table(id)) {
        (None, Some(table)) => Err(Refusal::not_found(&table.spec, &place.key.namespace)),
        (Some(object), _) if !text(object.value(), "deletionTimestamp").is_empty() => Err(Refusal::forbidden(
            &target.spec,
            &place.key.name,
            &format!(
                "unable to create new content in namespace {} because it is being terminated",
                place.key.namespace
            ),
        )),
        (Some(_) | None, _) => Ok(()),
    }
}

/// Replaces the part of the object at `place` that `subresource` reaches by that of `value`.
pub(crate) fn update(
    store: &mut Store,
    target: &Target,
    place: &Place,
    subresource: Subresource,
    mut value: Value,
    request: &Request,
) -> Result<Arc<Value>, Refusal> {
    object::check_types(&mut value)?;
    target.check_type(&mut value)?;
    check_address(target, place, &mut value)?;
    let Some(old) = store.get(place).cloned() else {
        if target.spec.rules.create_on_update && subresource == Subresource::Main {
            return create(store, target, &place.key.namespace, value, request);
        }
        return Err(Refusal::not_found(&target.spec, &place.key.name));
    };
    if text(&value, "resourceVersion").is_empty() && !target.spec.rules.unconditional_update {
        let cause = FieldCause::invalid("metadata.resourceVersion", "0", "must be specified for an update");
        return Err(Refusal::invalid(&target.spec, &place.key.name, &[cause]));
    }
    replace(store, target, &old, subresource, value, subresource.name(), request)
}

/// Checks that name and namespace in the body match those of the URL.
fn check_address(target: &Target, place: &Place, value: &mut Value) -> Result<(), Refusal> {
    let name = text(value, "name");
    if name.is_empty() {
        value["metadata"]["name"] = json!(place.key.name);
    } else if name != place.key.name {
        return Err(Refusal::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            place.key.name
        )));
    }
    settle_namespace(target, &place.key.namespace, value)
}

/// Replaces `old` by `value`, after the checks that updates and patches share.
pub(crate) fn replace(
    store: &mut Store,
    target: &Target,
    old: &Arc<Object>,
    subresource: Subresource,
    value: Value,
    written_as: &'static str,
    request: &Request,
) -> Result<Arc<Value>, Refusal> {
    check_preconditions(target, old.value(), text(&value, "uid"), text(&value, "resourceVersion"))?;
    let mut next = shape(target, old.value(), subresource, value);
    let managers_given = next["metadata"].get("managedFields").cloned();
    if managers_given.as_ref().is_none_or(|given| *given != old.value()["metadata"]["managedFields"]) {
        // Clients don't write this field.
        copy_field(old.value(), &mut next, "managedFields");
    }
    if same(old.value(), &next) {
        return Ok(Arc::clone(old.value()));
    }
    let api_version = target.api_version();
    let mut managers = Managers::of(&next);
    let writer = request.writer(written_as, &api_version);
    match subresource {
        // A size without a manager doesn't get one by a Scale: an untracked field stays untracked.
        Subresource::Scale if !scale::is_managed(target, old.value()) => {}
        Subresource::Scale => {
            let as_managed = scale::as_managed(target, &next);
            managers.update(writer, old.value(), &as_managed, target.spec.rules.strategic);
        }
        Subresource::Main | Subresource::Status => {
            managers.update(writer, old.value(), &next, target.spec.rules.strategic);
        }
    }
    managers.store(&mut next);
    finish(store, target, old, next, request)
}

/// Increments the generation if more than metadata and status has changed, checks the last rules, and stores the
/// object; removes it if only its finalizers kept it.
fn finish(
    store: &mut Store,
    target: &Target,
    old: &Arc<Object>,
    mut next: Value,
    request: &Request,
) -> Result<Arc<Value>, Refusal> {
    next["apiVersion"] = json!(target.storage_api_version());
    core_kinds::fill(&target.spec, &mut next, &request.time);
    validate(target, &next)?;
    check_finalizers(target, old.value(), &next)?;
    if target.spec.rules.generation && !same_but_metadata(target, old.value(), &next) {
        let generation = old.value()["metadata"]["generation"].as_i64().unwrap_or_default();
        next["metadata"]["generation"] = json!(generation + 1);
    }
    if request.dry_run {
        return Ok(Arc::new(next));
    }
    if collect::is_finished(target, &next) {
        store.remove(&Place { kind: target.id, key: old.key().clone() });
        collect::settle(store, &request.time);
        return Ok(Arc::new(next));
    }
    let stored = commit(store, target, next)?;
    collect::settle(store, &request.time);
    Ok(stored)
}

/// Returns the new state: the part that the request may write from `value`, everything else from `old`.
fn shape(target: &Target, old: &Value, subresource: Subresource, value: Value) -> Value {
    let mut next = match subresource {
        Subresource::Main | Subresource::Scale => {
            let mut next = value;
            if target.version.status {
                copy_top(old, &mut next, "status");
            }
            next
        }
        Subresource::Status => {
            let mut next = old.clone();
            copy_top(&value, &mut next, "status");
            if target.spec.rules.strategic {
                // The status of a core kind is written together with metadata.
                next["metadata"] = value["metadata"].clone();
            }
            next
        }
    };
    for field in SYSTEM.into_iter().chain(["resourceVersion"]) {
        copy_field(old, &mut next, field);
    }
    next["apiVersion"] = old["apiVersion"].clone();
    next
}

fn copy_top(from: &Value, to: &mut Value, field: &str) {
    match from.get(field) {
        Some(value) => to[field] = value.clone(),
        None => remove(to, field),
    }
}

/// Copies a field of the metadata, or removes it if it is absent.
fn copy_field(from: &Value, to: &mut Value, field: &str) {
    let Some(metadata) = to.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    match from["metadata"].get(field) {
        Some(value) => metadata.insert(field.to_owned(), value.clone()),
        None => metadata.remove(field),
    };
}

fn remove(value: &mut Value, field: &str) {
    if let Some(map) = value.as_object_mut() {
        map.remove(field);
    }
}

/// Returns true if two states differ only in their managers and resourceVersion.
fn same(old: &Value, new: &Value) -> bool {
    equal_but(old, new, &["metadata"])
        && equal_but(&old["metadata"], &new["metadata"], &["managedFields", "resourceVersion"])
}

fn same_but_metadata(target: &Target, old: &Value, new: &Value) -> bool {
    let ignored: &[&str] = if target.version.status { &["metadata", "status"] } else { &["metadata"] };
    equal_but(old, new, ignored)
}

fn equal_but(old: &Value, new: &Value, ignored: &[&str]) -> bool {
    let empty = Map::new();
    let (old, new) = (old.as_object().unwrap_or(&empty), new.as_object().unwrap_or(&empty));
    let counted = |map: &Map<String, Value>| map.keys().filter(|key| !ignored.contains(&key.as_str())).count();
    counted(old) == counted(new)
        && old.iter().all(|(key, value)| ignored.contains(&key.as_str()) || new.get(key) == Some(value))
}

/// Refuses new finalizers on an object that is being deleted.
fn check_finalizers(target: &Target, old: &Value, next: &Value) -> Result<(), Refusal> {
    if text(old, "deletionTimestamp").is_empty() {
        return Ok(());
    }
    let new: Vec<&str> =
        finalizers(next).filter(|finalizer| !finalizers(old).any(|before| before == *finalizer)).collect();
    if new.is_empty() {
        return Ok(());
    }
    let why = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        new.iter().map(|finalizer| format!("{finalizer:?}")).collect::<Vec<_>>().join(", ")
    );
    let cause = FieldCause::forbidden("metadata.finalizers", &why);
    Err(Refusal::invalid(&target.spec, text(old, "name"), &[cause]))
}

/// The part of an object that a request writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subresource {
    /// The object except for its status.
    Main,
    /// The status.
    Status,
    /// The number of replicas, as a Scale.
    Scale,
}

impl Subresource {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Main => "",
            Self::Status => "status",
            Self::Scale => "scale",
        }
    }
}

/// The manager and time of a write; `dry_run` is true if nothing is stored.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) manager: String,
    pub(crate) time: String,
    pub(crate) dry_run: bool,
}

impl Request {
    pub(crate) fn writer<'w>(&'w self, subresource: &'static str, api_version: &'w str) -> Writer<'w> {
        Writer { manager: &self.manager, subresource, api_version, time: &self.time }
    }
}

/// Refuses a request whose uid or resourceVersion differs from the object's; an empty one matches.
pub(crate) fn check_preconditions(
    target: &Target,
    old: &Value,
    uid: &str,
    resource_version: &str,
) -> Result<(), Refusal> {
    let name = text(old, "name");
    if !uid.is_empty() && uid != text(old, "uid") {
        let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {}", text(old, "uid"));
        return Err(Refusal::conflict(&target.spec, name, &why));
    }
    // The resource version 0 matches too.
    if !resource_version.is_empty() && resource_version != "0" && resource_version != text(old, "resourceVersion") {
        return Err(Refusal::modified(&target.spec, name));
    }
    Ok(())
}
