//! The requirements of a pod on a Node, by the scheduler's rules for one pod and one Node, and the parts of the pod
//! that those rules don't cover. This file must never guess at what only a cluster knows.

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1 as api, apimachinery::pkg::api::resource::Quantity as ApiQuantity};
use k8s_pb::{api::core::v1 as wire, apimachinery::pkg::api::resource::Quantity as WireQuantity};
use thiserror::Error;

use crate::{
    Quantity,
    problem::Clipped,
    resource_list::{CPU, MEMORY},
};

const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// The requirements of a pod on a Node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodNeeds {
    /// The requested resources.
    pub requests: Requests,
    /// `spec.nodeSelector`: labels that the Node must have.
    pub node_selector: BTreeMap<String, String>,
    /// The required node affinity: one of these terms must match. `None` if the pod has none; an empty list matches
    /// no Node.
    pub affinity: Option<Vec<api::NodeSelectorTerm>>,
    /// Its tolerations.
    pub tolerations: Vec<api::Toleration>,
}

/// The reason why a pod's requirements are unknown.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum BadPod {
    /// An amount is invalid.
    #[error(transparent)]
    Request(#[from] BadRequest),
    /// A comparison is unknown.
    #[error("{place}: operator {operator:?} isn't known here: use one of {}", known.join(", "))]
    Operator {
        /// The requirement or toleration.
        place: String,
        /// The comparison.
        operator: String,
        /// The known ones.
        known: &'static [&'static str],
    },
}

impl TryFrom<&api::PodSpec> for PodNeeds {
    type Error = BadPod;

    fn try_from(spec: &api::PodSpec) -> Result<Self, BadPod> {
        let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let required = affinity.and_then(|node| node.required_during_scheduling_ignored_during_execution.as_ref());
        let needs = Self {
            requests: of_spec(spec)?,
            node_selector: spec.node_selector.clone().unwrap_or_default(),
            affinity: required.map(|selector| selector.node_selector_terms.clone()),
            tolerations: spec.tolerations.clone().unwrap_or_default(),
        };
        for term in needs.affinity.iter().flatten() {
            for requirement in term.match_expressions.iter().chain(&term.match_fields).flatten() {
                let place = || format!("node affinity, {:?}", requirement.key);
                check_operator(&requirement.operator, &["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"], place)?;
            }
        }
        for toleration in &needs.tolerations {
            let operator = toleration.operator.as_deref().filter(|operator| !operator.is_empty()).unwrap_or("Equal");
            let place = || format!("toleration of {:?}", toleration.key.as_deref().unwrap_or_default());
            check_operator(operator, &["Equal", "Exists"], place)?;
        }
        Ok(needs)
    }
}

fn check_operator(
    operator: &str,
    known: &'static [&'static str],
    place: impl FnOnce() -> String,
) -> Result<(), BadPod> {
    if known.contains(&operator) {
        return Ok(());
    }
    Err(BadPod::Operator { place: place(), operator: operator.to_owned(), known })
}

/// Returns the factors that also decide where the pod can run, but that these rules ignore: other pods on the Node, and
/// the parts of the spec that reach beyond one pod and one Node.
#[must_use]
pub fn not_looked_at(spec: &api::PodSpec) -> Vec<&'static str> {
    let affinity = spec.affinity.as_ref();
    let volumes =
        spec.volumes.iter().flatten().any(|volume| {
            volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some() || volume.csi.is_some()
        });
    let scheduler = spec.scheduler_name.as_deref().filter(|name| !name.is_empty());
    let parts = [
        (true, "the share of DaemonSets"),
        (
            affinity.is_some_and(|affinity| affinity.pod_affinity.is_some() || affinity.pod_anti_affinity.is_some()),
            "affinity to other pods",
        ),
        (spec.topology_spread_constraints.as_ref().is_some_and(|all| !all.is_empty()), "topology spread"),
        (volumes, "volumes (their zone, their node affinity and how many a Node takes)"),
        (spec.resource_claims.as_ref().is_some_and(|all| !all.is_empty()), "resource claims"),
        (spec.runtime_class_name.is_some(), "what its RuntimeClass adds"),
        (spec.node_name.is_some(), "spec.nodeName, which passes the scheduler by"),
        (scheduler.is_some_and(|name| name != DEFAULT_SCHEDULER), "the rules of its own scheduler"),
    ];
    parts.into_iter().filter(|(is_there, _)| *is_there).map(|(_, part)| part).collect()
}

// A pod's requests to a Node, summed as the scheduler does: concurrent containers, sequential init containers,
// sidecars beside both, the pod's own resources, and overhead. This file must never count anything that the
// scheduler doesn't.

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

/// Returns a pod's requests to a Node, without the resource `pods`, of which it takes one.
///
/// # Errors
/// When an amount is no quantity, or is negative.
pub(crate) fn of_spec(spec: &api::PodSpec) -> Result<Requests, BadRequest> {
    Ok(PodResources::try_from(spec)?.requests())
}

/// Returns the same for a pod that is received over gRPC.
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
