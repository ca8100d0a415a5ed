//! Checks if a pod would fit an empty Node, by the scheduler's rules for resources, node selector, required node
//! affinity and taints. All obstacles are returned, not only the first.

use std::{collections::BTreeMap, fmt};

use anyhow::bail;
use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Toleration};
use rules::{
    Quantity, Requests, Taint, TaintEffect, pod,
    resource_list::{CPU, PODS},
};

/// The only field that a node affinity can name.
const NAME_FIELD: &str = "metadata.name";

/// The requirements of a pod on a Node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PodNeeds {
    /// The requested resources.
    pub(crate) requests: Requests,
    /// `spec.nodeSelector`: labels that the Node must have.
    pub(crate) node_selector: BTreeMap<String, String>,
    /// The required node affinity: one of these terms must match. `None` if the pod has none; an empty list matches
    /// no Node.
    pub(crate) affinity: Option<Vec<NodeSelectorTerm>>,
    /// Its tolerations.
    pub(crate) tolerations: Vec<Toleration>,
}

impl TryFrom<&PodSpec> for PodNeeds {
    type Error = anyhow::Error;

    fn try_from(spec: &PodSpec) -> Result<Self, anyhow::Error> {
        let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let required = affinity.and_then(|node| node.required_during_scheduling_ignored_during_execution.as_ref());
        let needs = Self {
            requests: pod::of_spec(spec)?,
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
) -> anyhow::Result<()> {
    if known.contains(&operator) {
        return Ok(());
    }
    bail!("{}: operator {operator:?} isn't known here: use one of {}", place(), known.join(", "))
}

/// A Node without pods.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct EmptyNode {
    /// Its name.
    pub(crate) name: String,
    /// Its labels.
    pub(crate) labels: BTreeMap<String, String>,
    /// Its taints.
    pub(crate) taints: Vec<Taint>,
    /// Its allocatable resources.
    pub(crate) allocatable: Requests,
}

/// A reason why a pod doesn't fit an empty Node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Obstacle {
    /// The pod requests more of a resource than the Node has.
    Resource {
        /// The resource.
        resource: String,
        /// The amount that the pod requests.
        asked: Quantity,
        /// The amount that the Node has; `None` if it has no such resource.
        has: Option<Quantity>,
    },
    /// The node selector names a label that the Node lacks or has with another value.
    Selector {
        /// The label.
        key: String,
        /// The value that the selector demands.
        wanted: String,
        /// The value on the Node.
        has: Option<String>,
    },
    /// No term of the required node affinity matches; each is given with its first unmet requirement.
    Affinity(Vec<Unmet>),
    /// The pod doesn't tolerate a taint.
    Taint(Taint),
}

/// The reason why a term of a node affinity doesn't match.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Unmet {
    /// The term has no requirement and so matches no Node.
    Empty,
    /// The Node's label or name doesn't meet a requirement.
    Requirement {
        /// The requirement.
        requirement: NodeSelectorRequirement,
        /// The Node's value.
        has: Option<String>,
    },
}

/// Returns all obstacles; none if the pod fits the Node.
pub(crate) fn obstacles(needs: &PodNeeds, node: &EmptyNode) -> Vec<Obstacle> {
    let mut obstacles = Vec::new();
    let one = (PODS.to_owned(), Quantity::from_units(1));
    for (resource, asked) in needs.requests.iter().chain([(&one.0, &one.1)]) {
        let has = node.allocatable.get(resource).copied();
        if !asked.is_zero() && counted(resource, *asked) > has.map_or(0, |has| counted(resource, has)) {
            obstacles.push(Obstacle::Resource { resource: resource.clone(), asked: *asked, has });
        }
    }
    for (key, wanted) in &needs.node_selector {
        let has = node.labels.get(key);
        if has != Some(wanted) {
            obstacles.push(Obstacle::Selector { key: key.clone(), wanted: wanted.clone(), has: has.cloned() });
        }
    }
    if let Some(terms) = &needs.affinity {
        let unmet: Option<Vec<_>> = terms.iter().map(|term| unmet(term, node)).collect();
        obstacles.extend(unmet.map(Obstacle::Affinity));
    }
    let untolerated = node.taints.iter().filter(|taint| keeps_away(taint) && !is_tolerated(taint, &needs.tolerations));
    obstacles.extend(untolerated.cloned().map(Obstacle::Taint));
    obstacles
}

/// Returns an amount as the scheduler counts it: cpu in thousandths, all else in whole units, both rounded up.
fn counted(resource: &str, amount: Quantity) -> i64 {
    if resource == CPU { amount.milli_value() } else { amount.value() }
}

/// Returns the reason why a term doesn't match the Node; `None` if it does.
fn unmet(term: &NodeSelectorTerm, node: &EmptyNode) -> Option<Unmet> {
    let labels = term.match_expressions.iter().flatten();
    let labels = labels.map(|it| (it, node.labels.get(&it.key).map(String::as_str)));
    let fields = term.match_fields.iter().flatten();
    let fields = fields.map(|it| (it, (it.key == NAME_FIELD).then_some(node.name.as_str())));
    let mut requirements = labels.chain(fields).peekable();
    if requirements.peek().is_none() {
        return Some(Unmet::Empty);
    }
    requirements
        .find(|(requirement, has)| !is_met(requirement, *has))
        .map(|(requirement, has)| Unmet::Requirement { requirement: requirement.clone(), has: has.map(str::to_owned) })
}

fn is_met(requirement: &NodeSelectorRequirement, has: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<i64>().ok());
    let numbers = || number(has).zip(number(values.first().map(String::as_str)));
    match requirement.operator.as_str() {
        "In" => has.is_some_and(|has| values.iter().any(|value| value == has)),
        "NotIn" => has.is_none_or(|has| values.iter().all(|value| value != has)),
        "Exists" => has.is_some(),
        "DoesNotExist" => has.is_none(),
        "Gt" => numbers().is_some_and(|(has, least)| has > least),
        "Lt" => numbers().is_some_and(|(has, most)| has < most),
        _ => false,
    }
}

fn keeps_away(taint: &Taint) -> bool {
    match taint.effect {
        TaintEffect::NoSchedule | TaintEffect::NoExecute => true,
        TaintEffect::PreferNoSchedule => false,
    }
}

fn is_tolerated(taint: &Taint, tolerations: &[Toleration]) -> bool {
    let is_any_or =
        |text: &Option<String>, of_taint: &str| text.as_deref().is_none_or(|it| it.is_empty() || it == of_taint);
    tolerations.iter().any(|toleration| {
        is_any_or(&toleration.key, &taint.key)
            && is_any_or(&toleration.effect, taint.effect.as_str())
            && (toleration.operator.as_deref() == Some("Exists")
                || toleration.value.as_deref().unwrap_or_default() == taint.value)
    })
}

/// Returns the values that meet a requirement, for people.
fn wanted(requirement: &NodeSelectorRequirement) -> String {
    let values = requirement.values.as_deref().unwrap_or_default().join(", ");
    match requirement.operator.as_str() {
        "In" => format!("in ({values})"),
        "NotIn" => format!("not in ({values})"),
        "Exists" => "set".to_owned(),
        "DoesNotExist" => "not set".to_owned(),
        "Gt" => format!("more than {values}"),
        "Lt" => format!("less than {values}"),
        other => format!("{other} ({values})"),
    }
}

/// Writes the pod's need and the Node's supply.
impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_none = |has: &Option<String>| {
            has.as_ref().map_or("the Node has none".to_owned(), |has| format!("the Node has {has:?}"))
        };
        match self {
            Self::Resource { resource, asked, has: Some(has) } => {
                write!(f, "{resource}: the pod asks for {asked}, the Node has {has}")
            }
            Self::Resource { resource, asked, has: None } => {
                write!(f, "{resource}: the pod asks for {asked}, the Node has none")
            }
            Self::Selector { key, wanted, has } => {
                write!(f, "nodeSelector: {key} has to be {wanted:?}, {}", or_none(has))
            }
            Self::Affinity(terms) if terms.is_empty() => {
                f.write_str("node affinity: it has no term, which no Node fits")
            }
            Self::Affinity(terms) => {
                f.write_str("node affinity: ")?;
                for (index, unmet) in terms.iter().enumerate() {
                    f.write_str(if index == 0 { "" } else { "; or " })?;
                    match unmet {
                        Unmet::Empty => f.write_str("a term without requirements fits no Node")?,
                        Unmet::Requirement { requirement, has } => {
                            write!(f, "{} has to be {}, {}", requirement.key, wanted(requirement), or_none(has))?;
                        }
                    }
                }
                Ok(())
            }
            Self::Taint(taint) => write!(f, "taint: the pod doesn't tolerate {taint}"),
        }
    }
}

#[cfg(test)]
mod tests;
