//! The authors of a change.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Change, Filter, Snapshot, change, identity, machine};

#[allow(clippy::needless_pass_by_value, reason = "literals are handed over")]
fn entry(manager: &str, subresource: Option<&str>, time: u32, fields: Value) -> Value {
    let mut entry = json!({
        "manager": manager, "operation": "Update", "apiVersion": "cluster.x-k8s.io/v1",
        "time": format!("2026-01-01T00:00:{time:02}Z"), "fieldsType": "FieldsV1", "fieldsV1": fields,
    });
    if let Some(subresource) = subresource {
        entry["subresource"] = subresource.into();
    }
    entry
}

#[allow(clippy::needless_pass_by_value, reason = "literals are handed over")]
fn object(spec: u32, status: u32, entries: Vec<Value>) -> Value {
    json!({
        "metadata": {"managedFields": entries},
        "spec": {"a": spec, "taints": [{"key": "x", "value": spec}]},
        "status": {"b": status, "set": ["s"]},
    })
}

fn spec() -> Value {
    json!({"f:spec": {"f:a": {}, "f:taints": {"k:{\"key\":\"x\"}": {".": {}, "f:value": {}}}}})
}

fn status() -> Value {
    json!({"f:status": {"f:b": {}}})
}

fn changed_by(old: &Value, new: &Value) -> Vec<String> {
    let by = change(&machine(), old, new).unwrap().changed_by;
    by.into_iter()
        .map(|by| format!("{}{}", by.manager, by.subresource.map(|s| format!("/{s}")).unwrap_or_default()))
        .collect()
}

#[rstest::rstest]
#[case::whoever_has_moved_on_in_time(
    object(1, 1, vec![entry("user", None, 1, spec()), entry("controller", Some("status"), 1, status())]),
    object(1, 2, vec![entry("user", None, 1, spec()), entry("controller", Some("status"), 2, status())]),
    &["controller/status"]
)]
#[case::the_same_manager_is_another_one_for_the_status(
    object(1, 1, vec![entry("m", None, 1, spec()), entry("m", Some("status"), 1, status())]),
    object(2, 1, vec![entry("m", None, 2, spec()), entry("m", Some("status"), 1, status())]),
    &["m"]
)]
#[case::a_new_one_and_not_the_one_that_lost_a_field(
    object(1, 1, vec![entry("user", None, 1, spec())]),
    object(2, 1, vec![
        entry("user", None, 1, json!({"f:spec": {"f:taints": {}}})),
        entry("editor", None, 2, json!({"f:spec": {"f:a": {}}})),
    ]),
    &["editor"]
)]
#[case::all_of_changes_that_were_merged(
    object(1, 1, vec![entry("user", None, 1, spec()), entry("controller", Some("status"), 1, status())]),
    object(2, 2, vec![entry("user", None, 2, spec()), entry("controller", Some("status"), 3, status())]),
    &["user", "controller/status"]
)]
#[case::within_one_second_whoever_has_new_fields(
    object(1, 1, vec![entry("a", None, 1, json!({})), entry("b", None, 1, status())]),
    object(2, 1, vec![entry("a", None, 1, spec()), entry("b", None, 1, status())]),
    &["a"]
)]
fn a_change_names_its_authors(#[case] old: Value, #[case] new: Value, #[case] by: &[&str]) {
    assert_eq!(changed_by(&old, &new), by);
}

#[rstest::rstest]
#[case::field(2, 1, &["a"])]
#[case::another_field(1, 2, &["b"])]
#[case::both(2, 2, &["a", "b"])]
fn within_one_second_the_owner_of_what_changed_decides(
    #[case] spec_of: u32,
    #[case] status_of: u32,
    #[case] by: &[&str],
) {
    let entries = || vec![entry("a", None, 1, spec()), entry("b", None, 1, status()), entry("c", None, 0, spec())];
    assert_eq!(changed_by(&object(1, 1, entries()), &object(spec_of, status_of, entries())), by);
}

#[rstest::rstest]
#[case::item_by_key(json!({"f:spec": {"f:taints": {"k:{\"key\":\"x\"}": {"f:value": {}}}}}), true)]
#[case::item_by_index(json!({"f:spec": {"f:taints": {"i:0": {}}}}), true)]
#[case::whole_list(json!({"f:spec": {"f:taints": {}}}), true)]
#[case::beside(json!({"f:spec": {"f:b": {}}}), false)]
#[case::no_fields(json!(null), false)]
fn items_of_a_list_are_owned_together(#[case] fields: Value, #[case] owned: bool) {
    let object = |value: u32| {
        json!({
            "metadata": {"managedFields": [entry("m", None, 1, fields.clone())]},
            "spec": {"taints": [{"key": "x", "value": value}]},
        })
    };
    assert_eq!(!changed_by(&object(1), &object(2)).is_empty(), owned);
}

#[test]
fn fields_in_another_order_are_the_same() {
    let state = |value: u32, fields: &str| -> Arc<Snapshot> {
        let by = |manager: &str, fields: &str| {
            format!(
                r#"{{"manager":"{manager}","operation":"Update","apiVersion":"v1","time":"t","fieldsType":"FieldsV1","fieldsV1":{fields}}}"#
            )
        };
        let managers = [by("a", fields), by("b", r#"{"f:spec":{"f:c":{}}}"#)].join(",");
        let text = format!(r#"{{"metadata":{{"managedFields":[{managers}]}},"spec":{{"c":{value}}}}}"#);
        Arc::new(Filter::new(machine(), &[]).snapshot(serde_json::from_str(&text).unwrap()))
    };
    let by = |old, new| {
        let change = Change::modified(identity(&machine()), state(1, old), state(2, new)).unwrap();
        change.changed_by.into_iter().map(|by| by.manager).collect::<Vec<_>>()
    };
    let fields = r#"{"f:spec":{"f:a":{},"f:b":{}}}"#;
    assert_eq!(by(fields, r#"{"f:spec": {"f:b":{}, "f:a":{}}}"#), ["b"], "b owns what has changed");
    assert_eq!(by(fields, r#"{"f:spec":{"f:a":{}}}"#), ["a"], "a owns less than before");
}

#[test]
fn odd_managed_fields_name_nobody() {
    for odd in [json!("x"), json!([1, null]), json!({}), json!([{"manager": 7}])] {
        let object = |value: u32| json!({"metadata": {"managedFields": odd}, "spec": value});
        assert_eq!(changed_by(&object(1), &object(2)), Vec::<String>::new());
    }
}
