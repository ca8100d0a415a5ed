//! Patches of all four kinds: each gives a new state of the object, which then passes the rules of any update.

use std::sync::Arc;

use serde_json::Value;

use super::{
    apply, meta,
    object::text,
    refusal::{FieldCause, Refusal},
    store::{Place, Store},
    strategic,
    target::Target,
    write::{self, Request, Subresource},
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
    /// `application/apply-patch+yaml`: server-side apply.
    Apply {
        /// Take over fields that others manage.
        force: bool,
    },
}

/// The most operations that a JSON patch may have.
const MOST_OPERATIONS: usize = 10_000;

/// Patches the object at `place`.
pub(crate) fn patch(
    store: &mut Store,
    target: &Target,
    place: &Place,
    kind: PatchKind,
    subresource: Subresource,
    body: Value,
    request: &Request,
) -> Result<Arc<Value>, Refusal> {
    if let PatchKind::Apply { force } = kind {
        return apply::apply(store, target, place, subresource, body, force, request);
    }
    let old = store.get(place).cloned().ok_or_else(|| Refusal::not_found(&target.spec, &place.key.name))?;
    let mut value = (*old.under(&target.api_version())).clone();
    change(target, &mut value, kind, &body)?;
    accept(target, place, &mut value)?;
    write::replace(store, target, &old, subresource, value, subresource.name(), request)
}

/// Checks what a patch has made of an object.
fn accept(target: &Target, place: &Place, value: &mut Value) -> Result<(), Refusal> {
    meta::check_types(value)?;
    target.check_type(value)?;
    for (field, expected) in [("name", &place.key.name), ("namespace", &place.key.namespace)] {
        let given = text(value, field);
        if given != expected.as_str() {
            let field = format!("metadata.{field}");
            let cause = FieldCause::invalid(&field, &format!("{given:?}"), "field is immutable");
            return Err(Refusal::invalid(&target.spec, &place.key.name, &[cause]));
        }
    }
    Ok(())
}

/// Changes a value by a patch.
pub(crate) fn change(target: &Target, value: &mut Value, kind: PatchKind, body: &Value) -> Result<(), Refusal> {
    match kind {
        PatchKind::Merge | PatchKind::Apply { .. } => {
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
            strategic::merge(value, body, &target.version.lists)
                .map_err(|error| Refusal::new(422, "Invalid", error.to_string()))
        }
        PatchKind::Strategic => Err(Refusal::unsupported_media_type(&[
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/apply-patch+yaml",
        ])),
    }
}

fn json(value: &mut Value, body: &Value) -> Result<(), Refusal> {
    let operations: Vec<json_patch::PatchOperation> = serde_json::from_value(body.clone())
        .map_err(|error| Refusal::bad_request(format!("error decoding patch: {error}")))?;
    if operations.len() > MOST_OPERATIONS {
        let message =
            format!("The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}, got {}", operations.len());
        return Err(Refusal::new(413, "RequestEntityTooLarge", message));
    }
    json_patch::patch(value, &operations).map_err(|_| Refusal::patch_failed())
}
