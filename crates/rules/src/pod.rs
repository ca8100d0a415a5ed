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
    resource_list::{CPU, MEMORY},
};

/// Amounts, by the name of the resource.
pub type Requests = BTreeMap<String, Quantity>;

const HUGEPAGES_PREFIX: &str = "hugepages-";
const ALWAYS: &str = "Always";

/// The resources of a pod's spec, in either form of pods.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PodResources {
    /// The requests of containers that run concurrently.
    pub containers: Vec<Requests>,
    /// The containers that start before them, in order.
    pub init_containers: Vec<InitContainer>,
    /// The requests of the pod as a whole (`spec.resources.requests`).
    pub pod_requests: Requests,
    /// The limits of the pod as a whole (`spec.resources.limits`).
    pub pod_limits: Requests,
    /// The resources that the pod itself takes besides its containers (`spec.overhead`).
    pub overhead: Requests,
}

/// An init container.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct InitContainer {
    /// Its requests.
    pub requests: Requests,
    /// True for a sidecar, which keeps running (`restartPolicy: Always`).
    pub is_sidecar: bool,
}

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

/// Returns the requests of a pod that is received over gRPC, without the resource `pods`, of which it takes one.
///
/// # Errors
/// When an amount is no quantity, or is negative.
pub fn of_wire_spec(spec: &wire::PodSpec) -> Result<Requests, BadRequest> {
    Ok(PodResources::try_from(spec)?.requests())
}

impl PodResources {
    /// Returns the pod's requests to a Node.
    #[must_use]
    pub fn requests(&self) -> Requests {
        let mut running = Requests::new();
        for container in &self.containers {
            add(&mut running, container);
        }
        // While an init container runs, the sidecars before it run too, and nothing else.
        let mut sidecars = Requests::new();
        let mut starting = Requests::new();
        for container in &self.init_containers {
            if container.is_sidecar {
                add(&mut running, &container.requests);
                add(&mut sidecars, &container.requests);
                keep_larger(&mut starting, &sidecars);
            } else {
                let mut beside = sidecars.clone();
                add(&mut beside, &container.requests);
                keep_larger(&mut starting, &beside);
            }
        }
        keep_larger(&mut running, &starting);
        for (resource, limit) in self.pod_limits.iter().filter(|(resource, _)| is_pod_level(resource)) {
            // As in the API server's defaults, the requests of containers have precedence.
            running.entry(resource.clone()).or_insert(*limit);
        }
        for (resource, request) in self.pod_requests.iter().filter(|(resource, _)| is_pod_level(resource)) {
            running.insert(resource.clone(), *request);
        }
        add(&mut running, &self.overhead);
        running
    }
}

/// Returns true for a resource that a pod as a whole can request.
fn is_pod_level(resource: &str) -> bool {
    resource == CPU || resource == MEMORY || resource.starts_with(HUGEPAGES_PREFIX)
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

/// An amount's text, in either form.
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

/// Parses amounts; `place` names their field.
fn read<Q: Amount>(amounts: &BTreeMap<String, Q>, place: &str) -> Result<Requests, BadRequest> {
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
    amounts.iter().map(one).collect()
}

/// Returns a container's requests, with limits as their defaults, as the API server does it.
fn container<Q: Amount>(
    name: &str,
    requests: Option<&BTreeMap<String, Q>>,
    limits: Option<&BTreeMap<String, Q>>,
) -> Result<Requests, BadRequest> {
    let field = |field: &str| format!("container {:?}, resources.{field}", Clipped(name));
    let mut all = limits.map(|limits| read(limits, &field("limits"))).transpose()?.unwrap_or_default();
    all.extend(requests.map(|requests| read(requests, &field("requests"))).transpose()?.unwrap_or_default());
    Ok(all)
}

fn api_container(container_spec: &api::Container) -> Result<Requests, BadRequest> {
    let resources = container_spec.resources.as_ref();
    let requests = resources.and_then(|resources| resources.requests.as_ref());
    container(&container_spec.name, requests, resources.and_then(|resources| resources.limits.as_ref()))
}

fn wire_container(container_spec: &wire::Container) -> Result<Requests, BadRequest> {
    let resources = container_spec.resources.as_ref();
    let name = container_spec.name.as_deref().unwrap_or_default();
    container(name, resources.map(|resources| &resources.requests), resources.map(|resources| &resources.limits))
}

const POD_REQUESTS: &str = "spec.resources.requests";
const POD_LIMITS: &str = "spec.resources.limits";
const OVERHEAD: &str = "spec.overhead";

impl TryFrom<&api::PodSpec> for PodResources {
    type Error = BadRequest;

    fn try_from(spec: &api::PodSpec) -> Result<Self, BadRequest> {
        let init = |container: &api::Container| {
            let is_sidecar = container.restart_policy.as_deref() == Some(ALWAYS);
            Ok(InitContainer { requests: api_container(container)?, is_sidecar })
        };
        let some = |amounts: Option<&BTreeMap<String, ApiQuantity>>, place| {
            amounts.map(|amounts| read(amounts, place)).transpose().map(Option::unwrap_or_default)
        };
        let pod = spec.resources.as_ref();
        Ok(Self {
            containers: spec.containers.iter().map(api_container).collect::<Result<_, _>>()?,
            init_containers: spec.init_containers.iter().flatten().map(init).collect::<Result<_, _>>()?,
            pod_requests: some(pod.and_then(|pod| pod.requests.as_ref()), POD_REQUESTS)?,
            pod_limits: some(pod.and_then(|pod| pod.limits.as_ref()), POD_LIMITS)?,
            overhead: some(spec.overhead.as_ref(), OVERHEAD)?,
        })
    }
}

impl TryFrom<&wire::PodSpec> for PodResources {
    type Error = BadRequest;

    fn try_from(spec: &wire::PodSpec) -> Result<Self, BadRequest> {
        let init = |container: &wire::Container| {
            let is_sidecar = container.restart_policy.as_deref() == Some(ALWAYS);
            Ok(InitContainer { requests: wire_container(container)?, is_sidecar })
        };
        let pod = spec.resources.as_ref();
        let some = |amounts: Option<&BTreeMap<String, WireQuantity>>, place| {
            amounts.map(|amounts| read(amounts, place)).transpose().map(Option::unwrap_or_default)
        };
        Ok(Self {
            containers: spec.containers.iter().map(wire_container).collect::<Result<_, _>>()?,
            init_containers: spec.init_containers.iter().map(init).collect::<Result<_, _>>()?,
            pod_requests: some(pod.map(|pod| &pod.requests), POD_REQUESTS)?,
            pod_limits: some(pod.map(|pod| &pod.limits), POD_LIMITS)?,
            overhead: read(&spec.overhead, OVERHEAD)?,
        })
    }
}

#[cfg(test)]
mod tests;
