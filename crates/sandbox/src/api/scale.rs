//! The `/scale` subresource: reads and writes an object as an autoscaling/v1 Scale, by the path of its number of replicas.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::{
    object::{self, Object, text},
    patch::{PatchKind, change},
    refusal::{FieldCause, Refusal},
    store::{Place, Store, Target},
    write::{self, Request, Subresource, check_preconditions},
};

#[derive(Debug)]
pub(crate) enum ScaleWrite {
    Put(Value),
    Patch(PatchKind, Value),
}

/// Writes the number of replicas of the object at `place`, and returns the new Scale.
pub(crate) fn write(
    store: &mut Store,
    target: &Target,
    place: &Place,
    write: ScaleWrite,
    request: &Request,
) -> Result<Value, Refusal> {
    let Some(paths) = &target.version.scale else { return Err(Refusal::no_such_resource()) };
    let old = store.get(place).cloned().ok_or_else(|| Refusal::not_found(&target.spec, &place.key.name))?;
    let mut scale = match write {
        ScaleWrite::Put(scale) => scale,
        ScaleWrite::Patch(kind, body) => {
            let mut scale = view(target, &old)?.0;
            change(target, &mut scale, kind, &body)?;
            scale
        }
    };
    let replicas = check(place, &mut scale)?;
    check_preconditions(target, old.value(), text(&scale, "uid"), text(&scale, "resourceVersion"))?;
    let mut next = (*old.under(&target.api_version())).clone();
    set(&mut next, &paths.spec_replicas, json!(replicas));
    let stored = write::replace(store, target, &old, Subresource::Scale, next, "scale", request)?;
    let revision = text(&stored, "resourceVersion").parse().unwrap_or_default();
    Ok(view(target, &Object::new((*stored).clone(), revision))?.0)
}

/// Returns the number of replicas in a Scale that a client has sent.
fn check(place: &Place, scale: &mut Value) -> Result<i64, Refusal> {
    object::check_types(scale)?;
    let given = (scale["apiVersion"].as_str().unwrap_or_default(), scale["kind"].as_str().unwrap_or_default());
    if !matches!(given, ("" | "autoscaling/v1", "" | "Scale")) {
        let message = format!("{} in version {} cannot be handled as a Scale of autoscaling/v1", given.1, given.0);
        return Err(Refusal::bad_request(message));
    }
    let name = text(scale, "name");
    if !name.is_empty() && name != place.key.name {
        return Err(Refusal::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            place.key.name
        )));
    }
    let replicas = match &scale["spec"]["replicas"] {
        Value::Null => Ok(0),
        value => value.as_i64().and_then(|replicas| i32::try_from(replicas).ok()).ok_or_else(|| {
            Refusal::bad_request(format!("spec.replicas must be a whole number of 32 bits, and is {value}"))
        }),
    }?;
    if replicas < 0 {
        let cause = FieldCause::invalid("spec.replicas", &replicas.to_string(), "must be greater than or equal to 0");
        let message = format!("Scale.autoscaling {:?} is invalid: {}: {}", place.key.name, cause.field, cause.message);
        let details = json!({
            "name": place.key.name, "group": "autoscaling", "kind": "Scale",
            "causes": [{"reason": cause.reason, "message": cause.message, "field": cause.field}],
        });
        return Err(Refusal { details: Some(Box::new(details)), ..Refusal::new(422, "Invalid", message) });
    }
    Ok(i64::from(replicas))
}

/// Returns the Scale of an object for a client. Fails if the object has no number of desired replicas.
pub(crate) fn read(target: &Target, object: &Object) -> Result<Value, Refusal> {
    let (scale, replicas_found) = view(target, object)?;
    if replicas_found {
        return Ok(scale);
    }
    let path = target.version.scale.as_ref().map_or("", |paths| paths.spec_replicas.as_str());
    let why = format!("the spec replicas field {path:?} does not exist");
    let details = json!({"causes": [{"message": why}]});
    let refusal = Refusal::new(500, "InternalError", format!("Internal error occurred: {why}"));
    Err(Refusal { details: Some(Box::new(details)), ..refusal })
}

/// Returns the object as a Scale, and true if it has a number of desired replicas.
fn view(target: &Target, object: &Object) -> Result<(Value, bool), Refusal> {
    let Some(paths) = &target.version.scale else { return Err(Refusal::no_such_resource()) };
    let metadata = &object.value()["metadata"];
    let mut shown = json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {},
        "spec": {},
        "status": {"replicas": at(object.value(), &paths.status_replicas).and_then(Value::as_i64).unwrap_or_default()},
    });
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = metadata.get(field) {
            shown["metadata"][field] = value.clone();
        }
    }
    let replicas = at(object.value(), &paths.spec_replicas).and_then(Value::as_i64);
    // The field is omitted if it is 0.
    if let Some(replicas) = replicas.filter(|&replicas| replicas != 0) {
        shown["spec"]["replicas"] = json!(replicas);
    }
    let selector = paths.label_selector.as_deref().and_then(|path| at(object.value(), path)).and_then(Value::as_str);
    if let Some(selector) = selector.filter(|selector| !selector.is_empty()) {
        shown["status"]["selector"] = json!(selector);
    }
    Ok((shown, replicas.is_some()))
}

/// Returns an object written as a Scale, without a size of 0: a Scale omits it, so that nobody comes to manage it.
pub(crate) fn as_managed<'v>(target: &Target, object: &'v Value) -> Cow<'v, Value> {
    let paths = target.version.scale.as_ref();
    let zero = paths.map(|paths| paths.spec_replicas.as_str()).filter(|path| at(object, path) == Some(&json!(0)));
    let Some((above, name)) = zero.and_then(|path| path.rsplit_once('.')) else { return Cow::Borrowed(object) };
    let mut shown = object.clone();
    let above = above.replace('.', "/");
    if let Some(fields) = shown.pointer_mut(&above).and_then(Value::as_object_mut) {
        fields.remove(name);
    }
    Cow::Owned(shown)
}

/// Returns true if the size of an object has a manager.
pub(crate) fn is_managed(target: &Target, object: &Value) -> bool {
    let Some(paths) = target.version.scale.as_ref() else { return false };
    let field = paths.spec_replicas.replace('.', "/f:");
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    entries.map(|entry| &entry["fieldsV1"]).any(|fields| fields.pointer(&field).is_some())
}

/// Returns the fault of a size that is no whole number from 0.
pub(crate) fn fault(target: &Target, object: &Value) -> Option<FieldCause> {
    let path = &target.version.scale.as_ref()?.spec_replicas;
    let size = at(object, path).filter(|size| !size.is_null() && size.as_u64().is_none())?;
    let why = "must be a whole number greater than or equal to 0";
    Some(FieldCause::invalid(path.trim_start_matches('.'), &size.to_string(), why))
}

/// Returns the value at a path such as `.spec.replicas`.
pub(crate) fn at<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.').filter(|name| !name.is_empty()).try_fold(value, |value, name| value.get(name))
}

/// Sets the value at a path such as `.spec.replicas`, and creates the maps in between.
pub(crate) fn set(value: &mut Value, path: &str, new: Value) {
    let mut place = value;
    for name in path.split('.').filter(|name| !name.is_empty()) {
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[name];
    }
    *place = new;
}
