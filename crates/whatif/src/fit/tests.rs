#![allow(clippy::unwrap_used)]

use k8s_openapi::api::core::v1 as api;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;

/// Returns a Node of 4 cores, 8Gi, 110 pods, one GPU, two labels and these taints.
fn node(taints: &[&str]) -> EmptyNode {
    let texts = |texts: &[(&str, &str)]| -> BTreeMap<String, String> {
        texts.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let allocatable = [("cpu", "3920m"), ("memory", "8Gi"), ("pods", "110"), ("nvidia.com/gpu", "1")];
    EmptyNode {
        name: "workers-template".to_owned(),
        labels: texts(&[("zone", "a"), ("generation", "3")]),
        taints: taints.iter().map(|taint| taint.parse().unwrap()).collect(),
        allocatable: allocatable.map(|(name, amount)| (name.to_owned(), amount.parse().unwrap())).into(),
    }
}

fn in_the_way(pod: &Value, node: &EmptyNode) -> Vec<String> {
    let spec: api::PodSpec = serde_json::from_value(pod.clone()).unwrap();
    let needs = PodNeeds::try_from(&spec).unwrap();
    obstacles(&needs, node).iter().map(ToString::to_string).collect()
}

fn asking(requests: &Value) -> Value {
    json!({"containers": [{"name": "a", "resources": {"requests": requests}}]})
}

#[rstest]
#[case::less_than_there_is(json!({"cpu": "1", "memory": "1Gi"}), &[])]
#[case::exactly_what_there_is(json!({"cpu": "3.92", "memory": "8Gi", "nvidia.com/gpu": "1"}), &[])]
#[case::a_thousandth_more(json!({"cpu": "3921m"}), &["cpu: the pod asks for 3921m, the Node has 3920m"])]
#[case::fractions_are_rounded_up(json!({"cpu": "3920.5m"}), &["cpu: the pod asks for 3920500u, the Node has 3920m"])]
#[case::everything_is_reported(
    json!({"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "2"}),
    &["cpu: the pod asks for 4, the Node has 3920m", "memory: the pod asks for 16Gi, the Node has 8Gi",
        "nvidia.com/gpu: the pod asks for 2, the Node has 1"]
)]
#[case::not_there(json!({"amd.com/gpu": "1"}), &["amd.com/gpu: the pod asks for 1, the Node has none"])]
#[case::none_of_what_is_not_there(json!({"amd.com/gpu": "0"}), &[])]
fn resources(#[case] requests: Value, #[case] expected: &[&str]) {
    assert_eq!(in_the_way(&asking(&requests), &node(&[])), expected);
}

#[test]
fn a_pod_takes_a_place_of_its_own() {
    let mut full = node(&[]);
    full.allocatable.insert(PODS.to_owned(), Quantity::ZERO);
    assert_eq!(in_the_way(&asking(&json!({})), &full), ["pods: the pod asks for 1, the Node has 0"]);
}

#[rstest]
#[case::the_same(json!({"zone": "a"}), &[])]
#[case::another(json!({"zone": "b"}), &["nodeSelector: zone has to be \"b\", the Node has \"a\""])]
#[case::missing(json!({"disk": "ssd"}), &["nodeSelector: disk has to be \"ssd\", the Node has none"])]
fn node_selector(#[case] selector: Value, #[case] expected: &[&str]) {
    assert_eq!(in_the_way(&json!({"containers": [], "nodeSelector": selector}), &node(&[])), expected);
}

#[rstest]
#[case::in_(json!([{"key": "zone", "operator": "In", "values": ["b", "a"]}]), true)]
#[case::not_in(json!([{"key": "zone", "operator": "In", "values": ["b"]}]), false)]
#[case::in_of_nothing(json!([{"key": "disk", "operator": "In", "values": ["ssd"]}]), false)]
#[case::excluded(json!([{"key": "zone", "operator": "NotIn", "values": ["a"]}]), false)]
#[case::not_excluded(json!([{"key": "zone", "operator": "NotIn", "values": ["b"]}]), true)]
#[case::nothing_is_excluded(json!([{"key": "disk", "operator": "NotIn", "values": ["ssd"]}]), true)]
#[case::exists(json!([{"key": "zone", "operator": "Exists"}]), true)]
#[case::does_not(json!([{"key": "disk", "operator": "Exists"}]), false)]
#[case::is_absent(json!([{"key": "disk", "operator": "DoesNotExist"}]), true)]
#[case::is_not_absent(json!([{"key": "zone", "operator": "DoesNotExist"}]), false)]
#[case::larger(json!([{"key": "generation", "operator": "Gt", "values": ["2"]}]), true)]
#[case::not_larger(json!([{"key": "generation", "operator": "Gt", "values": ["3"]}]), false)]
#[case::smaller(json!([{"key": "generation", "operator": "Lt", "values": ["4"]}]), true)]
#[case::no_number(json!([{"key": "zone", "operator": "Lt", "values": ["4"]}]), false)]
#[case::all_of_a_term(
    json!([{"key": "zone", "operator": "Exists"}, {"key": "disk", "operator": "Exists"}]), false
)]
fn node_affinity(#[case] expressions: Value, #[case] fits: bool) {
    let said = in_the_way(&affinity(&json!([{"matchExpressions": expressions}])), &node(&[]));
    assert_eq!(said.is_empty(), fits, "{said:?}");
}

fn affinity(terms: &Value) -> Value {
    let required = json!({"nodeSelectorTerms": terms});
    json!({"containers": [], "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}})
}

#[rstest]
#[case::one_term_is_enough(
    json!([{"matchExpressions": [{"key": "disk", "operator": "Exists"}]},
        {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]),
    &[]
)]
#[case::each_term_says_why(
    json!([{"matchExpressions": [{"key": "disk", "operator": "Exists"}]},
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b", "c"]}]}]),
    &["node affinity: disk has to be set, the Node has none; or zone has to be in (b, c), the Node has \"a\""]
)]
#[case::an_empty_term_fits_none(json!([{}]), &["node affinity: a term without requirements fits no Node"])]
#[case::no_term_fits_none(json!([]), &["node affinity: it has no term, which no Node fits"])]
#[case::the_name_of_a_node_to_come(
    json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["worker-1"]}]}]),
    &["node affinity: metadata.name has to be in (worker-1), the Node has \"workers-template\""]
)]
fn terms_of_an_affinity(#[case] terms: Value, #[case] expected: &[&str]) {
    assert_eq!(in_the_way(&affinity(&terms), &node(&[])), expected);
}

#[rstest]
#[case::none(json!([]), false)]
#[case::equal(json!([{"key": "dedicated", "operator": "Equal", "value": "batch", "effect": "NoSchedule"}]), true)]
#[case::equal_is_the_default(json!([{"key": "dedicated", "value": "batch"}]), true)]
#[case::another_value(json!([{"key": "dedicated", "value": "web"}]), false)]
#[case::any_value(json!([{"key": "dedicated", "operator": "Exists"}]), true)]
#[case::another_key(json!([{"key": "gpu", "operator": "Exists"}]), false)]
#[case::another_effect(json!([{"key": "dedicated", "operator": "Exists", "effect": "NoExecute"}]), false)]
#[case::everything(json!([{"operator": "Exists"}]), true)]
fn taints_and_tolerations(#[case] tolerations: Value, #[case] fits: bool) {
    let pod = json!({"containers": [], "tolerations": tolerations});
    let expected: &[&str] = if fits { &[] } else { &["taint: the pod doesn't tolerate dedicated=batch:NoSchedule"] };
    assert_eq!(in_the_way(&pod, &node(&["dedicated=batch:NoSchedule"])), expected);
}

#[test]
fn a_taint_that_only_prefers_keeps_nobody_away() {
    let node = node(&["spot:PreferNoSchedule", "gone:NoExecute"]);
    assert_eq!(in_the_way(&json!({"containers": []}), &node), ["taint: the pod doesn't tolerate gone:NoExecute"]);
}

#[rstest]
#[case::operator(affinity(&json!([{"matchExpressions": [{"key": "zone", "operator": "Near"}]}])), &["\"zone\"", "\"Near\"", "DoesNotExist"])]
#[case::toleration(
    json!({"containers": [], "tolerations": [{"key": "a", "operator": "Like"}]}), &["toleration of \"a\"", "\"Like\""]
)]
#[case::request(
    json!({"containers": [{"name": "a", "resources": {"requests": {"cpu": "x"}}}]}), &["container \"a\"", "\"x\""]
)]
fn an_unusable_requirement_of_a_pod_is_an_error_that_names_it(#[case] pod: Value, #[case] parts: &[&str]) {
    let spec: api::PodSpec = serde_json::from_value(pod).unwrap();
    let said = PodNeeds::try_from(&spec).unwrap_err().to_string();
    for part in parts {
        assert!(said.contains(part), "{part:?} isn't in {said:?}");
    }
}

#[test]
fn a_pod_without_wishes_needs_nothing() {
    let spec: api::PodSpec = serde_json::from_value(json!({"containers": [{"name": "a"}]})).unwrap();
    assert_eq!(PodNeeds::try_from(&spec).unwrap(), PodNeeds::default());
}
