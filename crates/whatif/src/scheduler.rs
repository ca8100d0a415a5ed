//! A small scheduler: resources, node selector, required node affinity, taints, host ports and the number of Pods. It
//! leaves out every Pod that needs more than that, and says so; it must never bind a Pod that kube-scheduler would not.
//!
//! Among the Nodes that fit it takes those without a taint `PreferNoSchedule`, then the one with the best score of
//! resources.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
};

use k8s_openapi::api::core::v1::PodSpec;
use rules::{
    Quantity, Requests, Taint, TaintEffect,
    resource_list::{CPU, MEMORY, PODS},
};
use sandbox::{
    Object,
    api::{Api, LabelSelector, Resource},
};
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::{
    fit::{EmptyNode, PodNeeds},
    state::{State, is_finished, node_of, set_condition, texts},
};

/// What the scheduler can't do, for everybody to read.
pub(crate) const LIMITS: &str = "the scheduler here knows resources, node selectors, required node affinity, taints, host \
     ports and the number of Pods; it scores Nodes by their resources alone, and preempts nothing. --scheduler takes \
     kube-scheduler";

/// The volumes of a Pod that not every Node takes.
const ATTACHED: [&str; 9] = [
    "awsElasticBlockStore",
    "azureDisk",
    "cinder",
    "csi",
    "ephemeral",
    "gcePersistentDisk",
    "iscsi",
    "persistentVolumeClaim",
    "rbd",
];

/// The scheduler that Pods have unless they name another.
pub(crate) const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// The scheduler, with what it has read of Pods and Nodes.
#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    pods: HashMap<String, (String, Arc<PodFacts>)>,
    nodes: HashMap<String, (String, Arc<NodeFacts>)>,
    /// The order in which pending Pods were first seen, by their uids.
    arrivals: HashMap<String, usize>,
}

/// What decides where a Pod can run.
#[derive(Debug)]
struct PodFacts {
    needs: Result<PodNeeds, String>,
    ports: BTreeSet<HostPort>,
    /// The same for Pods with the same needs and ports.
    likeness: u64,
    /// What it needs beyond the scheduler's rules.
    beyond: Vec<&'static str>,
    /// The namespaces and selectors of the Pods that it keeps off its Node or zone.
    keeps_off: Vec<(Vec<String>, LabelSelector)>,
}

/// A port of its Node that a Pod takes, on one address or on all.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct HostPort {
    protocol: String,
    number: i32,
    address: String,
}

/// The address that means all of a Node.
const ALL_ADDRESSES: &str = "0.0.0.0";

impl HostPort {
    fn conflicts(&self, other: &Self) -> bool {
        (&self.protocol, self.number) == (&other.protocol, other.number)
            && (self.address == other.address || [&self.address, &other.address].iter().any(|it| *it == ALL_ADDRESSES))
    }
}

#[derive(Debug)]
struct NodeFacts {
    node: EmptyNode,
    is_unschedulable: bool,
    is_avoided: bool,
}

struct Free {
    facts: Arc<NodeFacts>,
    node: EmptyNode,
    ports: BTreeSet<HostPort>,
}

impl Scheduler {
    /// Binds the pending Pods that fit a Node, and marks the others as unschedulable.
    pub(crate) fn act(&mut self, workload: &Api, state: &State) {
        let mut pending: Vec<&Arc<Value>> = state.pods.iter().filter(|pod| is_pending(pod)).collect();
        if pending.is_empty() {
            return;
        }
        self.note_arrivals(&mut pending);
        pending.sort_by_key(|pod| {
            let priority = pod.number("/spec/priority");
            (std::cmp::Reverse(priority), self.arrivals.get(pod.uid()).copied())
        });
        let mut free = self.free(state);
        let keep_off = self.keep_off(state);
        // Of equal Pods that find no Node one is looked at: what is free only becomes less.
        let mut in_vain: HashMap<u64, String> = HashMap::new();
        let pods = Resource::core("pods");
        for pod in pending {
            let facts = self.pod(pod);
            let Ok(needs) = &facts.needs else { continue };
            if !facts.beyond.is_empty() || is_kept_off(pod, &keep_off) {
                continue;
            }
            let known = in_vain.get(&facts.likeness).cloned();
            let why = match known.map_or_else(|| place(needs, &facts.ports, &mut free), Err) {
                Ok(node) => {
                    let binding = json!({"target": {"kind": "Node", "name": node}});
                    // A Pod that has gone needs no Node.
                    let _ = workload.bind(pod.namespace(), pod.name(), &binding);
                    continue;
                }
                Err(why) => why,
            };
            let condition = json!({
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why,
                "lastTransitionTime": time_of(workload),
            });
            set_condition(workload, &pods, pod, &condition, None);
            in_vain.insert(facts.likeness, why);
        }
    }

    /// Numbers the Pods that are seen for the first time: times of objects are whole seconds, and names have no order.
    fn note_arrivals(&mut self, pending: &mut [&Arc<Value>]) {
        pending.sort_by_cached_key(|pod| {
            let created = pod.text("/metadata/creationTimestamp").unwrap_or_default().to_owned();
            (created, pod.text("/metadata/resourceVersion").and_then(|text| text.parse::<u64>().ok()))
        });
        for pod in pending {
            let next = self.arrivals.len();
            self.arrivals.entry(pod.uid().to_owned()).or_insert(next);
        }
    }

    /// Returns what a Pod needs beyond the rules of this scheduler; nothing for a Pod that it can place.
    pub(crate) fn beyond(&mut self, state: &State, pod: &Arc<Value>) -> Vec<String> {
        let facts = self.pod(pod);
        let mut beyond: Vec<String> = facts.beyond.iter().map(|&what| what.to_owned()).collect();
        beyond.extend(facts.needs.as_ref().err().cloned());
        if is_kept_off(pod, &self.keep_off(state)) {
            beyond.push("the anti-affinity of other Pods".to_owned());
        }
        if beyond.is_empty() && self.could_preempt(state, pod) {
            beyond.push("the preemption of Pods of a lower priority".to_owned());
        }
        beyond
    }

    /// Returns true if a Pod fits a Node without the Pods of a lower priority, which kube-scheduler may remove for it.
    fn could_preempt(&mut self, state: &State, pod: &Arc<Value>) -> bool {
        let facts = self.pod(pod);
        let Ok(needs) = &facts.needs else { return false };
        let priority = pod.number("/spec/priority");
        let stays = |other: &&Arc<Value>| node_of(other).is_none() || other.number("/spec/priority") >= priority;
        let others: Vec<_> = state.pods.iter().filter(stays).cloned().collect();
        if pod["spec"]["preemptionPolicy"] == "Never" || others.len() == state.pods.len() {
            return false;
        }
        let free = self.free(&State { pods: others, nodes: state.nodes.clone() });
        free.iter().any(|one| reason(needs, &facts.ports, one).is_none())
    }

    fn pod(&mut self, pod: &Arc<Value>) -> Arc<PodFacts> {
        let version = pod.text("/metadata/resourceVersion").unwrap_or_default();
        match self.pods.get(pod.uid()) {
            Some((known, facts)) if known == version => Arc::clone(facts),
            _ => {
                let facts = Arc::new(PodFacts::read(pod));
                self.pods.insert(pod.uid().to_owned(), (version.to_owned(), Arc::clone(&facts)));
                facts
            }
        }
    }

    fn node(&mut self, node: &Arc<Value>) -> Arc<NodeFacts> {
        let version = node.text("/metadata/resourceVersion").unwrap_or_default();
        match self.nodes.get(node.uid()) {
            Some((known, facts)) if known == version => Arc::clone(facts),
            _ => {
                let facts = Arc::new(NodeFacts::read(node));
                self.nodes.insert(node.uid().to_owned(), (version.to_owned(), Arc::clone(&facts)));
                facts
            }
        }
    }

    /// Returns all Nodes with what their Pods leave.
    fn free(&mut self, state: &State) -> Vec<Free> {
        let mut free: Vec<Free> = Vec::new();
        let mut by_name: HashMap<&str, usize> = HashMap::new();
        for node in &state.nodes {
            let facts = self.node(node);
            by_name.insert(node.name(), free.len());
            free.push(Free { node: facts.node.clone(), facts, ports: BTreeSet::new() });
        }
        for pod in state.pods.iter().filter(|pod| !is_finished(pod)) {
            if let Some(&at) = node_of(pod).and_then(|node| by_name.get(node)) {
                let facts = self.pod(pod);
                if let Ok(needs) = &facts.needs {
                    take(&mut free[at].node, needs);
                }
                free[at].ports.extend(facts.ports.iter().cloned());
            }
        }
        free
    }

    /// Returns the Pods that running Pods keep off.
    fn keep_off(&mut self, state: &State) -> Vec<(Vec<String>, LabelSelector)> {
        let mut all: Vec<(Vec<String>, LabelSelector)> = Vec::new();
        for pod in state.pods.iter().filter(|pod| node_of(pod).is_some() && !is_finished(pod)) {
            if pod.pointer("/spec/affinity/podAntiAffinity").is_none() {
                continue;
            }
            for one in &self.pod(pod).keeps_off {
                if !all.contains(one) {
                    all.push(one.clone());
                }
            }
        }
        all
    }
}

pub(crate) fn is_pending(pod: &Value) -> bool {
    node_of(pod).is_none() && !is_finished(pod) && !pod.deleting()
}

fn is_kept_off(pod: &Value, keep_off: &[(Vec<String>, LabelSelector)]) -> bool {
    keep_off.iter().any(|(namespaces, selector)| {
        (namespaces.is_empty() || namespaces.iter().any(|namespace| namespace == pod.namespace()))
            && selector.matches(pod)
    })
}

pub(crate) fn time_of(api: &Api) -> String {
    api.clock().now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn take(node: &mut EmptyNode, needs: &PodNeeds) {
    let mut less = |resource: &str, amount: Quantity| {
        if let Some(left) = node.allocatable.get_mut(resource) {
            *left = *left - amount;
        }
    };
    for (resource, amount) in &needs.requests {
        less(resource, *amount);
    }
    less(PODS, Quantity::from_units(1));
}

/// Places a Pod on the best Node, and returns its name, or why none fits, in the words of kube-scheduler.
fn place(needs: &PodNeeds, ports: &BTreeSet<HostPort>, free: &mut [Free]) -> Result<String, String> {
    let mut why: BTreeMap<String, usize> = BTreeMap::new();
    let mut best: Option<(bool, f64, usize)> = None;
    for (at, one) in free.iter().enumerate() {
        if let Some(reason) = reason(needs, ports, one) {
            *why.entry(reason).or_default() += 1;
            continue;
        }
        let (is_avoided, score) = (one.facts.is_avoided, score(needs, one));
        let is_better = best.is_none_or(|(was_avoided, most, _)| {
            (was_avoided && !is_avoided) || (was_avoided == is_avoided && score > most)
        });
        if is_better {
            best = Some((is_avoided, score, at));
        }
    }
    let Some((.., at)) = best else {
        let reasons: Vec<_> = why.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        let reasons = if reasons.is_empty() { String::new() } else { format!(": {}", reasons.join(", ")) };
        return Err(format!("0/{} nodes are available{reasons}.", free.len()));
    };
    take(&mut free[at].node, needs);
    free[at].ports.extend(ports.iter().cloned());
    Ok(free[at].node.name.clone())
}

/// Returns why a Node takes no such Pod: the first reason in the order of kube-scheduler's plugins.
fn reason(needs: &PodNeeds, ports: &BTreeSet<HostPort>, free: &Free) -> Option<String> {
    let cordon = || Taint {
        key: "node.kubernetes.io/unschedulable".to_owned(),
        value: String::new(),
        effect: TaintEffect::NoSchedule,
    };
    if free.facts.is_unschedulable && needs.untolerated(&[cordon()]).is_some() {
        return Some("node(s) were unschedulable".to_owned());
    }
    if let Some(taint) = needs.untolerated(&free.node.taints) {
        return Some(format!("node(s) had untolerated taint {{{}: {}}}", taint.key, taint.value));
    }
    if !needs.chooses(&free.node) {
        return Some("node(s) didn't match Pod's node affinity/selector".to_owned());
    }
    if ports.iter().any(|port| free.ports.iter().any(|taken| port.conflicts(taken))) {
        return Some("node(s) didn't have free ports for the requested pod ports".to_owned());
    }
    match needs.lacks(&free.node)? {
        PODS => Some("Too many pods".to_owned()),
        resource => Some(format!("Insufficient {resource}")),
    }
}

/// Returns the score of a Node for a Pod, by the two of kube-scheduler's plugins that look at resources: the share of CPU
/// and memory that stays free (`NodeResourcesFit`), and how equal both shares are (`NodeResourcesBalancedAllocation`).
fn score(needs: &PodNeeds, free: &Free) -> f64 {
    let share = |resource: &str| {
        let amount = |amounts: &Requests| amounts.get(resource).map_or(0.0, |quantity| quantity.to_f64());
        let all = amount(&free.facts.node.allocatable);
        if all > 0.0 { (amount(&free.node.allocatable) - amount(&needs.requests)) / all } else { 0.0 }
    };
    let (cpu, memory) = (share(CPU), share(MEMORY));
    f64::midpoint(cpu, memory) + 1.0 - (cpu - memory).abs() / 2.0
}

impl PodFacts {
    fn read(pod: &Value) -> Self {
        let (needs, ports, beyond, keeps_off) = match PodSpec::deserialize(&pod["spec"]) {
            Ok(spec) => {
                let needs = PodNeeds::try_from(&spec).map_err(|error| error.to_string());
                (needs, ports(&spec), beyond(&spec, &pod["spec"]), keeps_off(pod))
            }
            Err(error) => (Err(format!("its spec can't be read: {error}")), BTreeSet::new(), Vec::new(), Vec::new()),
        };
        let mut hasher = DefaultHasher::new();
        format!("{needs:?} {ports:?}").hash(&mut hasher);
        Self { needs, ports, likeness: hasher.finish(), beyond, keeps_off }
    }
}

fn ports(spec: &PodSpec) -> BTreeSet<HostPort> {
    let sidecars = spec.init_containers.iter().flatten().filter(|it| it.restart_policy.as_deref() == Some("Always"));
    let ports = sidecars.chain(&spec.containers).flat_map(|container| container.ports.iter().flatten());
    let port = |port: &k8s_openapi::api::core::v1::ContainerPort| {
        let number = port.host_port.or_else(|| spec.host_network.unwrap_or_default().then_some(port.container_port))?;
        let address = port.host_ip.clone().filter(|address| !address.is_empty());
        Some(HostPort {
            protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
            number,
            address: address.unwrap_or_else(|| ALL_ADDRESSES.to_owned()),
        })
    };
    ports.filter_map(port).filter(|port| port.number > 0).collect()
}

/// Returns what a Pod needs beyond the rules here; `all` has the fields that are too new for `spec`. What is only
/// preferred keeps no Pod off a Node.
fn beyond(spec: &PodSpec, all: &Value) -> Vec<&'static str> {
    let affinity = spec.affinity.as_ref();
    let has_pod_affinity = affinity.is_some_and(|affinity| {
        let to = affinity.pod_affinity.iter().flat_map(|it| &it.required_during_scheduling_ignored_during_execution);
        let from =
            affinity.pod_anti_affinity.iter().flat_map(|it| &it.required_during_scheduling_ignored_during_execution);
        to.chain(from).flatten().count() > 0
    });
    let spreads = spec.topology_spread_constraints.iter().flatten().any(|it| it.when_unsatisfiable == "DoNotSchedule");
    let volumes = |kind: &str| all.list("/volumes").iter().any(|volume| volume.get(kind).is_some());
    let containers = all.list("/containers").iter().chain(all.list("/initContainers"));
    let mut rules = containers.flat_map(|container| container.list("/restartPolicyRules"));
    let needs_features = rules.any(|rule| rule["action"] == "RestartAllContainers")
        || spec.host_network == Some(true) && spec.host_users == Some(false);
    let scheduler = spec.scheduler_name.as_deref().filter(|name| !name.is_empty());
    let parts = [
        (has_pod_affinity, "required affinity to other Pods"),
        (spreads, "topology spread that must hold"),
        (ATTACHED.into_iter().any(volumes), "volumes (their zone, and how many a Node takes)"),
        (spec.resource_claims.iter().flatten().count() > 0, "resource claims"),
        (
            spec.runtime_class_name.is_some() && spec.overhead.is_none(),
            "the overhead of its RuntimeClass, which the manifests lack",
        ),
        (scheduler.is_some_and(|name| name != DEFAULT_SCHEDULER), "a scheduler of its own"),
        (spec.scheduling_gates.iter().flatten().count() > 0, "scheduling gates"),
        (!all["schedulingGroup"].is_null() || !all["workloadRef"].is_null(), "the other Pods of its scheduling group"),
        (needs_features, "features that Nodes declare"),
    ];
    parts.into_iter().filter(|(is_there, _)| *is_there).map(|(_, part)| part).collect()
}

/// Returns the Pods that a Pod keeps off by its required anti-affinity: their namespaces, none for all, and labels.
fn keeps_off(pod: &Value) -> Vec<(Vec<String>, LabelSelector)> {
    let terms = pod.list("/spec/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution");
    let term = |term: &Value| {
        let selector = LabelSelector::of_object(&term["labelSelector"])?;
        let named = term.list("/namespaces").iter().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>();
        let namespaces = match (term["namespaceSelector"].is_object(), named.is_empty()) {
            (true, _) => Vec::new(),
            (false, true) => vec![pod.namespace().to_owned()],
            (false, false) => named,
        };
        Some((namespaces, selector))
    };
    terms.iter().filter_map(term).collect()
}

impl NodeFacts {
    fn read(node: &Value) -> Self {
        let taints: Vec<Taint> = node.list("/spec/taints").iter().filter_map(taint).collect();
        let is_avoided = taints.iter().any(|taint| taint.effect == TaintEffect::PreferNoSchedule);
        Self { is_unschedulable: node["spec"]["unschedulable"] == true, is_avoided, node: empty_node(node, taints) }
    }
}

/// Returns a Node without Pods.
fn empty_node(node: &Value, taints: Vec<Taint>) -> EmptyNode {
    let amount = |value: &Value| match value {
        Value::String(text) => text.parse::<Quantity>().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        _ => None,
    };
    let allocatable = node.pointer("/status/allocatable").and_then(Value::as_object).into_iter().flatten();
    EmptyNode {
        name: node.name().to_owned(),
        labels: texts(&node["metadata"]["labels"]),
        taints,
        allocatable: allocatable.filter_map(|(resource, value)| Some((resource.clone(), amount(value)?))).collect(),
    }
}

fn taint(taint: &Value) -> Option<Taint> {
    Some(Taint {
        key: taint["key"].as_str()?.to_owned(),
        value: taint["value"].as_str().unwrap_or_default().to_owned(),
        effect: taint["effect"].as_str()?.parse().ok()?,
    })
}

/// Returns true if a DaemonSet's Pod belongs on a Node: by labels and taints alone, since its Pod waits where resources
/// are short.
pub(crate) fn belongs_on(pod: &Value, node: &Value) -> bool {
    let Ok(spec) = PodSpec::deserialize(&pod["spec"]) else { return false };
    let Ok(needs) = PodNeeds::try_from(&spec) else { return false };
    let empty = empty_node(node, node.list("/spec/taints").iter().filter_map(taint).collect());
    needs.untolerated(&empty.taints).is_none() && needs.chooses(&empty)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use sandbox::clock::Clock;

    use super::*;

    fn node(name: &str, cpu: &str, more: &Value) -> Value {
        let mut node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"disk": name}},
            "status": {"allocatable": {"cpu": cpu, "memory": "16Gi", "pods": "3"}},
        });
        json_patch::merge(&mut node, more);
        node
    }

    fn pod(name: &str, cpu: &str, more: &Value) -> Value {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "n", "labels": {"app": "web"}},
            "spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": cpu}}}]},
        });
        json_patch::merge(&mut pod, &json!({ "spec": more }));
        pod
    }

    fn scheduled(objects: Vec<Value>) -> BTreeMap<String, String> {
        let api = Api::new(Clock::real());
        api.load_values(objects).unwrap();
        Scheduler::default().act(&api, &State::read(&api));
        let said = |pod: &Value| {
            let message = pod.list("/status/conditions").iter().find_map(|it| it["message"].as_str());
            node_of(pod).or(message).unwrap_or("left out").to_owned()
        };
        State::read(&api).pods.iter().map(|pod| (pod.name().to_owned(), said(pod))).collect()
    }

    #[test]
    fn pods_go_where_most_is_free_as_long_as_they_fit() {
        let nodes = [node("small", "2", &json!({})), node("large", "8", &json!({}))];
        let pods = ["a", "b", "c"].map(|name| pod(name, "1500m", &json!({})));
        let found = scheduled(nodes.into_iter().chain(pods).chain([pod("z", "7", &json!({}))]).collect());
        assert_eq!(found["a"], "large");
        assert_eq!(found["z"], "0/2 nodes are available: 2 Insufficient cpu.");
    }

    #[rstest]
    #[case::fits(json!({}), "node-1")]
    #[case::too_large(json!({"containers": [{"name": "a", "resources": {"requests": {"memory": "17Gi"}}}]}), "1 Insufficient memory")]
    #[case::selector(json!({"nodeSelector": {"disk": "none"}}), "1 node(s) didn't match Pod's node affinity/selector")]
    #[case::extended(json!({"containers": [{"name": "a", "resources": {"requests": {"nvidia.com/gpu": "1"}}}]}), "Insufficient nvidia.com/gpu")]
    #[case::claims(json!({"resourceClaims": [{"name": "gpu"}]}), "left out")]
    #[case::volumes(json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "v"}}]}), "left out")]
    #[case::disk(json!({"volumes": [{"name": "v", "awsElasticBlockStore": {"volumeID": "v"}}]}), "left out")]
    #[case::no_disk(json!({"volumes": [{"name": "v", "emptyDir": {}}]}), "node-1")]
    #[case::gang(json!({"schedulingGroup": {"podGroupName": "a"}}), "left out")]
    #[case::declared_features(json!({"initContainers": [
        {"name": "s", "restartPolicyRules": [{"action": "RestartAllContainers"}]}]}), "left out")]
    #[case::declared_features_of_a_network(json!({"hostNetwork": true, "hostUsers": false}), "left out")]
    #[case::spread(json!({"topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]}), "left out")]
    #[case::soft_spread(json!({"topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]}), "node-1")]
    #[case::anti_affinity(json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}]}}}), "left out")]
    #[case::gated(json!({"schedulingGates": [{"name": "quota"}]}), "left out")]
    #[case::of_another_scheduler(json!({"schedulerName": "volcano"}), "left out")]
    #[case::of_a_newer_version(json!({"tolerations": [{"key": "a", "operator": "Gt", "value": "1"}]}), "left out")]
    fn a_pod_is_bound_marked_or_left_out(#[case] spec: Value, #[case] part: &str) {
        let found = scheduled(vec![node("node-1", "4", &json!({})), pod("a", "1", &spec)]);
        assert!(found["a"].contains(part), "{found:?}");
    }

    #[rstest]
    #[case::cordoned(json!({"spec": {"unschedulable": true}}), "1 node(s) were unschedulable")]
    #[case::tainted(json!({"spec": {"taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]}}),
        "1 node(s) had untolerated taint {a: b}")]
    #[case::avoided(json!({"spec": {"taints": [{"key": "a", "effect": "PreferNoSchedule"}]}}), "node-1")]
    fn a_node_takes_a_pod_or_says_why_not(#[case] more: Value, #[case] part: &str) {
        let found = scheduled(vec![node("node-1", "4", &more), pod("a", "1", &json!({}))]);
        assert!(found["a"].contains(part), "{found:?}");
    }

    #[test]
    fn a_node_with_a_soft_taint_is_taken_last() {
        let soft = json!({"spec": {"taints": [{"key": "a", "effect": "PreferNoSchedule"}]}});
        let nodes = vec![node("large", "32", &soft), node("small", "4", &json!({})), pod("a", "1", &json!({}))];
        assert_eq!(scheduled(nodes)["a"], "small");
    }

    #[test]
    fn ports_of_the_host_and_the_number_of_pods_are_counted() {
        let port = json!({"containers": [{"name": "a", "ports": [{"containerPort": 80, "hostPort": 80}]}]});
        let found = scheduled(vec![node("node-1", "4", &json!({})), pod("a", "0", &port), pod("b", "0", &port)]);
        assert_eq!(
            found["b"],
            "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."
        );
        let pods = ["a", "b", "c", "d"].map(|name| pod(name, "0", &json!({})));
        let found = scheduled(pods.into_iter().chain([node("node-1", "4", &json!({}))]).collect());
        assert_eq!(found["d"], "0/1 nodes are available: 1 Too many pods.");
    }

    #[rstest]
    #[case::another_address("10.0.0.1", "10.0.0.2", true)]
    #[case::the_same_address("10.0.0.1", "10.0.0.1", false)]
    #[case::all_addresses("10.0.0.1", "", false)]
    #[case::one_of_all("0.0.0.0", "10.0.0.1", false)]
    fn a_port_is_taken_on_its_address(#[case] first: &str, #[case] second: &str, #[case] fit: bool) {
        let on = |address: &str| json!({"containers": [{"name": "a", "ports": [{"containerPort": 80, "hostPort": 80, "hostIP": address}]}]});
        let pods = [pod("a", "0", &on(first)), pod("b", "0", &on(second))];
        let found = scheduled([node("node-1", "4", &json!({}))].into_iter().chain(pods).collect());
        assert_eq!(found["b"] == "node-1", fit, "{found:?}");
    }

    #[test]
    fn ports_of_sidecars_are_taken_too() {
        let sidecar = json!({"initContainers": [
            {"name": "s", "restartPolicy": "Always", "ports": [{"containerPort": 80, "hostPort": 80}]}]});
        let found = scheduled(vec![node("node-1", "4", &json!({})), pod("a", "0", &sidecar), pod("b", "0", &sidecar)]);
        assert!(found["a"] == "node-1" && found["b"].contains("free ports"), "{found:?}");
    }

    #[rstest]
    #[case::lower(json!({"priority": 1}), &["the preemption of Pods of a lower priority"])]
    #[case::the_same(json!({}), &[])]
    #[case::never(json!({"priority": 1, "preemptionPolicy": "Never"}), &[])]
    #[case::another_node(json!({"priority": 1, "nodeSelector": {"disk": "none"}}), &[])]
    #[case::of_a_newer_version(
        json!({"tolerations": [{"key": "a", "operator": "Gt", "value": "1"}]}),
        &["toleration of \"a\": operator \"Gt\" isn't known here: use one of Equal, Exists"]
    )]
    fn what_kube_scheduler_may_do_for_a_pod_is_named(#[case] more: Value, #[case] expected: &[&str]) {
        let api = Api::new(Clock::real());
        let runs = pod("runs", "4", &json!({"nodeName": "node-1", "priority": 0}));
        api.load_values(vec![node("node-1", "4", &json!({})), runs, pod("waits", "1", &more)]).unwrap();
        let state = State::read(&api);
        let waits = state.pods.iter().find(|pod| pod.name() == "waits").unwrap();
        assert_eq!(Scheduler::default().beyond(&state, waits), expected);
    }

    #[test]
    fn pods_of_a_higher_priority_come_first() {
        let urgent = json!({"priority": 100});
        let objects = vec![node("node-1", "2", &json!({})), pod("a", "2", &json!({})), pod("b", "2", &urgent)];
        let found = scheduled(objects);
        assert_eq!(found["b"], "node-1");
        assert!(found["a"].contains("Insufficient cpu"), "{found:?}");
    }

    #[test]
    fn a_pod_that_another_keeps_off_is_left_out() {
        let keeps = json!({"nodeName": "node-1", "affinity": {"podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}]}}});
        let found = scheduled(vec![node("node-1", "4", &json!({})), pod("a", "1", &keeps), pod("b", "1", &json!({}))]);
        assert_eq!(found["b"], "left out");
    }

    /// Returns a Pod with an owner that it shares with others.
    fn owned(name: &str, cpu: &str, more: &Value) -> Value {
        let mut pod = pod(name, cpu, more);
        pod["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "1", "controller": true}]);
        pod
    }

    #[test]
    fn a_pod_of_a_daemon_set_waits_for_its_own_node_alone() {
        let only = |node: &str| {
            let fields = json!([{"key": "metadata.name", "operator": "In", "values": [node]}]);
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchFields": fields}]}}}})
        };
        let nodes = [node("full", "1", &json!({})), node("free", "4", &json!({}))];
        let runs = pod("runs", "1", &json!({"nodeName": "full"}));
        let pods = [owned("a", "500m", &only("full")), owned("b", "500m", &only("free"))];
        let found = scheduled(nodes.into_iter().chain([runs]).chain(pods).collect());
        assert!(found["a"].contains("Insufficient cpu"), "{found:?}");
        assert_eq!(found["b"], "free");
    }

    #[test]
    fn pods_of_one_owner_wait_for_what_each_needs() {
        let pods = [owned("a", "8", &json!({})), owned("b", "8", &json!({})), owned("c", "1", &json!({}))];
        let found = scheduled([node("node-1", "4", &json!({}))].into_iter().chain(pods).collect());
        assert_eq!(found["a"], "0/1 nodes are available: 1 Insufficient cpu.");
        assert_eq!(found["b"], found["a"]);
        assert_eq!(found["c"], "node-1");
    }
}
