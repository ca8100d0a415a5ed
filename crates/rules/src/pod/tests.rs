#![allow(clippy::unwrap_used)]

use prost::Message as _;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;

fn spec(value: Value) -> api::PodSpec {
    serde_json::from_value(value).unwrap()
}

fn of_api_spec(spec: &api::PodSpec) -> Result<Requests, BadRequest> {
    Ok(PodResources::try_from(spec)?.requests())
}

fn shown(requests: &Requests) -> Vec<(String, String)> {
    requests.iter().map(|(resource, amount)| (resource.clone(), amount.to_string())).collect()
}

fn expected(requests: &[(&str, &str)]) -> Vec<(String, String)> {
    requests.iter().map(|(resource, amount)| ((*resource).to_owned(), (*amount).to_owned())).collect()
}

fn container(name: &str, requests: &Value) -> Value {
    json!({"name": name, "resources": {"requests": requests}})
}

fn sidecar(name: &str, requests: &Value) -> Value {
    json!({"name": name, "restartPolicy": "Always", "resources": {"requests": requests}})
}

#[rstest]
#[case::nothing_asked_for(json!({"containers": [{"name": "a"}]}), &[])]
#[case::containers_run_beside_each_other(
    json!({"containers": [container("a", &json!({"cpu": "500m", "memory": "1Gi"})), container("b", &json!({"cpu": 1}))]}),
    &[("cpu", "1500m"), ("memory", "1Gi")]
)]
#[case::a_limit_is_a_request_where_there_is_none(
    json!({"containers": [{"name": "a", "resources": {
        "requests": {"cpu": "1"}, "limits": {"cpu": "2", "nvidia.com/gpu": "1"}}}]}),
    &[("cpu", "1"), ("nvidia.com/gpu", "1")]
)]
#[case::init_containers_run_one_after_another(
    json!({
        "initContainers": [container("i", &json!({"cpu": "2"})), container("j", &json!({"cpu": "3", "memory": "1Gi"}))],
        "containers": [container("a", &json!({"cpu": "1", "memory": "2Gi"})), container("b", &json!({"cpu": "1"}))],
    }),
    &[("cpu", "3"), ("memory", "2Gi")]
)]
#[case::sidecars_run_beside_the_containers(
    json!({
        "initContainers": [sidecar("s", &json!({"cpu": "1"}))],
        "containers": [container("a", &json!({"cpu": "2"}))],
    }),
    &[("cpu", "3")]
)]
#[case::an_init_container_runs_beside_the_sidecars_before_it(
    json!({
        "initContainers": [sidecar("s", &json!({"cpu": "1"})), container("i", &json!({"cpu": "4"}))],
        "containers": [container("a", &json!({"cpu": "2"}))],
    }),
    &[("cpu", "5")]
)]
#[case::but_not_beside_those_after_it(
    json!({
        "initContainers": [container("i", &json!({"cpu": "4"})), sidecar("s", &json!({"cpu": "1"}))],
        "containers": [container("a", &json!({"cpu": "2"}))],
    }),
    &[("cpu", "4")]
)]
#[case::sidecars_start_beside_each_other(
    json!({
        "initContainers": [sidecar("s", &json!({"cpu": "2"})), sidecar("t", &json!({"cpu": "3"}))],
        "containers": [{"name": "a"}],
    }),
    &[("cpu", "5")]
)]
#[case::overhead_comes_on_top(
    json!({"overhead": {"memory": "120Mi"}, "containers": [container("a", &json!({"memory": "1Gi"}))]}),
    &[("memory", "1144Mi")]
)]
#[case::the_pod_itself_wins_over_its_containers(
    json!({"resources": {"requests": {"cpu": "4"}}, "overhead": {"cpu": "250m"},
        "containers": [container("a", &json!({"cpu": "1", "memory": "1Gi"}))]}),
    &[("cpu", "4250m"), ("memory", "1Gi")]
)]
#[case::a_pod_asks_for_no_other_resources(
    json!({"resources": {"requests": {"nvidia.com/gpu": "4", "hugepages-2Mi": "4Mi"}},
        "containers": [container("a", &json!({"nvidia.com/gpu": "1"}))]}),
    &[("hugepages-2Mi", "4Mi"), ("nvidia.com/gpu", "1")]
)]
#[case::the_pods_limit_counts_where_no_container_asks(
    json!({"resources": {"limits": {"cpu": "4", "memory": "2Gi"}},
        "containers": [container("a", &json!({"cpu": "1"}))]}),
    &[("cpu", "1"), ("memory", "2Gi")]
)]
fn a_pod_asks_for(#[case] pod: Value, #[case] requests: &[(&str, &str)]) {
    assert_eq!(shown(&of_api_spec(&spec(pod)).unwrap()), expected(requests));
}

#[rstest]
#[case::no_quantity(
    json!({"containers": [container("a", &json!({"cpu": "many"}))]}),
    &["container \"a\", resources.requests", "\"cpu\" is \"many\"", "start with a number"]
)]
#[case::negative(
    json!({"containers": [{"name": "a"}], "initContainers": [container("i", &json!({"memory": "-1Gi"}))]}),
    &["container \"i\"", "\"-1Gi\"", "negative"]
)]
#[case::overhead(json!({"containers": [], "overhead": {"cpu": "1 "}}), &["spec.overhead", "\"1 \"", "suffix"])]
fn an_amount_that_cannot_be_used_is_named(#[case] pod: Value, #[case] parts: &[&str]) {
    let said = of_api_spec(&spec(pod)).unwrap_err().to_string();
    for part in parts {
        assert!(said.contains(part), "{part:?} isn't in {said:?}");
    }
}

#[test]
fn a_pod_over_grpc_counts_the_same() {
    let amount = |resource: &str, text: &str| (resource.to_owned(), WireQuantity { string: Some(text.to_owned()) });
    let resources = |requests: &[(&str, &str)], limits: &[(&str, &str)]| {
        let all = |amounts: &[(&str, &str)]| amounts.iter().map(|(resource, text)| amount(resource, text)).collect();
        Some(wire::ResourceRequirements { requests: all(requests), limits: all(limits), ..Default::default() })
    };
    let init = |name: &str, policy: Option<&str>, cpu| wire::Container {
        name: Some(name.to_owned()),
        restart_policy: policy.map(str::to_owned),
        resources: resources(&[("cpu", cpu)], &[]),
        ..Default::default()
    };
    let pod = wire::PodSpec {
        init_containers: vec![init("s", Some("Always"), "1"), init("i", None, "4")],
        containers: vec![wire::Container {
            name: Some("a".to_owned()),
            resources: resources(&[("cpu", "2")], &[("nvidia.com/gpu", "1")]),
            ..Default::default()
        }],
        resources: resources(&[("memory", "2Gi")], &[("hugepages-1Gi", "1Gi")]),
        overhead: [amount("memory", "128Mi")].into(),
        ..Default::default()
    };
    let pod = wire::PodSpec::decode(pod.encode_to_vec().as_slice()).unwrap();
    let requests = [("cpu", "5"), ("hugepages-1Gi", "1Gi"), ("memory", "2176Mi"), ("nvidia.com/gpu", "1")];
    assert_eq!(shown(&of_wire_spec(&pod).unwrap()), expected(&requests));
}
