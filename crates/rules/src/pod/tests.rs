#![allow(clippy::unwrap_used)]

use rstest::rstest;
use serde_json::{Value, json};

use super::*;

fn spec(value: Value) -> api::PodSpec {
    serde_json::from_value(value).unwrap()
}

fn affinity(expression: &Value) -> Value {
    let selector = json!({"nodeSelectorTerms": [{"matchExpressions": [expression]}]});
    json!({"containers": [], "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}})
}

#[test]
fn a_pod_without_wishes_needs_nothing() {
    assert_eq!(PodNeeds::try_from(&spec(json!({"containers": [{"name": "a"}]}))).unwrap(), PodNeeds::default());
}

#[rstest]
#[case::operator(affinity(&json!({"key": "zone", "operator": "Near"})), &["\"zone\"", "\"Near\"", "DoesNotExist"])]
#[case::no_values(affinity(&json!({"key": "zone", "operator": "In"})), &["\"zone\"", "need values"])]
#[case::no_number(affinity(&json!({"key": "gen", "operator": "Gt", "values": ["new"]})), &["\"gen\"", "whole number"])]
#[case::two_numbers(affinity(&json!({"key": "gen", "operator": "Lt", "values": ["1", "2"]})), &["whole number"])]
#[case::toleration(
    json!({"containers": [], "tolerations": [{"key": "a", "operator": "Like"}]}), &["toleration of \"a\"", "\"Like\""]
)]
#[case::toleration_of_nothing(json!({"containers": [], "tolerations": [{"value": "x"}]}), &["without a key", "Exists"])]
#[case::request(
    json!({"containers": [{"name": "a", "resources": {"requests": {"cpu": "x"}}}]}), &["container \"a\"", "\"x\""]
)]
fn an_unusable_requirement_of_a_pod_is_an_error_that_names_it(#[case] pod: Value, #[case] parts: &[&str]) {
    let said = PodNeeds::try_from(&spec(pod)).unwrap_err().to_string();
    for part in parts {
        assert!(said.contains(part), "{part:?} isn't in {said:?}");
    }
}

#[rstest]
#[case::always_what_shares_the_node(json!({}), &["DaemonSets"])]
#[case::spread(json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]}),
    &["DaemonSets", "topology spread"])]
#[case::other_pods(json!({"affinity": {"podAntiAffinity": {}}}), &["DaemonSets", "affinity to other pods"])]
#[case::claims(json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}), &["DaemonSets", "volumes"])]
#[case::volumes_of_the_pod_alone_are_fine(json!({"volumes": [{"name": "v", "emptyDir": {}}]}), &["DaemonSets"])]
#[case::devices(json!({"resourceClaims": [{"name": "gpu"}]}), &["DaemonSets", "resource claims"])]
#[case::runtime(json!({"runtimeClassName": "kata"}), &["DaemonSets", "RuntimeClass"])]
#[case::own_scheduler(json!({"schedulerName": "batch"}), &["DaemonSets", "own scheduler"])]
#[case::the_usual_scheduler(json!({"schedulerName": "default-scheduler"}), &["DaemonSets"])]
#[case::placed_already(json!({"nodeName": "n"}), &["DaemonSets", "spec.nodeName"])]
fn the_scheduling_rules_of_a_pod_that_explain_does_not_check_are_listed(
    #[case] mut pod: Value,
    #[case] parts: &[&str],
) {
    pod["containers"] = json!([]);
    let said = not_looked_at(&spec(pod));
    assert_eq!(said.len(), parts.len(), "{said:?}");
    for (said, part) in said.iter().zip(parts) {
        assert!(said.contains(part), "{part:?} isn't in {said:?}");
    }
}
