//! The number of replicas in an object, at the path that its kind gives to the `/scale` subresource.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::{refusal::FieldCause, target::Target};

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
