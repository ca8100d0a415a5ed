//! Property tests of patches.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{change, kind, machine, secret, snapshot};

/// Returns small objects whose keys and values often coincide, among them names of redacted and ignored fields.
fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        Just(json!("Secret")),
        Just(json!("v1")),
        Just(json!("a")),
        (0..3_u8).prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 4, |inner| {
        let key = prop::sample::select(vec![
            "metadata",
            "annotations",
            "data",
            "stringData",
            "kind",
            "apiVersion",
            "type",
            "name",
            "a/b",
            "~",
            "kubectl.kubernetes.io/last-applied-configuration",
            "status",
            "conditions",
            "lastHeartbeatTime",
        ]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key.prop_map(str::to_owned), inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Returns JSON objects whose metadata, if any, is an object.
fn any_object() -> impl Strategy<Value = Value> {
    any_value().prop_map(|value| {
        let Value::Object(mut fields) = value else { return json!({"spec": value}) };
        if fields.get("metadata").is_some_and(|metadata| !metadata.is_object()) {
            fields.remove("metadata");
        }
        Value::Object(fields)
    })
}

proptest! {
    #[test]
    fn applied_to_the_filtered_old_object_a_patch_gives_the_filtered_new_one(
        old in any_object(), new in any_object(), of in 0..3_usize,
    ) {
        let kind = [machine(), secret(), kind("", "Node")][of].clone();
        let before = snapshot(&kind, &["/status/*/name"], &old).value().clone();
        let after = snapshot(&kind, &["/status/*/name"], &new).value().clone();
        let mut patched = before;
        if let Some(change) = super::ignoring(&kind, &["/status/*/name"], &old, &new) {
            json_patch::patch(&mut patched, &change.patch).unwrap();
            // The patch and the lines agree on whether something changed.
            prop_assert!(!change.lines().is_empty());
        }
        prop_assert_eq!(patched, after);
    }

    #[test]
    fn an_object_is_no_change_of_itself(object in any_object()) {
        prop_assert!(change(&secret(), &object, &object).is_none());
    }
}

#[test]
fn a_new_object_is_added_as_a_whole_and_a_deleted_one_has_no_patch() {
    let object = json!({"metadata": {"name": "one", "resourceVersion": "1"}});
    let state = snapshot(&machine(), &[], &object);
    let added = super::Change::added(super::identity(&machine()), state.clone(), true);
    let mut built = Value::Null;
    json_patch::patch(&mut built, &added.patch).unwrap();
    assert_eq!(built, *state.value());
    let line: Value = serde_json::from_str(&added.to_json()).unwrap();
    assert_eq!((&line["type"], &line["initial"]), (&json!("ADDED"), &json!(true)));

    let deleted = super::Change::deleted(super::identity(&machine()), Some(state), true);
    let line: Value = serde_json::from_str(&deleted.to_json()).unwrap();
    assert_eq!((&line["type"], &line["foundByRelist"], &line["patch"]), (&json!("DELETED"), &json!(true), &json!([])));
}
