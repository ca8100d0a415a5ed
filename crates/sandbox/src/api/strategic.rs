//! Strategic merge patches, which merge some lists by keys and support directives.

use serde_json::{Map, Value};

use super::lists::{ListType, Lists};

const PATCH: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";

/// A patch that is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct BadPatch(String);

/// Applies `patch` to `target`.
pub(crate) fn merge(target: &mut Value, patch: &Value, lists: &Lists) -> Result<(), BadPatch> {
    merge_value(target, patch, lists, "")
}

fn merge_value(target: &mut Value, patch: &Value, lists: &Lists, at: &str) -> Result<(), BadPatch> {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return Ok(());
    };
    match patch.get(PATCH).and_then(Value::as_str) {
        Some("replace") => {
            *target = Value::Object(patch.iter().filter(|(key, _)| *key != PATCH).map(owned).collect());
            return Ok(());
        }
        Some("delete") => {
            *target = Value::Object(Map::new());
            return Ok(());
        }
        Some("merge") | None => {}
        Some(other) => return Err(BadPatch(format!("unknown $patch directive {other:?} at {at}"))),
    }
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(map) = target.as_object_mut() else { return Ok(()) };
    for (key, value) in patch.iter().filter(|(key, _)| !key.starts_with('$')) {
        merge_field(map, key, value, lists, &format!("{at}.{key}"))?;
    }
    directives(map, patch, lists, at);
    Ok(())
}

fn owned((key, value): (&String, &Value)) -> (String, Value) {
    (key.clone(), value.clone())
}

fn merge_field(
    map: &mut Map<String, Value>,
    key: &str,
    patch: &Value,
    lists: &Lists,
    at: &str,
) -> Result<(), BadPatch> {
    match patch {
        Value::Null => {
            map.remove(key);
            Ok(())
        }
        Value::Object(directive) if directive.get(PATCH).and_then(Value::as_str) == Some("delete") => {
            map.remove(key);
            Ok(())
        }
        Value::Array(items) => {
            let target = map.entry(key).or_insert_with(|| Value::Array(Vec::new()));
            merge_list(target, items, lists, at)
        }
        Value::Object(_) => merge_value(map.entry(key).or_insert(Value::Null), patch, lists, at),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            map.insert(key.to_owned(), patch.clone());
            Ok(())
        }
    }
}

fn merge_list(target: &mut Value, patch: &[Value], lists: &Lists, at: &str) -> Result<(), BadPatch> {
    let Some(rule) = lists.strategic(at) else {
        *target = Value::Array(patch.to_vec());
        return Ok(());
    };
    if !target.is_array() {
        *target = Value::Array(Vec::new());
    }
    let Some(items) = target.as_array_mut() else { return Ok(()) };
    let keys = match rule {
        ListType::Set => {
            for item in patch {
                if !items.contains(item) {
                    items.push(item.clone());
                }
            }
            return Ok(());
        }
        ListType::Map(keys) => keys,
    };
    if patch.iter().any(|item| item.get(PATCH).and_then(Value::as_str) == Some("replace")) {
        *items = patch.iter().filter(|item| item.get(PATCH).is_none()).cloned().collect();
        return Ok(());
    }
    for item in patch {
        let found = |other: &Value| keys.iter().all(|key| other.get(key) == item.get(key));
        if let Some(key) = keys.iter().find(|key| item.get(key.as_str()).is_none()) {
            return Err(BadPatch(format!("map: {item} does not contain declared merge key: {key} (at {at})")));
        }
        if item.get(PATCH).and_then(Value::as_str) == Some("delete") {
            items.retain(|other| !found(other));
        } else if let Some(existing) = items.iter_mut().find(|other| found(other)) {
            merge_value(existing, item, lists, &format!("{at}[]"))?;
        } else {
            let mut new = Value::Object(Map::new());
            merge_value(&mut new, item, lists, &format!("{at}[]"))?;
            items.push(new);
        }
    }
    Ok(())
}

fn directives(map: &mut Map<String, Value>, patch: &Map<String, Value>, lists: &Lists, at: &str) {
    for (directive, value) in patch {
        let Some(wanted) = value.as_array() else { continue };
        if directive == RETAIN {
            map.retain(|key, _| wanted.iter().any(|kept| kept.as_str() == Some(key)));
        } else if let Some(list) = directive.strip_prefix(DELETE_FROM) {
            if let Some(items) = map.get_mut(list).and_then(Value::as_array_mut) {
                items.retain(|item| !wanted.contains(item));
            }
        } else if let Some(list) = directive.strip_prefix(ORDER)
            && let Some(items) = map.get_mut(list).and_then(Value::as_array_mut)
        {
            let keys = match lists.strategic(&format!("{at}.{list}")) {
                Some(ListType::Map(keys)) => keys.as_slice(),
                Some(ListType::Set) | None => &[],
            };
            let place = |item: &Value| {
                let same = |wanted: &&Value| {
                    if keys.is_empty() {
                        *wanted == item
                    } else {
                        keys.iter().all(|key| wanted.get(key) == item.get(key))
                    }
                };
                wanted.iter().position(|wanted| same(&wanted)).unwrap_or(usize::MAX)
            };
            items.sort_by_key(place);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    #[rstest]
    #[case::conditions_by_type(
        "Node",
        json!({"status": {"conditions": [{"type": "A", "status": "True"}, {"type": "B", "status": "True"}]}}),
        json!({"status": {"conditions": [{"type": "B", "status": "False"}, {"type": "C"}]}}),
        json!({"status": {"conditions": [{"type": "A", "status": "True"}, {"type": "B", "status": "False"}, {"type": "C"}]}}),
    )]
    #[case::taints_as_one(
        "Node",
        json!({"spec": {"taints": [{"key": "a"}]}}),
        json!({"spec": {"taints": [{"key": "b"}]}}),
        json!({"spec": {"taints": [{"key": "b"}]}}),
    )]
    #[case::null_removes("Node", json!({"spec": {"a": 1, "b": 2}}), json!({"spec": {"a": null}}), json!({"spec": {"b": 2}}))]
    #[case::item_deleted(
        "Pod",
        json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}),
        json!({"spec": {"containers": [{"name": "a", "$patch": "delete"}]}}),
        json!({"spec": {"containers": [{"name": "b"}]}}),
    )]
    #[case::env_of_a_container(
        "Pod",
        json!({"spec": {"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}]}]}}),
        json!({"spec": {"containers": [{"name": "a", "env": [{"name": "Y", "value": "2"}]}]}}),
        json!({"spec": {"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]}]}}),
    )]
    #[case::list_replaced(
        "Pod",
        json!({"spec": {"volumes": [{"name": "a"}]}}),
        json!({"spec": {"volumes": [{"name": "b"}, {"$patch": "replace"}]}}),
        json!({"spec": {"volumes": [{"name": "b"}]}}),
    )]
    #[case::finalizers_are_a_set(
        "ConfigMap",
        json!({"metadata": {"finalizers": ["a"]}}),
        json!({"metadata": {"finalizers": ["b", "a"]}}),
        json!({"metadata": {"finalizers": ["a", "b"]}}),
    )]
    #[case::from_a_set(
        "ConfigMap",
        json!({"metadata": {"finalizers": ["a", "b"]}}),
        json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}),
        json!({"metadata": {"finalizers": ["b"]}}),
    )]
    #[case::owners_by_uid(
        "ConfigMap",
        json!({"metadata": {"ownerReferences": [{"uid": "1", "name": "a"}]}}),
        json!({"metadata": {"ownerReferences": [{"uid": "1", "controller": true}]}}),
        json!({"metadata": {"ownerReferences": [{"uid": "1", "name": "a", "controller": true}]}}),
    )]
    #[case::order(
        "Pod",
        json!({"spec": {"volumes": [{"name": "a"}, {"name": "b"}]}}),
        json!({"spec": {"$setElementOrder/volumes": [{"name": "b"}, {"name": "a"}]}}),
        json!({"spec": {"volumes": [{"name": "b"}, {"name": "a"}]}}),
    )]
    #[case::retained_keys(
        "Pod",
        json!({"spec": {"a": 1, "b": 2}}),
        json!({"spec": {"c": 3, "$retainKeys": ["b", "c"]}}),
        json!({"spec": {"b": 2, "c": 3}}),
    )]
    #[case::map_replaced(
        "Pod",
        json!({"spec": {"a": 1}}),
        json!({"spec": {"$patch": "replace", "b": 2}}),
        json!({"spec": {"b": 2}}),
    )]
    fn a_strategic_merge(#[case] kind: &str, #[case] mut target: Value, #[case] patch: Value, #[case] expected: Value) {
        merge(&mut target, &patch, &Lists::core(kind)).unwrap();
        assert_eq!(target, expected);
    }

    #[test]
    fn an_item_without_its_key_is_refused() {
        let patch = json!({"spec": {"volumes": [{"emptyDir": {}}]}});
        assert!(merge(&mut json!({}), &patch, &Lists::core("Pod")).is_err());
    }
}
