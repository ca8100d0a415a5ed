//! Server-side apply: a manager declares the fields that it wants, gives up fields it no longer names, and gets a
//! conflict if another manager wants a different value.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{
    fields::{FieldSet, keys_of},
    lists::{ListType, Lists},
    managed::Managers,
    meta,
    object::text,
    refusal::Refusal,
    request::{Request, Subresource, check_preconditions},
    store::{Place, Store},
    target::Target,
    write,
};

/// Applies `wanted` to the object at `place`, which is created if it doesn't exist.
pub(crate) fn apply(
    store: &mut Store,
    target: &Target,
    place: &Place,
    subresource: Subresource,
    mut wanted: Value,
    force: bool,
    request: &Request,
) -> Result<Arc<Value>, Refusal> {
    check(target, place, &mut wanted)?;
    let api_version = target.api_version();
    let writer = request.writer(subresource.name(), &api_version);
    let lists = &target.version.lists;
    let applied = FieldSet::of(&wanted, lists);
    let Some(old) = store.get(place).cloned() else {
        if subresource != Subresource::Main {
            return Err(Refusal::not_found(&target.spec, &place.key.name));
        }
        let mut managers = Managers::default();
        managers.apply(writer, applied, &FieldSet::default(), &FieldSet::default());
        managers.store(&mut wanted);
        return write::create(store, target, &place.key.namespace, wanted, request);
    };
    check_preconditions(target, old.value(), text(&wanted, "uid"), text(&wanted, "resourceVersion"))?;
    let live = (*old.under(&api_version)).clone();
    let mut next = live.clone();
    merge(&mut next, &wanted, lists, "");
    keep_outside(target, subresource, &live, &mut next);
    let mut managers = Managers::of(&live);
    let changed = write::changed(target, &live, &next);
    let conflicts = managers.conflicts(writer, &applied.common(&changed));
    if !force && !conflicts.is_empty() {
        return Err(Refusal::apply_conflict(&conflicts));
    }
    let given_up = managers.applied(writer).without(&applied).without(&managers.of_others(writer));
    given_up.remove_from(&mut next);
    meta::check_types(&mut next)?;
    write::admit(target, Some(&live), &mut next)?;
    managers.apply(writer, applied, &changed, &given_up);
    let unchanged = write::same(&live, &next);
    managers.store(&mut next);
    if unchanged && next["metadata"]["managedFields"] == live["metadata"]["managedFields"] {
        return Ok(Arc::clone(old.value()));
    }
    write::finish(store, target, &old, next, request)
}

fn check(target: &Target, place: &Place, wanted: &mut Value) -> Result<(), Refusal> {
    if wanted.get("metadata").and_then(|metadata| metadata.get("managedFields")).is_some_and(|list| !list.is_null()) {
        return Err(Refusal::bad_request("metadata.managedFields must be nil"));
    }
    meta::check_types(wanted)?;
    target.check_type(wanted)?;
    let name = text(wanted, "name");
    if !name.is_empty() && name != place.key.name {
        return Err(Refusal::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            place.key.name
        )));
    }
    wanted["metadata"]["name"] = Value::String(place.key.name.clone());
    if !place.key.namespace.is_empty() {
        wanted["metadata"]["namespace"] = Value::String(place.key.namespace.clone());
    }
    Ok(())
}

/// Restores the parts that a request to this subresource doesn't reach.
fn keep_outside(target: &Target, subresource: Subresource, live: &Value, next: &mut Value) {
    let keep = |next: &mut Value, field: &str| match live.get(field) {
        Some(value) => next[field] = value.clone(),
        None => {
            next.as_object_mut().map(|map| map.remove(field));
        }
    };
    match subresource {
        Subresource::Main | Subresource::Scale => {
            if target.version.status {
                keep(next, "status");
            }
        }
        Subresource::Status => {
            let fields: Vec<String> = next.as_object().map(|map| map.keys().cloned().collect()).unwrap_or_default();
            for field in fields.iter().filter(|field| *field != "status") {
                keep(next, field);
            }
        }
    }
    for field in ["uid", "creationTimestamp", "deletionTimestamp", "generation", "resourceVersion"] {
        write::copy_field(live, next, field);
    }
}

fn merge(target: &mut Value, wanted: &Value, lists: &Lists, path: &str) {
    match wanted {
        Value::Object(map) if !lists.is_atomic_map(path) => {
            if !target.is_object() {
                *target = Value::Object(Map::new());
            }
            let Some(into) = target.as_object_mut() else { return };
            for (name, value) in map {
                merge(into.entry(name.clone()).or_insert(Value::Null), value, lists, &format!("{path}.{name}"));
            }
        }
        Value::Array(items) => merge_items(target, items, lists, path),
        Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            *target = wanted.clone();
        }
    }
}

fn merge_items(target: &mut Value, wanted: &[Value], lists: &Lists, path: &str) {
    let (Some(rule), Some(items)) = (lists.apply(path), target.as_array_mut()) else {
        *target = Value::Array(wanted.to_vec());
        return;
    };
    for item in wanted {
        let existing = match rule {
            ListType::Set => items.iter_mut().find(|existing| *existing == item),
            ListType::Map(keys) => {
                let wanted = keys_of(item, keys);
                items.iter_mut().find(|existing| keys_of(existing, keys) == wanted)
            }
        };
        match existing {
            Some(existing) => merge(existing, item, lists, &format!("{path}[]")),
            None => items.push(item.clone()),
        }
    }
}
