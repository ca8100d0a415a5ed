//! Tests of unusual JSON: an object is read, doesn't decode, or is nobody's. Informers read the text, and the other tests
//! a tree of it: both must find the same.

use std::fmt;

use shared_informer::Projection;

use super::*;

#[derive(Debug, PartialEq)]
enum Found {
    Read,
    Undecodable,
    Nobody,
}

fn found<T: fmt::Debug + PartialEq>(
    projection: &Projection<T>,
    json: &str,
    decode: impl Fn(Meta, &Value) -> Result<T, String>,
) -> Found {
    let Some(object) = projection.read(json, &Interner::default()) else { return Found::Nobody };
    let Ok(content) = object.content else { return Found::Undecodable };
    if let Ok(tree) = serde_json::from_str(json) {
        assert_eq!(Ok(&*content), decode(object.metadata, &tree).as_ref(), "{json}");
    }
    Found::Read
}

#[rstest]
#[case::plain(r#"{"metadata":{"name":"a"}}"#, Found::Read)]
#[case::escapes(r#"{"metadata":{"name":"\u0061"},"spec":{"providerID":"x\/\/1"}}"#, Found::Read)]
#[case::a_key_with_an_escape(r#"{"met\u0061data":{"name":"a"},"spec":{}}"#, Found::Read)]
#[case::null(r#"{"metadata":{"name":"a","namespace":null,"labels":null},"spec":null,"status":null}"#, Found::Read)]
#[case::a_label_that_comes_twice(
    r#"{"metadata":{"name":"a","annotations":{"cluster.x-k8s.io/delete-machine":"1","a":"x","cluster.x-k8s.io/delete-machine":"2"}}}"#,
    Found::Read
)]
#[case::half_a_surrogate_pair_that_nobody_reads(r#"{"metadata":{"name":"a"},"spec":{"other":"\ud800"}}"#, Found::Read)]
#[case::a_huge_number_that_nobody_reads(r#"{"metadata":{"name":"a"},"spec":{"other":1e999}}"#, Found::Read)]
#[case::depth_that_nobody_reads(
    &format!(r#"{{"metadata":{{"name":"a"}},"other":{}1{}}}"#, "[".repeat(200), "]".repeat(200)),
    Found::Read
)]
#[case::a_number_for_a_version(r#"{"metadata":{"name":"a","resourceVersion":7}}"#, Found::Read)]
#[case::an_odd_uid(r#"{"metadata":{"name":"a","uid":[1,{"b":2}]}}"#, Found::Read)]
#[case::a_field_that_comes_twice(
    r#"{"metadata":{"name":"a"},"spec":{"providerID":"x://1","providerID":"x://2"}}"#,
    Found::Undecodable
)]
#[case::a_number_for_a_text(r#"{"metadata":{"name":"a"},"spec":{"providerID":7}}"#, Found::Undecodable)]
#[case::a_huge_number(r#"{"metadata":{"name":"a","generation":1e999}}"#, Found::Undecodable)]
#[case::half_a_surrogate_pair(r#"{"metadata":{"name":"a"},"spec":{"providerID":"\ud800"}}"#, Found::Undecodable)]
#[case::metadata_twice(r#"{"metadata":{"name":"a"},"metadata":{"name":"b"}}"#, Found::Nobody)]
#[case::no_name(r#"{"metadata":{"uid":"u"}}"#, Found::Nobody)]
#[case::a_list(r#"[{"name":"a"},{"providerID":"x://1"},{}]"#, Found::Nobody)]
#[case::more_after_it(r#"{"metadata":{"name":"a"}} {}"#, Found::Nobody)]
#[case::less_than_all(r#"{"metadata":{"name":"a"}"#, Found::Nobody)]
fn an_unusual_machine(#[case] json: &str, #[case] expected: Found) {
    let context = Context::new(DEFAULT_GROUP);
    let decode = |meta, tree: &Value| Machine::decode(meta, tree, &context);
    assert_eq!(found(&Machine::projection(&context), json, decode), expected);
}

#[rstest]
fn amounts_of_any_type_are_read(
    #[values(
        r#""4""#,
        r#""\u0034""#,
        "4",
        "-9223372036854775808",
        "18446744073709551615",
        "18446744073709551616",
        "-0",
        "1.5e3",
        "true",
        "null",
        r#"[1,"a",{"b":null}]"#,
        r#"{"b":1,"a":2,"b":3}"#
    )]
    amount: &str,
) {
    let context = Context::new(DEFAULT_GROUP);
    let capacity = format!(r#"{{"cpu":{amount},"memory":"1Gi","cpu2":{amount}}}"#);
    let template = format!(r#"{{"metadata":{{"name":"a"}},"status":{{"capacity":{capacity}}}}}"#);
    let of_template = found(&InfrastructureTemplate::projection(), &template, InfrastructureTemplate::decode);
    let ready = r#"[{"type":"Ready","status":"True"}]"#;
    let node = format!(
        r#"{{"metadata":{{"name":"a"}},"status":{{"capacity":{capacity},"allocatable":{capacity},"conditions":{ready}}}}}"#
    );
    let of_node = found(&Node::projection(&context), &node, |meta, tree| Node::decode(meta, tree, &context));
    assert_eq!((of_template, of_node), (Found::Read, Found::Read));
}
