//! The requirements of a pod on a Node, by the scheduler's rules for one pod and one Node, and the parts of the pod
//! that those rules don't cover. This file must never guess at what only a cluster knows.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as api;
use thiserror::Error;

use super::{
    Requests,
    pod_requests::{self, BadRequest},
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
    pub affinity: Option<Vec<Term>>,
    /// Its tolerations.
    pub tolerations: Vec<Toleration>,
}

/// A term of a node affinity: all of its requirements must be met. A term without any matches no Node.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Term {
    /// Requirements on the Node's labels.
    pub labels: Vec<Requirement>,
    /// Requirements on the Node's fields; `metadata.name` is the only one.
    pub fields: Vec<Requirement>,
}

/// One requirement of a term.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Requirement {
    /// The key of the label, or the name of the field.
    pub key: String,
    /// The comparison.
    pub operator: Operator,
}

/// The comparison of a label or field with values.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Operator {
    /// Its value is one of these.
    In(Vec<String>),
    /// Its value is none of these, or it is missing.
    NotIn(Vec<String>),
    /// It is present.
    Exists,
    /// It is missing.
    DoesNotExist,
    /// Its value is a larger number.
    Gt(i64),
    /// Its value is a smaller number.
    Lt(i64),
}

/// A toleration: it matches the taints with this key, value and effect.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Toleration {
    /// The key; `None` is any, and only valid with [`TolerationValue::Any`].
    pub key: Option<String>,
    /// The value.
    pub value: TolerationValue,
    /// The effect; `None` is any.
    pub effect: Option<String>,
}

/// The value of a toleration.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum TolerationValue {
    /// Any value (`Exists`).
    Any,
    /// This value (`Equal`).
    Equal(String),
}

impl Default for TolerationValue {
    fn default() -> Self {
        Self::Equal(String::new())
    }
}

/// The reason why a pod's requirements are unknown.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum BadPod {
    /// An amount is invalid.
    #[error(transparent)]
    Request(#[from] BadRequest),
    /// A requirement is invalid.
    #[error("node affinity, {key:?}: {rule}")]
    Requirement {
        /// The label or field.
        key: String,
        /// The rule that it breaks.
        rule: String,
    },
    /// A toleration is invalid.
    #[error("toleration of {key:?}: {rule}")]
    Toleration {
        /// The taint's key.
        key: String,
        /// The rule that it breaks.
        rule: String,
    },
}

impl TryFrom<&api::PodSpec> for PodNeeds {
    type Error = BadPod;

    fn try_from(spec: &api::PodSpec) -> Result<Self, BadPod> {
        let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let required = affinity.and_then(|node| node.required_during_scheduling_ignored_during_execution.as_ref());
        let terms = |selector: &api::NodeSelector| selector.node_selector_terms.iter().map(term).collect();
        Ok(Self {
            requests: pod_requests::of_spec(spec)?,
            node_selector: spec.node_selector.clone().unwrap_or_default(),
            affinity: required.map(terms).transpose()?,
            tolerations: spec.tolerations.iter().flatten().map(toleration).collect::<Result<_, _>>()?,
        })
    }
}

fn term(term: &api::NodeSelectorTerm) -> Result<Term, BadPod> {
    let all = |requirements: &Option<Vec<api::NodeSelectorRequirement>>| {
        requirements.iter().flatten().map(requirement).collect::<Result<_, _>>()
    };
    Ok(Term { labels: all(&term.match_expressions)?, fields: all(&term.match_fields)? })
}

fn requirement(requirement: &api::NodeSelectorRequirement) -> Result<Requirement, BadPod> {
    let key = requirement.key.clone();
    let bad = |rule: &str| BadPod::Requirement { key: key.clone(), rule: rule.to_owned() };
    let values = || requirement.values.clone().unwrap_or_default();
    let some = || match values() {
        values if values.is_empty() => Err(bad("the operators In and NotIn need values")),
        values => Ok(values),
    };
    let number = || match values().as_slice() {
        [value] => value.parse().map_err(|_| bad("the operators Gt and Lt need one whole number")),
        _ => Err(bad("the operators Gt and Lt need one whole number")),
    };
    let operator = match requirement.operator.as_str() {
        "In" => Operator::In(some()?),
        "NotIn" => Operator::NotIn(some()?),
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        "Gt" => Operator::Gt(number()?),
        "Lt" => Operator::Lt(number()?),
        other => {
            return Err(bad(&format!("operator {other:?}: use In, NotIn, Exists, DoesNotExist, Gt or Lt")));
        }
    };
    Ok(Requirement { key, operator })
}

fn toleration(toleration: &api::Toleration) -> Result<Toleration, BadPod> {
    let text = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let key = text(&toleration.key);
    let bad = |rule: String| BadPod::Toleration { key: toleration.key.clone().unwrap_or_default(), rule };
    let value = match toleration.operator.as_deref() {
        Some("Exists") => TolerationValue::Any,
        None | Some("" | "Equal") if key.is_none() => {
            return Err(bad("without a key the operator has to be Exists".to_owned()));
        }
        None | Some("" | "Equal") => TolerationValue::Equal(toleration.value.clone().unwrap_or_default()),
        Some(other) => return Err(bad(format!("operator {other:?} isn't known here: use Equal or Exists"))),
    };
    Ok(Toleration { key, value, effect: text(&toleration.effect) })
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

#[cfg(test)]
mod tests;
