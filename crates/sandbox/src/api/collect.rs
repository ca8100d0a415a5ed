//! Deletes and their cascade in the background: finalizers, dependents by owner references, the contents of a
//! namespace, the objects of a kind whose definition is deleted.
//!
//! The store collects garbage at once, where a cluster's garbage collector acts a little later; each step has a
//! revision of its own. A dependent that is created when its owner is gone, as by a controller whose cache lags behind,
//! goes as well. Dependents whose owner never existed are left alone, so that manifests load in any order.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    kind,
    object::{Object, ObjectKey, finalizers, owners, text},
    refusal::Refusal,
    store::{Place, Store, Target},
    write::{Request, check_preconditions},
};

/// The options and preconditions of a delete.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeleteOptions {
    /// The precondition on the uid.
    pub uid: Option<String>,
    /// The precondition on the resource version.
    pub resource_version: Option<String>,
    /// The grace period in seconds of a Pod on a Node; `None` for the one in the Pod's spec.
    pub grace: Option<u64>,
    /// True to report the outcome without deleting anything.
    pub dry_run: bool,
}

/// The outcome of a delete.
#[derive(Debug, Clone, PartialEq)]
pub enum Deleted {
    /// The object is gone; this is its last state.
    Gone(Arc<Value>),
    /// The object is marked as being deleted, and waits for its finalizers.
    Waiting(Arc<Value>),
}

/// Deletes the object at `place`, and everything that is deleted with it.
pub(crate) fn delete(
    store: &mut Store,
    target: &Target,
    place: &Place,
    options: &DeleteOptions,
    request: &Request,
) -> Result<Deleted, Refusal> {
    let object = store.get(place).cloned().ok_or_else(|| Refusal::not_found(&target.spec, &place.key.name))?;
    let given = |option: &Option<String>| option.clone().unwrap_or_default();
    check_delete_preconditions(target, object.value(), &given(&options.uid), &given(&options.resource_version))?;
    if options.dry_run {
        return Ok(Deleted::Gone(Arc::clone(object.value())));
    }
    let grace = if is_bound_pod(target, object.value()) {
        options.grace.unwrap_or_else(|| object.value()["spec"]["terminationGracePeriodSeconds"].as_u64().unwrap_or(30))
    } else {
        0
    };
    let time = later(&request.time, grace);
    let deleted = mark_or_remove(store, target, place, Deletion { time: &time, grace });
    if is_namespace(target) {
        empty_namespace(store, place, &request.time);
    }
    settle(store, &request.time);
    deleted.ok_or_else(|| Refusal::not_found(&target.spec, &place.key.name))
}

fn check_delete_preconditions(target: &Target, old: &Value, uid: &str, revision: &str) -> Result<(), Refusal> {
    if check_preconditions(target, old, uid, revision).is_ok() {
        return Ok(());
    }
    let why = if !uid.is_empty() && uid != text(old, "uid") {
        format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been \
             deleted and then recreated",
            text(old, "uid")
        )
    } else {
        format!(
            "the ResourceVersion in the precondition ({revision}) does not match the ResourceVersion in record ({}). \
             The object might have been modified",
            text(old, "resourceVersion")
        )
    };
    Err(Refusal::conflict(&target.spec, text(old, "name"), &why))
}

/// Returns true if this is a Pod that runs on a Node, so that the simulated kubelet ends it.
fn is_bound_pod(target: &Target, value: &Value) -> bool {
    target.spec.group.is_empty()
        && target.spec.kind == "Pod"
        && !value["spec"]["nodeName"].as_str().unwrap_or_default().is_empty()
        && !matches!(value["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

fn later(time: &str, seconds: u64) -> String {
    let by = std::time::Duration::from_secs(seconds);
    let moved = time.parse::<jiff::Timestamp>().ok().and_then(|time| time.checked_add(by).ok());
    moved.map_or_else(|| time.to_owned(), |moved| moved.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// The deletion timestamp of an object, and its grace period in seconds.
#[derive(Debug, Clone, Copy)]
struct Deletion<'t> {
    time: &'t str,
    grace: u64,
}

impl<'t> Deletion<'t> {
    /// Creates a deletion without a grace period, as for an object that is deleted with another one.
    fn now(time: &'t str) -> Self {
        Self { time, grace: 0 }
    }
}

/// Removes an object, or marks it as being deleted if finalizers or contents block it.
fn mark_or_remove(store: &mut Store, target: &Target, place: &Place, deletion: Deletion<'_>) -> Option<Deleted> {
    let object = store.get(place)?.clone();
    let mut next = Value::clone(object.value());
    if finalizers(&next).next().is_none() && deletion.grace == 0 && !is_namespace(target) {
        return store.remove(place).map(|last| Deleted::Gone(Arc::clone(last.value())));
    }
    let given = next["metadata"]["deletionGracePeriodSeconds"].as_u64();
    if given.is_some_and(|given| deletion.grace < given) {
        next["metadata"]["deletionTimestamp"] = json!(deletion.time);
        next["metadata"]["deletionGracePeriodSeconds"] = json!(deletion.grace);
    }
    if text(&next, "deletionTimestamp").is_empty() {
        next["metadata"]["deletionTimestamp"] = json!(deletion.time);
        next["metadata"]["deletionGracePeriodSeconds"] = json!(deletion.grace);
        if let Some(generation) = next["metadata"]["generation"].as_i64() {
            next["metadata"]["generation"] = json!(generation + 1);
        }
        if is_namespace(target) {
            next["status"]["phase"] = json!("Terminating");
        }
    }
    if next == **object.value() {
        return Some(Deleted::Waiting(Arc::clone(object.value())));
    }
    store.put(place.kind, next).map(|object| Deleted::Waiting(Arc::clone(object.value())))
}

fn is_namespace(target: &Target) -> bool {
    target.spec.group.is_empty() && target.spec.kind == "Namespace"
}

/// Returns true if an object that is being deleted has no finalizers left and can be removed.
pub(crate) fn is_finished(target: &Target, value: &Value) -> bool {
    !text(value, "deletionTimestamp").is_empty()
        && value["metadata"]["deletionGracePeriodSeconds"].as_u64().unwrap_or_default() == 0
        && finalizers(value).next().is_none()
        && !is_namespace(target)
}

fn dependents(store: &Store, uid: &str) -> Vec<Place> {
    store.dependents(uid).cloned().collect()
}

/// Removes owners from an object.
fn disown(store: &mut Store, place: &Place, uids: &[&str]) {
    let Some(object) = store.get(place) else { return };
    let mut next = Value::clone(object.value());
    if let Some(list) = next["metadata"]["ownerReferences"].as_array_mut() {
        list.retain(|owner| !owner["uid"].as_str().is_some_and(|uid| uids.contains(&uid)));
        if list.is_empty()
            && let Some(metadata) = next["metadata"].as_object_mut()
        {
            metadata.remove("ownerReferences");
        }
    }
    store.put(place.kind, next);
}

/// Deletes the contents of a namespace if it is being deleted, and the namespace once it is empty.
fn empty_namespace(store: &mut Store, place: &Place, time: &str) {
    if store.get(place).is_none_or(|object| text(object.value(), "deletionTimestamp").is_empty()) {
        return;
    }
    let name = place.key.name.clone();
    let inside: Vec<Place> = store
        .tables()
        .filter(|(_, table)| table.spec.namespaced)
        .flat_map(|(kind, table)| {
            let from = ObjectKey::new(&name, "");
            let keys = table.objects.range(from..).map(|(key, _)| key).take_while(|key| key.namespace == name);
            keys.map(move |key| Place { kind, key: key.clone() }).collect::<Vec<_>>()
        })
        .collect();
    let mut left = false;
    for held in inside {
        let Some(target) = Target::stored(store, held.kind) else { continue };
        mark_or_remove(store, &target, &held, Deletion::now(time));
        left |= store.get(&held).is_some();
    }
    let holds = store.get(place).is_some_and(|object| finalizers(object.value()).next().is_some());
    if !left && !holds {
        store.remove(place);
    }
}

/// Follows up on removed objects until nothing else is to be deleted.
pub(crate) fn settle(store: &mut Store, time: &str) {
    while let Some(gone) = store.gone.pop_front() {
        let uid = text(gone.value(), "uid");
        for dependent in dependents(store, uid) {
            abandon(store, &dependent, time);
        }
        let namespace = text(gone.value(), "namespace");
        if !namespace.is_empty()
            && let Some(kind) = store.find("", "namespaces")
        {
            empty_namespace(store, &Place { kind, key: ObjectKey::new("", namespace) }, time);
        }
        if let Some((group, plural)) = kind::defined_by(gone.value())
            && let Some(kind) = store.find(group, plural)
        {
            store.undefine(kind);
        }
    }
}

/// Follows up on a new object, some of whose owners may have been removed before.
pub(crate) fn after_create(store: &mut Store, place: &Place, time: &str) {
    let Some(object) = store.get(place).cloned() else { return };
    let is_late = |uid: &str| store.place_of(uid).is_none() && store.was_removed(uid);
    if owners(object.value()).any(is_late) {
        abandon(store, place, time);
        settle(store, time);
    }
}

/// Deletes a dependent of a removed owner. If other owners exist, only removes the owner reference.
fn abandon(store: &mut Store, dependent: &Place, time: &str) {
    let Some(object) = store.get(dependent).cloned() else { return };
    let Some(target) = Target::stored(store, dependent.kind) else { return };
    let (there, absent): (Vec<&str>, Vec<&str>) = owners(object.value()).partition(|uid| store.place_of(uid).is_some());
    if !there.is_empty() {
        disown(store, dependent, &absent);
    } else if text(object.value(), "deletionTimestamp").is_empty() {
        mark_or_remove(store, &target, dependent, Deletion::now(time));
    }
}

/// Updates the store after an object was stored: a CustomResourceDefinition defines its kind.
pub(crate) fn after_put(store: &mut Store, target: &Target, object: &Object) {
    if kind::is_definition(&target.spec)
        && let Some(spec) = kind::kind_of(object.value())
    {
        store.define(spec);
    }
}
