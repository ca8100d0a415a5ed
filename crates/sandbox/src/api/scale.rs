//! The `/scale` subresource: reads and writes an object as an autoscaling/v1 Scale.

use serde_json::{Value, json};

use super::{
    meta,
    object::{Object, text},
    patch::{PatchKind, change},
    refusal::{FieldCause, Refusal},
    replicas::{at, set},
    request::{Request, Subresource, check_preconditions},
    store::{Place, Store},
    target::Target,
    write,
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
    meta::check_types(scale)?;
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
