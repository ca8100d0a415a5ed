//! Patches of all kinds: each returns a new state of the object, which is then checked like any update. Strategic merge
//! patches, of core kinds, merge some lists by a key; an order of elements is ignored.

use std::sync::Arc;

use json_patch::{AddOperation, PatchOperation, jsonptr::PointerBuf};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    managed::merge_keys,
    object::{self, text},
    refusal::{FieldCause, Refusal},
    store::{Place, Store, Target},
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
}

/// The maximum number of operations of a JSON patch.
const MOST_OPERATIONS: usize = 10_000;

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

fn accept(target: &Target, place: &Place, old: &Value, value: &mut Value) -> Result<(), Refusal> {
    object::check_types(value)?;
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
            merge(value, body, "")
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

const PATCH: &str = "$patch";
const RETAIN: &str = "$retainKeys";

/// Applies `patch` to the value at the path `at`. Fails with the directive that isn't supported.
pub(crate) fn merge(target: &mut Value, patch: &Value, at: &str) -> Result<(), String> {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return Ok(());
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(map) = target.as_object_mut() else { return Ok(()) };
    for (key, value) in patch {
        if let Some(list) = key.strip_prefix("$deleteFromPrimitiveList/") {
            if let (Some(items), Some(gone)) = (map.get_mut(list).and_then(Value::as_array_mut), value.as_array()) {
                items.retain(|item| !gone.contains(item));
            }
        } else if key == RETAIN || key.starts_with("$setElementOrder/") {
            // The keys are retained below, and elements keep the order they have.
        } else if key.starts_with('$') {
            return Err(format!("{key}: {value}"));
        } else if value.is_null() || value[PATCH] == "delete" {
            map.remove(key);
        } else {
            let at = format!("{at}.{key}");
            let target = map.entry(key.as_str()).or_insert(Value::Null);
            match value.as_array() {
                Some(items) => merge_list(target, items, &at)?,
                None => merge(target, value, &at)?,
            }
        }
    }
    if let Some(kept) = patch.get(RETAIN).and_then(Value::as_array) {
        map.retain(|key, _| kept.iter().any(|kept| kept == key));
    }
    Ok(())
}

fn merge_list(target: &mut Value, patch: &[Value], at: &str) -> Result<(), String> {
    let Some(keys) = merge_keys(true, at) else {
        *target = Value::from(patch.to_vec());
        return Ok(());
    };
    if !target.is_array() {
        *target = Value::Array(Vec::new());
    }
    let Some(items) = target.as_array_mut() else { return Ok(()) };
    for item in patch {
        let is_same = |known: &Value| keys.first().map_or(known == item, |key| known.get(key) == item.get(key));
        if item[PATCH] == "delete" {
            items.retain(|known| !is_same(known));
        } else if let Some(known) = items.iter_mut().find(|known| is_same(known)) {
            merge(known, item, &format!("{at}[]"))?;
        } else {
            let mut new = Value::Null;
            merge(&mut new, item, &format!("{at}[]"))?;
            items.push(new);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::null_removes(json!({"a": 1, "b": 2}), json!({"a": null}), json!({"b": 2}))]
    #[case::by_the_key(
        json!({"conditions": [{"type": "A", "status": "True"}, {"type": "B"}]}),
        json!({"conditions": [{"type": "A", "status": "False"}, {"type": "C"}]}),
        json!({"conditions": [{"type": "A", "status": "False"}, {"type": "B"}, {"type": "C"}]}),
    )]
    #[case::without_a_key_as_one(
        json!({"taints": [{"key": "a"}]}),
        json!({"taints": [{"key": "b"}]}),
        json!({"taints": [{"key": "b"}]}),
    )]
    #[case::within_an_item(
        json!({"containers": [{"name": "a", "ports": [{"containerPort": 1, "name": "x"}]}]}),
        json!({"containers": [{"name": "a", "ports": [{"containerPort": 1, "protocol": "UDP"}]}]}),
        json!({"containers": [{"name": "a", "ports": [{"containerPort": 1, "name": "x", "protocol": "UDP"}]}]}),
    )]
    #[case::deleted(
        json!({"volumes": [{"name": "a"}, {"name": "b"}], "c": {}}),
        json!({"volumes": [{"name": "a", "$patch": "delete"}, {"name": "z", "$patch": "delete"}], "c": {"$patch": "delete"}}),
        json!({"volumes": [{"name": "b"}]}),
    )]
    #[case::of_plain_values(
        json!({"podCIDRs": ["a", "b"]}),
        json!({"podCIDRs": ["c", "a"], "$deleteFromPrimitiveList/podCIDRs": ["b"], "$setElementOrder/podCIDRs": ["c", "a"]}),
        json!({"podCIDRs": ["a", "c"]}),
    )]
    #[case::retained_keys(json!({"a": 1, "b": 2}), json!({"c": 3, "$retainKeys": ["b", "c"]}), json!({"b": 2, "c": 3}))]
    fn a_strategic_merge(#[case] mut target: Value, #[case] patch: Value, #[case] expected: Value) {
        merge(&mut target, &patch, "").unwrap();
        assert_eq!(target, expected);
    }

    #[test]
    fn a_directive_that_is_not_supported_is_refused() {
        let patch = json!({"volumes": [{"$patch": "replace"}]});
        assert!(merge(&mut json!({}), &patch, "").is_err());
    }
}
