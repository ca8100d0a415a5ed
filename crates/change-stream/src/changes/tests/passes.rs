//! Tests that an object's text is read as its tree is, whatever is in its fields and however often they come.

use std::cell::Cell;

use proptest::{prelude::*, test_runner::TestRunner};
use serde_json::Value;

use crate::changes::ObjectJson;

/// The fields of managers, among others.
const KEYS: [&str; 12] = [
    "metadata",
    "managedFields",
    "manager",
    "operation",
    "apiVersion",
    "time",
    "subresource",
    "fieldsV1",
    "f:spec",
    "spec",
    "m\\u0061nager",
    ".",
];

const LEAVES: [&str; 11] =
    ["null", "true", "7", "-0", "1.0", "18446744073709551616", r#""""#, r#""Update""#, r#""x\u0041y""#, "{}", "[]"];

/// Leaves that no tree can have.
const ODD_LEAVES: [&str; 2] = ["1e999", r#""\ud800""#];

fn fields(keys: &'static [&str], of: impl Strategy<Value = String>) -> impl Strategy<Value = Vec<String>> {
    let field = (prop::sample::select(keys), of, prop::sample::select(&["", " ", "\n\t"][..]));
    prop::collection::vec(field.prop_map(|(key, value, space)| format!(r#""{key}":{space}{value}"#)), 0..4)
}

/// The text of any JSON. A field may come twice.
fn any_json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![200 => prop::sample::select(&LEAVES[..]), 1 => prop::sample::select(&ODD_LEAVES[..])];
    leaf.prop_map(str::to_owned).prop_recursive(4, 24, 6, |inner| {
        let list = prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(",")));
        let map = fields(&KEYS, inner).prop_map(|fields| format!("{{{}}}", fields.join(",")));
        prop_oneof![1 => list, 2 => map]
    })
}

/// The text of a manager's entry: one in five is of another form than an API server's.
fn entry() -> impl Strategy<Value = String> {
    let usual = (prop::sample::select(&["a", "b"][..]), any_json()).prop_map(|(name, owned)| {
        format!(r#"{{"manager":"{name}","operation":"Update","apiVersion":"v1","time":"t","fieldsV1":{owned}}}"#)
    });
    prop_oneof![4 => usual, 1 => any_json()]
}

/// The text of an object with a name: its managed fields, twice for some, come among other fields.
fn object() -> impl Strategy<Value = String> {
    let managed =
        prop::collection::vec(entry(), 0..4).prop_map(|all| format!(r#""managedFields":[{}]"#, all.join(",")));
    let metadata = (fields(&KEYS, any_json()), prop::collection::vec(managed, 0..3), fields(&KEYS, any_json()));
    let metadata = metadata.prop_map(|(before, managed, after)| {
        let all = before.into_iter().chain(managed).chain(after).map(|field| format!(",{field}"));
        format!(r#""metadata":{{"name":"one"{}}}"#, all.collect::<String>())
    });
    (fields(&KEYS[1..], any_json()), metadata, fields(&KEYS[1..], any_json()))
        .prop_map(|(before, metadata, after)| format!("{{{}}}", [before, vec![metadata], after].concat().join(",")))
}

#[test]
fn text_and_tree_of_any_object_are_read_alike() {
    let (read, with_managers) = (Cell::new(0), Cell::new(0));
    let compare = |json: String| {
        let Ok(tree) = serde_json::from_str::<Value>(&json) else { return Ok(()) };
        let Ok(object) = serde_json::from_str::<ObjectJson>(&json) else { return Ok(()) };
        let of_tree: Option<ObjectJson> = serde_json::from_value(tree).ok();
        prop_assert_eq!(Some(&object), of_tree.as_ref());
        read.set(read.get() + 1);
        with_managers.set(with_managers.get() + u32::from(!object.managers.is_empty()));
        Ok(())
    };
    let config = ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() };
    TestRunner::new(config).run(&object(), compare).unwrap();
    // Many are read in one pass, or there was nothing to compare.
    assert!(read.get() > 2_000 && with_managers.get() > 1_000, "{} and {}", read.get(), with_managers.get());
}
