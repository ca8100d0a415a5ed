//! Whether a Pod fits a Node, by the scheduler's rules for resources, node selector, required node affinity and taints.

use std::collections::BTreeMap;

use anyhow::bail;
use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Toleration};
use rules::{
    Quantity, Requests, Taint, TaintEffect, pod,
    resource_list::{CPU, PODS},
};

/// The only field that a node affinity can name.
const NAME_FIELD: &str = "metadata.name";

#[derive(Debug, Default)]
pub(crate) struct PodNeeds {
    /// The requested resources.
    pub(crate) requests: Requests,
    /// `spec.nodeSelector`: labels that the Node must have.
    pub(crate) node_selector: BTreeMap<String, String>,
    /// The required node affinity: one of these terms must match. `None` if the pod has none; an empty list matches
    /// no Node.
    pub(crate) affinity: Option<Vec<NodeSelectorTerm>>,
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

/// A Node with what its Pods leave.
#[derive(Clone, Debug)]
pub(crate) struct EmptyNode {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) taints: Vec<Taint>,
    /// Its allocatable resources.
    pub(crate) allocatable: Requests,
}

impl PodNeeds {
    /// Returns the first resource of which a Node has too little.
    pub(crate) fn lacks<'a>(&'a self, node: &EmptyNode) -> Option<&'a str> {
        let pod = Quantity::from_units(1);
        let mut requests =
            self.requests.iter().map(|(resource, asked)| (resource.as_str(), *asked)).chain([(PODS, pod)]);
        let is_short = |(resource, asked): &(&str, Quantity)| {
            let has = node.allocatable.get(*resource).map_or(0, |has| counted(resource, *has));
            !asked.is_zero() && counted(resource, *asked) > has
        };
        requests.find(is_short).map(|(resource, _)| resource)
    }

    /// Returns true if a Node is one that the node selector and the required node affinity choose.
    pub(crate) fn chooses(&self, node: &EmptyNode) -> bool {
        self.node_selector.iter().all(|(key, wanted)| node.labels.get(key) == Some(wanted))
            && self.affinity.as_ref().is_none_or(|terms| terms.iter().any(|term| is_matched(term, node)))
    }

    /// Returns the first taint that keeps the Pod away.
    pub(crate) fn untolerated<'t>(&self, taints: &'t [Taint]) -> Option<&'t Taint> {
        taints.iter().find(|taint| keeps_away(taint) && !is_tolerated(taint, &self.tolerations))
    }
}

/// Returns an amount as the scheduler counts it: cpu in thousandths, all else in whole units, both rounded up.
fn counted(resource: &str, amount: Quantity) -> i64 {
    if resource == CPU { amount.milli_value() } else { amount.value() }
}

/// Returns true if a term matches a Node; one without requirements matches none.
fn is_matched(term: &NodeSelectorTerm, node: &EmptyNode) -> bool {
    let labels = term.match_expressions.iter().flatten();
    let labels = labels.map(|it| (it, node.labels.get(&it.key).map(String::as_str)));
    let fields = term.match_fields.iter().flatten();
    let fields = fields.map(|it| (it, (it.key == NAME_FIELD).then_some(node.name.as_str())));
    let mut requirements = labels.chain(fields).peekable();
    requirements.peek().is_some() && requirements.all(|(requirement, has)| is_met(requirement, has))
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

#[cfg(test)]
mod tests {
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
            name: "worker-1".to_owned(),
            labels: texts(&[("zone", "a"), ("generation", "3")]),
            taints: taints.iter().map(|taint| taint.parse().unwrap()).collect(),
            allocatable: allocatable.map(|(name, amount)| (name.to_owned(), amount.parse().unwrap())).into(),
        }
    }

    fn needs(pod: Value) -> anyhow::Result<PodNeeds> {
        let spec: PodSpec = serde_json::from_value(pod).unwrap();
        PodNeeds::try_from(&spec)
    }

    fn asking(requests: &Value) -> PodNeeds {
        needs(json!({"containers": [{"name": "a", "resources": {"requests": requests}}]})).unwrap()
    }

    #[rstest]
    #[case::less_than_there_is(json!({"cpu": "1", "memory": "1Gi"}), None)]
    #[case::exactly_what_there_is(json!({"cpu": "3.92", "memory": "8Gi", "nvidia.com/gpu": "1"}), None)]
    #[case::a_thousandth_more(json!({"cpu": "3921m"}), Some("cpu"))]
    #[case::fractions_are_rounded_up(json!({"cpu": "3920.5m"}), Some("cpu"))]
    #[case::another_than_the_first(json!({"cpu": "1", "memory": "16Gi"}), Some("memory"))]
    #[case::not_there(json!({"amd.com/gpu": "1"}), Some("amd.com/gpu"))]
    #[case::none_of_what_is_not_there(json!({"amd.com/gpu": "0"}), None)]
    fn resources(#[case] requests: Value, #[case] lacking: Option<&str>) {
        assert_eq!(asking(&requests).lacks(&node(&[])), lacking);
    }

    #[test]
    fn a_pod_takes_a_place_of_its_own() {
        let mut full = node(&[]);
        full.allocatable.insert(PODS.to_owned(), Quantity::ZERO);
        assert_eq!(asking(&json!({})).lacks(&full), Some(PODS));
    }

    #[rstest]
    #[case::the_same(json!({"zone": "a"}), true)]
    #[case::another(json!({"zone": "b"}), false)]
    #[case::missing(json!({"disk": "ssd"}), false)]
    fn node_selector(#[case] selector: Value, #[case] fits: bool) {
        let needs = needs(json!({"containers": [], "nodeSelector": selector})).unwrap();
        assert_eq!(needs.chooses(&node(&[])), fits);
    }

    fn affinity(terms: &Value) -> Value {
        let required = json!({"nodeSelectorTerms": terms});
        json!({"containers": [], "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}})
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
    #[case::all_of_a_term(json!([{"key": "zone", "operator": "Exists"}, {"key": "disk", "operator": "Exists"}]), false)]
    fn node_affinity(#[case] expressions: Value, #[case] fits: bool) {
        let needs = needs(affinity(&json!([{"matchExpressions": expressions}]))).unwrap();
        assert_eq!(needs.chooses(&node(&[])), fits);
    }

    #[rstest]
    #[case::one_term_is_enough(
        json!([{"matchExpressions": [{"key": "disk", "operator": "Exists"}]},
            {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]),
        true
    )]
    #[case::an_empty_term_fits_none(json!([{}]), false)]
    #[case::no_term_fits_none(json!([]), false)]
    #[case::the_name(json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["worker-1"]}]}]), true)]
    #[case::another_name(
        json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["worker-2"]}]}]), false
    )]
    fn terms_of_an_affinity(#[case] terms: Value, #[case] fits: bool) {
        assert_eq!(needs(affinity(&terms)).unwrap().chooses(&node(&[])), fits);
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
        let needs = needs(json!({"containers": [], "tolerations": tolerations})).unwrap();
        assert_eq!(needs.untolerated(&node(&["dedicated=batch:NoSchedule"]).taints).is_none(), fits);
    }

    #[test]
    fn a_taint_that_only_prefers_keeps_nobody_away() {
        let node = node(&["spot:PreferNoSchedule", "gone:NoExecute"]);
        assert_eq!(PodNeeds::default().untolerated(&node.taints), node.taints.get(1));
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
        let said = needs(pod).unwrap_err().to_string();
        for part in parts {
            assert!(said.contains(part), "{part:?} isn't in {said:?}");
        }
    }
}
