//! A pod's requests to a Node, summed as the scheduler does: concurrent containers, sequential init containers,
//! sidecars beside both, the pod's own resources, and overhead. This file must never count anything that the
//! scheduler doesn't.

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1 as api, apimachinery::pkg::api::resource::Quantity as ApiQuantity};
use k8s_pb::{api::core::v1 as wire, apimachinery::pkg::api::resource::Quantity as WireQuantity};
use thiserror::Error;

use crate::{
    Quantity,
    problem::Clipped,
    resource_list::{CPU, HUGE_PAGES, MEMORY},
};

/// Amounts, by the name of the resource.
pub type Requests = BTreeMap<String, Quantity>;

const ALWAYS: &str = "Always";

/// An invalid amount in a pod.
#[derive(Clone, Debug, Error, PartialEq)]
#[error("{place}: {amount}: {rule}")]
pub struct BadRequest {
    /// The field, such as `container "app", resources.requests`.
    place: String,
    /// The resource and the text.
    amount: String,
    rule: String,
}

/// Returns the requests of a pod, without the resource `pods`, of which it takes one.
///
/// # Errors
/// When an amount is no quantity, or is negative.
pub fn of_spec(spec: &api::PodSpec) -> Result<Requests, BadRequest> {
    let pod = spec.resources.as_ref();
    let pod = Pod {
        containers: spec.containers.iter().map(api_container).collect(),
        init_containers: spec.init_containers.iter().flatten().map(api_container).collect(),
        requests: pod.and_then(|pod| pod.requests.as_ref()),
        limits: pod.and_then(|pod| pod.limits.as_ref()),
        overhead: spec.overhead.as_ref(),
    };
    pod.requests()
}

fn api_container(container: &api::Container) -> Container<'_, ApiQuantity> {
    let resources = container.resources.as_ref();
    Container {
        name: &container.name,
        requests: resources.and_then(|resources| resources.requests.as_ref()),
        limits: resources.and_then(|resources| resources.limits.as_ref()),
        is_sidecar: container.restart_policy.as_deref() == Some(ALWAYS),
    }
}

/// Returns the requests of a pod that is received over gRPC, as [`of_spec`] does.
///
/// # Errors
/// When an amount is no quantity, or is negative.
pub fn of_wire_spec(spec: &wire::PodSpec) -> Result<Requests, BadRequest> {
    let pod = spec.resources.as_ref();
    let pod = Pod {
        containers: spec.containers.iter().map(wire_container).collect(),
        init_containers: spec.init_containers.iter().map(wire_container).collect(),
        requests: pod.map(|pod| &pod.requests),
        limits: pod.map(|pod| &pod.limits),
        overhead: Some(&spec.overhead),
    };
    pod.requests()
}

fn wire_container(container: &wire::Container) -> Container<'_, WireQuantity> {
    let resources = container.resources.as_ref();
    Container {
        name: container.name.as_deref().unwrap_or_default(),
        requests: resources.map(|resources| &resources.requests),
        limits: resources.map(|resources| &resources.limits),
        is_sidecar: container.restart_policy.as_deref() == Some(ALWAYS),
    }
}

/// An amount's text, in either form of pods.
trait Amount {
    fn text(&self) -> &str;
}

impl Amount for ApiQuantity {
    fn text(&self) -> &str {
        &self.0
    }
}

impl Amount for WireQuantity {
    fn text(&self) -> &str {
        self.string.as_deref().unwrap_or_default()
    }
}

type Amounts<'a, Q> = Option<&'a BTreeMap<String, Q>>;

struct Container<'a, Q> {
    name: &'a str,
    requests: Amounts<'a, Q>,
    limits: Amounts<'a, Q>,
    /// True for an init container that keeps running.
    is_sidecar: bool,
}

impl<Q: Amount> Container<'_, Q> {
    /// Returns its requests, with limits as their defaults, as the API server does it.
    fn requests(&self) -> Result<Requests, BadRequest> {
        let field = |field: &str| format!("container {:?}, resources.{field}", Clipped(self.name));
        let mut all = read(self.limits, &field("limits"))?;
        all.extend(read(self.requests, &field("requests"))?);
        Ok(all)
    }
}

struct Pod<'a, Q> {
    containers: Vec<Container<'a, Q>>,
    init_containers: Vec<Container<'a, Q>>,
    requests: Amounts<'a, Q>,
    limits: Amounts<'a, Q>,
    overhead: Amounts<'a, Q>,
}

impl<Q: Amount> Pod<'_, Q> {
    fn requests(&self) -> Result<Requests, BadRequest> {
        let mut running = Requests::new();
        for container in &self.containers {
            add(&mut running, &container.requests()?);
        }
        // While an init container runs, the sidecars before it run too, and nothing else.
        let mut sidecars = Requests::new();
        let mut starting = Requests::new();
        for container in &self.init_containers {
            let requests = container.requests()?;
            if container.is_sidecar {
                add(&mut running, &requests);
                add(&mut sidecars, &requests);
                keep_larger(&mut starting, &sidecars);
            } else {
                let mut beside = sidecars.clone();
                add(&mut beside, &requests);
                keep_larger(&mut starting, &beside);
            }
        }
        keep_larger(&mut running, &starting);
        let limits = read(self.limits, "spec.resources.limits")?;
        for (resource, limit) in limits.into_iter().filter(|(resource, _)| is_pod_level(resource)) {
            // As in the API server's defaults, the requests of containers have precedence.
            running.entry(resource).or_insert(limit);
        }
        let requests = read(self.requests, "spec.resources.requests")?;
        running.extend(requests.into_iter().filter(|(resource, _)| is_pod_level(resource)));
        add(&mut running, &read(self.overhead, "spec.overhead")?);
        Ok(running)
    }
}

/// Parses amounts; `place` names their field.
fn read<Q: Amount>(amounts: Amounts<'_, Q>, place: &str) -> Result<Requests, BadRequest> {
    let one = |(resource, amount): (&String, &Q)| {
        let bad = |rule: String| BadRequest {
            place: place.to_owned(),
            amount: format!("{:?} is {:?}", Clipped(resource), Clipped(amount.text())),
            rule,
        };
        match amount.text().parse::<Quantity>() {
            Ok(quantity) if quantity.is_negative() => Err(bad("it must not be negative".to_owned())),
            Ok(quantity) => Ok((resource.clone(), quantity)),
            Err(error) => Err(bad(error.to_string())),
        }
    };
    amounts.into_iter().flatten().map(one).collect()
}

/// Returns true for a resource that a pod as a whole can request.
fn is_pod_level(resource: &str) -> bool {
    resource == CPU || resource == MEMORY || resource.starts_with(HUGE_PAGES)
}

fn add(sums: &mut Requests, more: &Requests) {
    for (resource, amount) in more {
        let sum = sums.entry(resource.clone()).or_insert(Quantity::ZERO);
        *sum = *sum + *amount;
    }
}

fn keep_larger(amounts: &mut Requests, others: &Requests) {
    for (resource, other) in others {
        let amount = amounts.entry(resource.clone()).or_insert(*other);
        *amount = (*amount).max(*other);
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn spec(value: Value) -> api::PodSpec {
        serde_json::from_value(value).unwrap()
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
        assert_eq!(shown(&of_spec(&spec(pod)).unwrap()), expected(requests));
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
        let said = of_spec(&spec(pod)).unwrap_err().to_string();
        for part in parts {
            assert!(said.contains(part), "{part:?} isn't in {said:?}");
        }
    }

    #[test]
    fn a_pod_over_grpc_counts_the_same() {
        let amount = |resource: &str, text: &str| (resource.to_owned(), WireQuantity { string: Some(text.to_owned()) });
        let resources = |requests: &[(&str, &str)], limits: &[(&str, &str)]| {
            let all =
                |amounts: &[(&str, &str)]| amounts.iter().map(|(resource, text)| amount(resource, text)).collect();
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
}
