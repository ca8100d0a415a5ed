//! Tests that one pass over an object's text reads the same as the tree-based path, over mutated real objects.

use std::{fmt, sync::LazyLock};

use proptest::sample::Index as Pick;
use shared_informer::Projection;

use super::*;

/// The kinds of objects that are read.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Cluster,
    Scalable(ScalableKind),
    Machine,
    Node,
    Template,
}

impl Kind {
    fn of(object: &Value) -> Option<Self> {
        let kind = object["kind"].as_str()?;
        match kind {
            "Cluster" => Some(Self::Cluster),
            "Machine" => Some(Self::Machine),
            "Node" => Some(Self::Node),
            _ if kind.ends_with("MachineTemplate") => Some(Self::Template),
            _ => ScalableKind::parse(kind).map(Self::Scalable),
        }
    }
}

/// Every object of the fixtures that is read, as JSON.
static OBJECTS: LazyLock<Vec<(Kind, Value)>> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
    let files = walkdir::WalkDir::new(folder).sort_by_file_name().into_iter().map(Result::unwrap);
    let files = files.filter(|file| file.path().extension().is_some_and(|extension| extension == "yaml"));
    let lists = files.map(|file| std::fs::read_to_string(file.path()).unwrap());
    let items = lists.flat_map(|text| {
        let list: Value = serde_yaml::from_str(&text).unwrap();
        list["items"].as_array().unwrap().clone()
    });
    items.filter_map(|object| Some((Kind::of(&object)?, object))).collect()
});

/// The outcome of one pass.
#[derive(Debug, PartialEq)]
enum Pass {
    /// It read the object.
    Done,
    /// It left the object to the tree-based path.
    Left,
    /// It read the object, for which no tree can be built.
    WithoutTree,
}

/// Reads an object both ways, and panics if they disagree.
fn compare(kind: Kind, json: &str) -> Pass {
    let context = Context::new(DEFAULT_GROUP);
    match kind {
        Kind::Cluster => compare_by(&Cluster::projection(), json),
        Kind::Scalable(kind) => compare_by(&ScalableResource::projection(kind, &context), json),
        Kind::Machine => compare_by(&Machine::projection(&context), json),
        Kind::Node => compare_by(&Node::projection(&context), json),
        Kind::Template => compare_by(&InfrastructureTemplate::projection(), json),
    }
}

fn compare_by<T: fmt::Debug + PartialEq>(projection: &Projection<T>, json: &str) -> Pass {
    let texts = Interner::default();
    let careful = projection.read_carefully(json, &texts);
    let Some(quick) = projection.read_quickly(json, &texts) else { return Pass::Left };
    let careful = careful.expect("what one pass knows by name, the careful path does");
    assert_eq!(quick.metadata, careful.metadata, "{json}");
    if let Err(error) = &careful.content {
        assert!(serde_json::from_str::<Value>(json).is_err(), "{error}: {json}");
        return Pass::WithoutTree;
    }
    assert_eq!(quick.content, careful.content, "{json}");
    Pass::Done
}

#[test]
fn one_pass_is_enough_for_every_object_that_a_real_api_server_wrote() {
    for (kind, object) in OBJECTS.iter() {
        for json in [object.to_string(), serde_json::to_string_pretty(object).unwrap()] {
            assert_eq!(compare(*kind, &json), Pass::Done, "{json}");
        }
    }
    for kind in [Kind::Cluster, Kind::Machine, Kind::Node, Kind::Template] {
        assert!(OBJECTS.iter().any(|(other, _)| *other == kind), "no {kind:?} in the fixtures");
    }
}

#[rstest]
#[case::plain(r#"{"metadata":{"name":"a"}}"#, Pass::Done)]
#[case::escapes_are_read(r#"{"metadata":{"name":"\u0061"},"spec":{"providerID":"x\/\/1"}}"#, Pass::Done)]
#[case::a_key_with_an_escape(r#"{"met\u0061data":{"name":"a"},"spec":{}}"#, Pass::Done)]
#[case::null_is_nothing(
    r#"{"metadata":{"name":"a","namespace":null,"labels":null},"spec":null,"status":null}"#,
    Pass::Done
)]
#[case::of_a_label_that_comes_twice_the_last_counts(
    r#"{"metadata":{"name":"a","annotations":{"cluster.x-k8s.io/delete-machine":"1","a":"x","cluster.x-k8s.io/delete-machine":"2"}}}"#,
    Pass::Done
)]
#[case::of_a_field_that_comes_twice_the_last_counts(
    r#"{"metadata":{"name":"a"},"spec":{"providerID":"x://1","providerID":"x://2"}}"#,
    Pass::Left
)]
#[case::metadata_twice_is_nobodys(r#"{"metadata":{"name":"a"},"metadata":{"name":"b"}}"#, Pass::Left)]
#[case::a_number_for_a_text(r#"{"metadata":{"name":"a"},"spec":{"providerID":7}}"#, Pass::Left)]
#[case::a_number_for_a_version(r#"{"metadata":{"name":"a","resourceVersion":7}}"#, Pass::Left)]
#[case::an_odd_uid(r#"{"metadata":{"name":"a","uid":[1,{"b":2}]}}"#, Pass::Left)]
#[case::no_name(r#"{"metadata":{"uid":"u"}}"#, Pass::Left)]
#[case::a_list_for_the_object(r#"[{"name":"a"},{"providerID":"x://1"},{}]"#, Pass::Left)]
#[case::a_list_for_the_metadata(r#"{"metadata":["n","a","u","1",null,null,null,null,null,null]}"#, Pass::Left)]
#[case::half_a_surrogate_pair_in_a_text_that_is_read(
    r#"{"metadata":{"name":"a"},"spec":{"providerID":"\ud800"}}"#,
    Pass::Left
)]
#[case::half_a_surrogate_pair_in_another(r#"{"metadata":{"name":"a"},"spec":{"other":"\ud800"}}"#, Pass::WithoutTree)]
#[case::a_number_beyond_all_bounds(r#"{"metadata":{"name":"a"},"spec":{"other":1e999}}"#, Pass::WithoutTree)]
#[case::a_number_beyond_all_bounds_that_is_read(r#"{"metadata":{"name":"a","generation":1e999}}"#, Pass::Left)]
#[case::more_after_it(r#"{"metadata":{"name":"a"}} {}"#, Pass::Left)]
#[case::less_than_all(r#"{"metadata":{"name":"a"}"#, Pass::Left)]
fn one_pass_reads_what_the_careful_path_reads_or_leaves_it(#[case] json: &str, #[case] expected: Pass) {
    assert_eq!(compare(Kind::Machine, json), expected);
}

#[test]
fn depth_that_nobody_reads_spoils_the_tree_alone() {
    let deep = format!(r#"{{"metadata":{{"name":"a"}},"other":{}1{}}}"#, "[".repeat(200), "]".repeat(200));
    assert_eq!(compare(Kind::Machine, &deep), Pass::WithoutTree);
    let deep = format!(
        r#"{{"metadata":{{"name":"a"}},"status":{{"capacity":{{"cpu":{}1{}}}}}}}"#,
        "[".repeat(200),
        "]".repeat(200)
    );
    assert_eq!(compare(Kind::Template, &deep), Pass::Left);
}

#[rstest]
#[case::text(r#""4""#)]
#[case::escaped(r#""\u0034""#)]
#[case::integer("4")]
#[case::the_smallest("-9223372036854775808")]
#[case::the_largest("18446744073709551615")]
#[case::beyond_the_largest("18446744073709551616")]
#[case::minus_zero("-0")]
#[case::float("1.5e3")]
#[case::bool("true")]
#[case::null("null")]
#[case::list(r#"[1,"a",{"b":null}]"#)]
#[case::a_map_with_a_key_twice(r#"{"b":1,"a":2,"b":3}"#)]
fn amounts_of_any_type_are_read_alike(#[case] amount: &str) {
    let capacity = format!(r#"{{"cpu":{amount},"memory":"1Gi","cpu2":{amount}}}"#);
    let template = format!(r#"{{"metadata":{{"name":"a"}},"status":{{"capacity":{capacity}}}}}"#);
    assert_eq!(compare(Kind::Template, &template), Pass::Done);
    let ready = r#"[{"type":"Ready","status":"True"}]"#;
    let node = format!(
        r#"{{"metadata":{{"name":"a"}},"status":{{"capacity":{capacity},"allocatable":{capacity},"conditions":{ready}}}}}"#
    );
    assert_eq!(compare(Kind::Node, &node), Pass::Done);
}

/// A change to an object's JSON.
#[derive(Debug, Clone)]
enum Mutation {
    /// Replaces a value.
    Replaced(Pick, String),
    /// Repeats a field with another value, before all others or after them.
    Doubled(Pick, Pick, bool, String),
    /// Replaces a byte.
    Byte(Pick, u8),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let other = prop_oneof![
        8 => prop::sample::select(vec![
            "null", "true", "7", "-1", "1.0", "-0", "18446744073709551616", "1e999", r#""""#, r#""True""#, r#""x\u0041y""#,
            r#""\ud800""#, r#""\ud83d\ude00""#, "[]", "{}", r#"["a"]"#, r#"{"name":"x"}"#, r#"{"a":1,"a":"b"}"#, r#"[{"type":"Ready"}]"#,
        ]).prop_map(str::to_owned),
        1 => (1..300_usize).prop_map(|depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth))),
    ];
    let byte = prop_oneof![any::<u8>(), prop::sample::select(b"\n{}[]\",:\\u0e.-".to_vec())];
    prop_oneof![
        4 => (any::<Pick>(), other.clone()).prop_map(|(at, other)| Mutation::Replaced(at, other)),
        3 => (any::<Pick>(), any::<Pick>(), any::<bool>(), other)
            .prop_map(|(at, field, before, other)| Mutation::Doubled(at, field, before, other)),
        1 => (any::<Pick>(), byte).prop_map(|(at, byte)| Mutation::Byte(at, byte)),
    ]
}

/// Collects the pointers of all values within one, itself included.
fn pointers(value: &Value, here: &str, all: &mut Vec<String>) {
    all.push(here.to_owned());
    let below = |key: &str| format!("{here}/{}", key.replace('~', "~0").replace('/', "~1"));
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| pointers(value, &below(key), all)),
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(place, value)| pointers(value, &below(&place.to_string()), all));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Returns the JSON of an object with one value replaced by this text.
fn written(object: &Value, pointer: &str, text: &str) -> String {
    const MARK: &str = "here it stands";
    let mut object = object.clone();
    *object.pointer_mut(pointer).unwrap() = MARK.into();
    object.to_string().replace(&format!("{MARK:?}"), text)
}

fn mutated(object: &Value, mutation: &Mutation) -> String {
    let mut all = Vec::new();
    // Managed fields are most of an object, and aren't read.
    let mut read = object.clone();
    read["metadata"].as_object_mut().unwrap().remove("managedFields");
    pointers(&read, "", &mut all);
    match mutation {
        Mutation::Replaced(at, other) => {
            let at: &String = at.get(&all);
            written(object, at, other)
        }
        Mutation::Doubled(at, field, before, other) => {
            let maps: Vec<_> = all.iter().filter(|at| read.pointer(at).is_some_and(Value::is_object)).collect();
            let at = at.get(&maps);
            let map = object.pointer(at).unwrap();
            let text = map.to_string();
            let keys: Vec<_> = map.as_object().unwrap().keys().collect();
            if keys.is_empty() {
                return object.to_string();
            }
            let (field, inner) = (field.get(&keys), &text[1..text.len() - 1]);
            let text = if *before {
                format!("{{{field:?}:{other},{inner}}}")
            } else {
                format!("{{{inner},{field:?}:{other}}}")
            };
            written(object, at, &text)
        }
        Mutation::Byte(at, byte) => {
            let mut text = object.to_string().into_bytes();
            let at = at.index(text.len());
            text[at] = *byte;
            String::from_utf8_lossy(&text).into_owned()
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, ..ProptestConfig::default() })]

    #[test]
    fn both_ways_read_the_same_of_objects_that_were_mutilated(object in any::<Pick>(), mutation in mutation()) {
        let (kind, object) = object.get(&OBJECTS);
        compare(*kind, &mutated(object, &mutation));
    }
}
