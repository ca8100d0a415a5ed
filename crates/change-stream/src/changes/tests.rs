//! Changes of example objects, from their state before to the one after.

mod managers;
mod secrets;

use std::sync::Arc;

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Change, Difference, FieldSelector, Filter, Identity, Kind, Line, Pattern, Snapshot};

fn kind(group: &str, kind: &str) -> Kind {
    let plural = format!("{}s", kind.to_lowercase());
    Kind { group: group.to_owned(), version: "v1".into(), kind: kind.to_owned(), plural }
}

fn machine() -> Kind {
    kind("cluster.x-k8s.io", "Machine")
}

fn secret() -> Kind {
    kind("", "Secret")
}

fn identity(kind: &Kind) -> Identity {
    Identity {
        time: Timestamp::UNIX_EPOCH,
        cluster: "management",
        kind: Arc::new(kind.clone()),
        namespace: "ns".into(),
        name: "one".into(),
        uid: "u1".into(),
        resource_version: "7".into(),
    }
}

fn snapshot(kind: &Kind, ignored: &[&str], object: &Value) -> Arc<Snapshot> {
    let ignored: Vec<Pattern> = ignored.iter().map(|path| path.parse().unwrap()).collect();
    Arc::new(Filter::new(kind.clone(), &ignored).snapshot(object.clone()))
}

fn change(kind: &Kind, old: &Value, new: &Value) -> Option<Change> {
    ignoring(kind, &[], old, new)
}

fn ignoring(kind: &Kind, ignored: &[&str], old: &Value, new: &Value) -> Option<Change> {
    Change::modified(identity(kind), snapshot(kind, ignored, old), snapshot(kind, ignored, new))
}

fn shown(lines: &[Line]) -> Vec<String> {
    let show = |line: &Line| match &line.difference {
        Difference::Added(new) => format!("+ {}: {new}", line.path),
        Difference::Removed(old) => format!("- {}: {old}", line.path),
        Difference::Changed(old, new) => format!("{}: {old} > {new}", line.path),
        Difference::Redacted => format!("{}: changed", line.path),
    };
    lines.iter().map(show).collect()
}

#[rstest::rstest]
#[case::managed_fields(&machine(), json!({"metadata": {"managedFields": [{"manager": "a"}]}}))]
#[case::resource_version(&machine(), json!({"metadata": {"resourceVersion": "2"}}))]
#[case::generation(&machine(), json!({"metadata": {"generation": 2}}))]
#[case::leader(&kind("", "ConfigMap"), json!({"metadata": {"annotations": {"control-plane.alpha.kubernetes.io/leader": "x"}}}))]
#[case::lease(&kind("coordination.k8s.io", "Lease"), json!({"spec": {"renewTime": "now"}}))]
#[case::images(&kind("", "Node"), json!({"status": {"images": [{"names": ["a"]}]}}))]
#[case::heartbeat(&kind("", "Node"), json!({"status": {"conditions": [{"lastHeartbeatTime": "now"}]}}))]
#[case::probe(&kind("", "Pod"), json!({"status": {"conditions": [{"lastProbeTime": "now"}]}}))]
fn noise_is_no_change(#[case] kind: &Kind, #[case] noise: Value) {
    let mut old = json!({"metadata": {"name": "one", "annotations": {}}, "spec": {}, "status": {"conditions": [{}]}});
    let quiet = old.clone();
    json_patch::merge(&mut old, &noise);
    assert!(change(kind, &quiet, &old).is_none(), "it came");
    assert!(change(kind, &old, &quiet).is_none(), "it went");
}

#[rstest::rstest]
#[case::of_another_kind(&machine(), json!({"spec": {"renewTime": "now"}}))]
#[case::of_another_group(&kind("example.io", "Lease"), json!({"spec": {"renewTime": "now"}}))]
#[case::holder(&kind("coordination.k8s.io", "Lease"), json!({"spec": {"holderIdentity": "a"}}))]
#[case::observed(&machine(), json!({"status": {"observedGeneration": 2}}))]
#[case::transition(&machine(), json!({"status": {"conditions": [{"lastTransitionTime": "now"}]}}))]
fn a_field_that_is_not_noise_makes_a_change(#[case] kind: &Kind, #[case] said: Value) {
    let quiet = json!({"metadata": {"name": "one"}});
    let mut new = quiet.clone();
    json_patch::merge(&mut new, &said);
    assert!(change(kind, &quiet, &new).is_some());
}

#[rstest::rstest]
#[case::below("/status", true)]
#[case::itself("/status/conditions/0/message", true)]
#[case::any_item("/status/conditions/*/message", true)]
#[case::any_key("/*/conditions/*/message", true)]
#[case::another("/spec/conditions", false)]
#[case::deeper("/status/conditions/0/message/more", false)]
#[case::another_item("/status/conditions/1", false)]
fn an_ignored_path_is_left_out_with_all_below_it(#[case] path: &str, #[case] ignored: bool) {
    let object = |message: &str| json!({"status": {"conditions": [{"type": "Ready", "message": message}]}});
    let change = ignoring(&machine(), &[path], &object("a"), &object("b"));
    assert_eq!(change.is_none(), ignored);
}

#[rstest::rstest]
#[case::dotted("status.conditions", "begins with a slash")]
#[case::slash_at_its_end("/status/", "write /status, with no slash at the end")]
#[case::two_slashes("/status//phase", "no two in a row")]
#[case::empty("", "whole object")]
#[case::root("/", "whole object")]
#[case::tilde("/metadata/annotations/a~b", "~0")]
fn an_invalid_path_pattern_is_refused_with_its_correction(#[case] path: &str, #[case] part: &str) {
    let error = path.parse::<Pattern>().unwrap_err().to_string();
    assert!(error.contains(part), "{error}");
}

#[test]
fn a_key_with_a_slash_is_named_by_its_escape() {
    let path: Pattern = "/metadata/annotations/a.b~1c~0d".parse().unwrap();
    let mut object = json!({"metadata": {"annotations": {"a.b/c~d": "x", "kept": "y"}}});
    path.remove_from(&mut object);
    assert_eq!(object, json!({"metadata": {"annotations": {"kept": "y"}}}));
}

#[rstest::rstest]
#[case::at("/spec/replicas", "/spec/replicas", true)]
#[case::below("/spec", "/spec/replicas", true)]
#[case::the_whole_that_holds_it("/status/nodeRef/name", "/status/nodeRef", true)]
#[case::the_object("/status", "", true)]
#[case::beside("/spec/replicas", "/spec/paused", false)]
#[case::same_beginning("/spec", "/specials", false)]
#[case::wildcard("/status/conditions/*/status", "/status/conditions/3/status", true)]
#[case::wildcard_beside("/status/conditions/*/status", "/status/conditions/3/reason", false)]
fn a_path_is_touched_at_below_and_above_it(#[case] path: &str, #[case] pointer: &str, #[case] touched: bool) {
    assert_eq!(path.parse::<Pattern>().unwrap().touches(pointer), touched);
}

#[rstest::rstest]
#[case::scalar(json!({"spec": {"replicas": 1}}), json!({"spec": {"replicas": 2}}), &["spec.replicas: 1 > 2"])]
#[case::came_and_went(
    json!({"spec": {"a": "x"}}), json!({"spec": {"b": {"c": 1}}}), &["- spec.a: \"x\"", "+ spec.b: {\"c\":1}"])]
#[case::annotation(
    json!({"metadata": {"annotations": {}}}), json!({"metadata": {"annotations": {"a.b/c": "x"}}}),
    &["+ metadata.annotations[\"a.b/c\"]: \"x\""])]
#[case::condition_by_type(
    json!({"status": {"conditions": [
        {"type": "Ready", "status": "False", "lastTransitionTime": "1"}, {"type": "Other", "status": "True"}]}}),
    json!({"status": {"conditions": [
        {"type": "New", "status": "True"}, {"type": "Ready", "status": "True", "lastTransitionTime": "2"},
        {"type": "Other", "status": "True"}]}}),
    &["+ status.conditions[New]: {\"status\":\"True\",\"type\":\"New\"}", "status.conditions[Ready].status: \"False\" > \"True\""])]
#[case::only_the_transition(
    json!({"status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "1"}]}}),
    json!({"status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2"}]}}),
    &["status.conditions[Ready].lastTransitionTime: \"1\" > \"2\""])]
#[case::observed_generations_beside_something_else(
    json!({"status": {"observedGeneration": 1, "conditions": [{"type": "Ready", "status": "True", "observedGeneration": 1}]}}),
    json!({"status": {"observedGeneration": 2, "conditions": [{"type": "Ready", "status": "True", "observedGeneration": 2}]}}),
    &["status.observedGeneration: 1 > 2"])]
#[case::only_observed_generations(
    json!({"status": {"conditions": [{"type": "Ready", "status": "True", "observedGeneration": 1}]}}),
    json!({"status": {"conditions": [{"type": "Ready", "status": "True", "observedGeneration": 2}]}}),
    &["status.conditions[Ready].observedGeneration: 1 > 2"])]
#[case::by_name_and_gone(
    json!({"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b"}]}}),
    json!({"spec": {"containers": [{"name": "a", "image": "2"}]}}),
    &["spec.containers[a].image: \"1\" > \"2\"", "- spec.containers[b]: {\"name\":\"b\"}"])]
#[case::order_of_named_items(
    json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}),
    json!({"spec": {"containers": [{"name": "b"}, {"name": "a"}]}}),
    &["spec.containers: order a, b > order b, a"])]
#[case::taints_share_a_key(
    json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoExecute"}]}}),
    json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "Other"}]}}),
    &["spec.taints[1].effect: \"NoExecute\" > \"Other\""])]
#[case::set_of_texts(
    json!({"metadata": {"finalizers": ["a", "b"]}}), json!({"metadata": {"finalizers": ["b", "c"]}}),
    &["- metadata.finalizers: \"a\"", "+ metadata.finalizers: \"c\""])]
#[case::order_of_texts(
    json!({"spec": {"args": ["a", "b"]}}), json!({"spec": {"args": ["b", "a"]}}),
    &["spec.args[0]: \"a\" > \"b\"", "spec.args[1]: \"b\" > \"a\""])]
#[case::another_type(json!({"spec": {"a": [1]}}), json!({"spec": {"a": null}}), &["spec.a: [1] > null"])]
fn people_read_what_changed_by_path(#[case] old: Value, #[case] new: Value, #[case] expected: &[&str]) {
    assert_eq!(shown(&change(&machine(), &old, &new).unwrap().lines()), expected);
}

#[test]
fn a_new_object_is_reported_without_what_names_it() {
    let object =
        json!({"kind": "Machine", "metadata": {"name": "one", "uid": "u", "labels": {"a": "b"}}, "spec": {"x": [1]}});
    let change = Change::added(identity(&machine()), snapshot(&machine(), &[], &object), false);
    assert_eq!(shown(&change.lines()), ["+ metadata.labels.a: \"b\"", "+ spec.x: [1]"]);
}

#[test]
fn items_of_a_list_lack_their_kind_and_events_of_a_watch_do_not() {
    let listed = json!({"metadata": {"name": "one"}});
    let watched = json!({"apiVersion": "cluster.x-k8s.io/v1", "kind": "Machine", "metadata": {"name": "one"}});
    assert!(change(&machine(), &listed, &watched).is_none());
}

#[test]
fn the_line_has_the_documented_form() {
    let old = json!({"metadata": {"managedFields": []}, "spec": {"a": 1}});
    let new = json!({"metadata": {"managedFields": [
        {"manager": "kubectl", "operation": "Update", "time": "2026-01-01T00:00:00Z", "subresource": "status"}]},
        "spec": {"a": 2}});
    let line: Value = serde_json::from_str(&change(&machine(), &old, &new).unwrap().to_json()).unwrap();
    assert_eq!(
        line,
        json!({
            "schemaVersion": 1, "time": "1970-01-01T00:00:00.000Z", "type": "MODIFIED", "cluster": "management",
            "apiVersion": "cluster.x-k8s.io/v1", "kind": "Machine", "resource": "machines", "namespace": "ns",
            "name": "one", "uid": "u1", "resourceVersion": "7",
            "changedBy": [{"manager": "kubectl", "operation": "Update", "time": "2026-01-01T00:00:00Z", "subresource": "status"}],
            "patch": [{"op": "replace", "path": "/spec/a", "value": 2}],
        })
    );
}

#[test]
fn a_line_that_is_too_long_goes_without_its_patch() {
    let (old, new) = (json!({"spec": {}}), json!({"spec": {"a": "x".repeat(2000)}}));
    let change = change(&machine(), &old, &new).unwrap();
    let line: Value = serde_json::from_str(&change.to_json_within(1000)).unwrap();
    assert_eq!((&line["patch"], &line["name"]), (&json!([]), &json!("one")));
    assert!(line["problem"].as_str().unwrap().contains("too many to show"));
    assert_eq!(change.to_json_within(10_000), change.to_json());
}

#[test]
fn a_line_of_json_steers_no_terminal_and_says_the_same() {
    let text = "a\u{1b}[31m\u{9b}\u{7f}\u{202e}\n漢";
    let change = change(&machine(), &json!({"spec": {}}), &json!({"spec": {"a": text}})).unwrap();
    let line = change.to_json();
    assert!(!line.contains(|c: char| c.is_control() || c == '\u{202e}'), "{line:?}");
    let line: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(line["patch"][0]["value"], text);
}

#[test]
fn texts_and_field_managers_of_an_object_count_as_its_bytes() {
    let text = "x".repeat(1 << 20);
    let bytes = |object: Value| Filter::new(machine(), &[]).snapshot(object).bytes();
    let empty = bytes(json!({}));
    assert!(empty < 1_000, "{empty}");
    assert!(bytes(json!({"spec": {"a": text}})) > 1 << 20);
    assert!(bytes(json!({"spec": {"a": [{text.clone(): 1}]}})) > 1 << 20);
    let managers = json!([{"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsV1": {text: {}}}]);
    assert!(bytes(json!({"metadata": {"managedFields": managers}})) > 1 << 20);
}

#[test]
fn ignored_items_of_a_list_are_those_of_the_object() {
    let object = |values: [u8; 4]| json!({"spec": {"x": values}});
    let ignored = ["/spec/x/0", "/spec/x/1"];
    assert!(ignoring(&machine(), &ignored, &object([0, 0, 0, 0]), &object([1, 1, 0, 0])).is_none());
    let change = ignoring(&machine(), &ignored, &object([0, 0, 0, 0]), &object([0, 0, 1, 0])).unwrap();
    assert_eq!(change.pointers(), ["/spec/x/2"]);
}

/// A user who can write a list into an object must not be able to keep a thread busy for minutes.
#[rstest::rstest]
#[case::texts(|n: usize| Value::from(n.to_string()))]
#[case::named(|n: usize| json!({"name": n.to_string()}))]
fn a_long_list_is_compared_at_once(#[case] item: fn(usize) -> Value) {
    let object = |range: std::ops::Range<usize>| json!({"spec": {"x": range.map(item).collect::<Vec<_>>()}});
    let change = change(&machine(), &object(0..40_000), &object(20_000..60_000)).unwrap();
    let began = std::time::Instant::now();
    assert_eq!(change.lines().len(), 40_000);
    assert!(began.elapsed() < std::time::Duration::from_secs(5), "{:?}", began.elapsed());
}

#[rstest::rstest]
#[case::equal("metadata.name=one", true)]
#[case::not("metadata.name!=one", false)]
#[case::number("spec.replicas==3", true)]
#[case::flag("spec.paused=true", true)]
#[case::absent("spec.nodeName=", true)]
#[case::absent_is_not("spec.nodeName!=x", true)]
#[case::both("metadata.name=one,spec.replicas!=3", false)]
fn fields_match(#[case] selector: &str, #[case] matches: bool) {
    let object = json!({"metadata": {"name": "one"}, "spec": {"replicas": 3, "paused": true}});
    assert_eq!(selector.parse::<FieldSelector>().unwrap().matches(&object), matches);
}

#[rstest::rstest]
#[case("")]
#[case("metadata.name")]
#[case("=one")]
#[case("a=b=c")]
#[case("metadata name=one")]
fn an_invalid_field_selector_is_refused(#[case] selector: &str) {
    assert!(selector.parse::<FieldSelector>().is_err());
}

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
        let before = snapshot(&kind, &["/status/*/name"], &old).value.clone();
        let after = snapshot(&kind, &["/status/*/name"], &new).value.clone();
        let mut patched = before;
        if let Some(change) = ignoring(&kind, &["/status/*/name"], &old, &new) {
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
    let added = Change::added(identity(&machine()), state.clone(), true);
    let mut built = Value::Null;
    json_patch::patch(&mut built, &added.patch).unwrap();
    assert_eq!(built, state.value);
    let line: Value = serde_json::from_str(&added.to_json()).unwrap();
    assert_eq!((&line["type"], &line["initial"]), (&json!("ADDED"), &json!(true)));

    let deleted = Change::deleted(identity(&machine()), Some(state), true);
    let line: Value = serde_json::from_str(&deleted.to_json()).unwrap();
    assert_eq!((&line["type"], &line["foundByRelist"], &line["patch"]), (&json!("DELETED"), &json!(true), &json!([])));
}
