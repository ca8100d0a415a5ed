//! Strategic merge patches of core kinds, which merge some lists by a key. An order of elements is ignored.

use serde_json::{Map, Value};

use super::lists::merge_keys;

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
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

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
