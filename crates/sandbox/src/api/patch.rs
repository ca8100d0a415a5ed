//! Patches of all kinds: each returns a new state of the object, which is then checked like any update.

use std::sync::Arc;

use json_patch::{AddOperation, PatchOperation, jsonptr::PointerBuf};
use serde::Deserialize;
use serde_json::Value;

use super::{
    meta,
    object::text,
    refusal::{FieldCause, Refusal},
    request::{Request, Subresource},
    store::{Place, Store},
    strategic,
    target::Target,
    write,
};

/// The kinds of patches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchKind {
    /// `application/merge-patch+json`
    Merge,
    /// `application/json-patch+json`
    Json,
    /// `application/strategic-merge-patch+json`, for core kinds.
    Strategic,
}

/// The maximum number of operations of a JSON patch.
const MOST_OPERATIONS: usize = 10_000;

/// Patches the object at `place`.
pub(crate) fn patch(
    store: &mut Store,
    target: &Target,
    place: &Place,
    kind: PatchKind,
    subresource: Subresource,
    body: &Value,
    request: &Request,
) -> Result<Arc<Value>, Refusal> {
    let old = store.get(place).cloned().ok_or_else(|| Refusal::not_found(&target.spec, &place.key.name))?;
    let mut value = (*old.under(&target.api_version())).clone();
    change(target, &mut value, kind, body)?;
    accept(target, place, old.value(), &mut value)?;
    write::replace(store, target, &old, subresource, value, subresource.name(), request)
}

/// Checks the result of a patch.
fn accept(target: &Target, place: &Place, old: &Value, value: &mut Value) -> Result<(), Refusal> {
    meta::check_types(value)?;
    target.check_type(value)?;
    for (field, expected) in [("name", &place.key.name), ("namespace", &place.key.namespace)] {
        let given = text(value, field);
        if given != expected.as_str() {
            return Err(Refusal::bad_request(format!(
                "the {field} of the object ({given}) does not match the {field} on the URL ({expected})"
            )));
        }
    }
    let uid = text(value, "uid");
    if !uid.is_empty() && uid != text(old, "uid") {
        let cause = FieldCause::invalid("metadata.uid", &format!("{uid:?}"), "field is immutable");
        return Err(Refusal::invalid(&target.spec, &place.key.name, &[cause]));
    }
    Ok(())
}

/// Applies a patch to a value.
pub(crate) fn change(target: &Target, value: &mut Value, kind: PatchKind, body: &Value) -> Result<(), Refusal> {
    match kind {
        PatchKind::Merge => {
            if !body.is_object() {
                return Err(Refusal::bad_request("a merge patch must be a JSON object"));
            }
            json_patch::merge(value, body);
            Ok(())
        }
        PatchKind::Json => json(value, body),
        PatchKind::Strategic if target.spec.rules.strategic => {
            if !body.is_object() {
                return Err(Refusal::bad_request("a strategic merge patch must be a JSON object"));
            }
            strategic::merge(value, body, "")
                .map_err(|what| Refusal::new(422, "Invalid", format!("the sandbox doesn't know the directive {what}")))
        }
        PatchKind::Strategic => {
            Err(Refusal::unsupported_media_type(&["application/json-patch+json", "application/merge-patch+json"]))
        }
    }
}

/// Applies a JSON patch as API servers do, which is more lenient than the RFC in two ways: `replace` also sets a field
/// that doesn't exist, and a `test` for null also succeeds for an absent field.
fn json(value: &mut Value, body: &Value) -> Result<(), Refusal> {
    let operations = body.as_array().filter(|list| list.iter().all(Value::is_object));
    let operations =
        operations.ok_or_else(|| Refusal::bad_request("a JSON patch must be a list of operations, each an object"))?;
    if operations.len() > MOST_OPERATIONS {
        let message =
            format!("The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}, got {}", operations.len());
        return Err(Refusal::new(413, "RequestEntityTooLarge", message));
    }
    for operation in operations {
        let operation = PatchOperation::deserialize(operation).map_err(|_| Refusal::patch_failed())?;
        let operation = match operation {
            PatchOperation::Replace(replace) if is_free(value, &replace.path) => {
                PatchOperation::Add(AddOperation { path: replace.path, value: replace.value })
            }
            PatchOperation::Test(test) if test.value.is_null() && is_free(value, &test.path) => continue,
            other => other,
        };
        json_patch::patch(value, &[operation]).map_err(|_| Refusal::patch_failed())?;
    }
    Ok(())
}

/// Returns true if `path` names a field that an object doesn't have.
fn is_free(value: &Value, path: &PointerBuf) -> bool {
    let parent = path.parent().and_then(|parent| parent.resolve(value).ok());
    parent.is_some_and(Value::is_object) && path.resolve(value).is_err()
}
