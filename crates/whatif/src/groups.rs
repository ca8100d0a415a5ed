//! The groups of Machines: their sizes and Nodes, what their new Nodes are like, and how long those take to come.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use k8s_pb::{api::core::v1 as wire, apimachinery::pkg::api::resource::Quantity};
use prost::Message as _;
use proto::{ExternalGrpcNode, PricingNodePriceRequest};
use sandbox::{Contract, GroupKey, Model, Models, Object, Times, api::Api, autoscaler::Caller, engine::Kind};
use serde_json::{Map, Value, json};

use crate::state::{is_ready, list, texts, title, title_of};

const DEPLOYMENT_NAME: &str = "cluster.x-k8s.io/deployment-name";
const OWNER_KIND: &str = "cluster.x-k8s.io/owner-kind";
const OWNER_NAME: &str = "cluster.x-k8s.io/owner-name";
const OWNER_NAMESPACE: &str = "cluster.x-k8s.io/cluster-namespace";

const HOSTNAME: &str = "kubernetes.io/hostname";

/// The taints of a Node that pass, or that its own state brings. Nothing here would take them off.
const PASSING: [&str; 6] = [
    "node.kubernetes.io/",
    "node.cluster.x-k8s.io/",
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
    "startup-taint.cluster-autoscaler.kubernetes.io/",
    "ignore-taint.cluster-autoscaler.kubernetes.io/",
];

/// The time from a new Machine to a Ready Node, where nothing says it.
const USUAL: Duration = Duration::from_secs(180);
/// The time from the end of a drain to the end of a Machine.
const TERMINATE: Duration = Duration::from_secs(60);
/// What takes longer was no ordinary start.
const LONGEST: i64 = 3600;

#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    /// The sizes: `spec.replicas`.
    pub(crate) sizes: BTreeMap<GroupKey, i64>,
    /// The MachineSets of MachineDeployments, with the group that they are of.
    sets: BTreeMap<GroupKey, GroupKey>,
    /// The group of each Node, by its name.
    pub(crate) of_node: HashMap<String, GroupKey>,
    pub(crate) machines: Vec<(GroupKey, Arc<Value>)>,
    /// The Nodes that Machines refer to and that aren't there, with their Machines.
    pub(crate) missing: Vec<String>,
}

impl Groups {
    pub(crate) fn read(management: &Api, nodes: &[Arc<Value>], contract: Contract) -> Self {
        let of = |kind: Kind| list(management, &kind.resource(contract));
        let mut groups = Self::default();
        for deployment in of(Kind::MachineDeployment).iter().chain(&of(Kind::MachinePool)) {
            groups.sizes.insert(key_of(deployment), deployment.integer("/spec/replicas").unwrap_or(1));
        }
        for set in of(Kind::MachineSet) {
            let owner = set.controller().filter(|owner| owner["kind"] == "MachineDeployment");
            match owner.and_then(|owner| owner["name"].as_str()) {
                Some(name) => {
                    let group = ("MachineDeployment".to_owned(), set.namespace().to_owned(), name.to_owned());
                    groups.sets.insert(key_of(&set), group);
                }
                None => {
                    groups.sizes.insert(key_of(&set), set.integer("/spec/replicas").unwrap_or(1));
                }
            }
        }
        let names: BTreeSet<&str> = nodes.iter().map(|node| node.name()).collect();
        for machine in of(Kind::Machine) {
            let Some(group) = groups.of_machine(&machine) else { continue };
            if let Some(node) = machine.text("/status/nodeRef/name") {
                if names.contains(node) {
                    groups.of_node.insert(node.to_owned(), group.clone());
                } else if !machine.deleting() {
                    groups.missing.push(format!("{node} of {}", title_of(&machine)));
                }
            }
            groups.machines.push((group, machine));
        }
        for node in nodes {
            let owner = (node.annotation(OWNER_KIND), node.annotation(OWNER_NAMESPACE), node.annotation(OWNER_NAME));
            if let (Some("MachinePool"), Some(namespace), Some(name)) = owner {
                let group = ("MachinePool".to_owned(), namespace.to_owned(), name.to_owned());
                groups.of_node.entry(node.name().to_owned()).or_insert(group);
            }
        }
        groups
    }

    fn of_machine(&self, machine: &Value) -> Option<GroupKey> {
        let key = |kind: &str, name: &str| (kind.to_owned(), machine.namespace().to_owned(), name.to_owned());
        if let Some(name) = machine.label(DEPLOYMENT_NAME) {
            return Some(key("MachineDeployment", name));
        }
        let owner = machine.controller()?;
        let owner = key(owner["kind"].as_str()?, owner["name"].as_str()?);
        Some(self.sets.get(&owner).cloned().unwrap_or(owner))
    }

    /// Returns the number of Machines that are coming or going, and of MachinePools whose Nodes are.
    pub(crate) fn in_motion(&self, nodes: &[Arc<Value>]) -> usize {
        let ready: BTreeSet<&str> = nodes.iter().filter(|node| is_ready(node)).map(|node| node.name()).collect();
        let moves = |(group, machine): &&(GroupKey, Arc<Value>)| {
            let has_node = machine.text("/status/nodeRef/name").is_some_and(|node| ready.contains(node));
            self.sizes.contains_key(group) && (machine.deleting() || !has_node)
        };
        let grows_or_shrinks = |(pool, size): &(&GroupKey, &i64)| {
            let is_of =
                |node: &&Arc<Value>| ready.contains(node.name()) && self.of_node.get(node.name()) == Some(*pool);
            pool.0 == "MachinePool" && i64::try_from(nodes.iter().filter(is_of).count()) != Ok(**size)
        };
        self.machines.iter().filter(moves).count() + self.sizes.iter().filter(grows_or_shrinks).count()
    }
}

fn key_of(object: &Value) -> GroupKey {
    (object.kind().to_owned(), object.namespace().to_owned(), object.name().to_owned())
}

/// Returns the id by which Cluster Autoscaler knows a group.
pub(crate) fn id_of((kind, namespace, name): &GroupKey) -> String {
    format!("{kind}/{namespace}/{name}")
}

/// A group that Cluster Autoscaler scales.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(crate) min: i32,
    pub(crate) max: i32,
    /// The Node that the program expects of it.
    template: Option<wire::Node>,
}

pub(crate) async fn served(caller: &Caller) -> anyhow::Result<BTreeMap<String, Served>> {
    let mut served = BTreeMap::new();
    for group in caller.groups().await.context("the program answers no NodeGroups")? {
        // A group without a template scales only once it has a Node.
        let answer = caller.template(&group.id).await.ok();
        let template = answer.map(|answer| wire::Node::decode(answer.node_bytes)).transpose()?;
        served.insert(group.id, Served { min: group.min_size, max: group.max_size, template });
    }
    Ok(served)
}

/// Returns what new Nodes of each group are like, and when they come; groups whose Nodes aren't known have no model.
pub(crate) fn models(
    groups: &Groups,
    nodes: &[Arc<Value>],
    served: &BTreeMap<String, Served>,
    changed: &BTreeSet<GroupKey>,
    machine_time: Option<Duration>,
    speed: u32,
) -> anyhow::Result<(Models, Vec<String>)> {
    let mut by_group: BTreeMap<&GroupKey, Vec<&Arc<Value>>> = BTreeMap::new();
    for node in nodes {
        if let Some(group) = groups.of_node.get(node.name()) {
            by_group.entry(group).or_default().push(node);
        }
    }
    let durations = durations(groups, nodes);
    let of_all = median(durations.values().flatten().copied().collect());
    let (mut models, mut remarks) = (Models::new(), Vec::new());
    for (group, size) in &groups.sizes {
        let nodes = by_group.get(group).map(Vec::as_slice).unwrap_or_default();
        let of_group = served.get(&id_of(group));
        let template = of_group.and_then(|served| served.template.as_ref());
        let of_nodes = model_of_nodes(nodes).filter(|_| !changed.contains(group) || template.is_none());
        let (kind, namespace, name) = group;
        let title = title(kind, namespace, name);
        for (what, of_new, differing) in [
            ("labels", "which new Nodes lack", differing(nodes)),
            ("taints", "of which new Nodes have those of the newest", differing_taints(nodes)),
        ] {
            if of_group.is_some() && of_nodes.is_some() && !differing.is_empty() {
                let keys = differing.into_iter().collect::<Vec<_>>().join(", ");
                remarks.push(format!("{what} that differ among the Nodes of {title}, {of_new}: {keys}"));
            }
        }
        let model = of_nodes.or_else(|| template.map(model_of_template));
        let Some(mut model) = model else {
            if *size > 0 && of_group.is_some() {
                bail!(
                    "{title} has the size {size}, but neither its Nodes are in the manifests nor does anything state what \
                     they are like: add the Nodes of the workload cluster (kubectl get nodes -o yaml), or annotations \
                     capacity.cluster-autoscaler.kubernetes.io/cpu and memory"
                );
            }
            remarks.push(if *size > 0 {
                format!("the {size} Nodes of {title}, which is no node group: the manifests don't have them")
            } else {
                format!(
                    "new Nodes of {title}: nothing states what they are like, so that it doesn't scale from zero. \
                     Nodes that --remember-in keeps aren't read here"
                )
            });
            continue;
        };
        let own = median(durations.get(group).cloned().unwrap_or_default());
        let steps = machine_time.map(split).or(own).or(of_all).unwrap_or_else(|| split(USUAL));
        model.times = Some(times(steps, speed));
        let sets = groups.sets.iter().filter(|(_, of)| *of == group).map(|(set, _)| set.clone());
        for key in sets.chain([group.clone()]) {
            models.insert(key, model.clone());
        }
    }
    Ok((models, remarks))
}

/// The steps of a Machine: until its Node joins, and from then until it is Ready.
type Steps = (Duration, Duration);

fn split(whole: Duration) -> Steps {
    (whole * 5 / 6, whole / 6)
}

fn times((join, ready): Steps, speed: u32) -> Times {
    let zero = Times::ZERO;
    Times { provision: join / speed, ready: ready / speed, terminate: TERMINATE / speed, ..zero }
}

fn median(mut all: Vec<Steps>) -> Option<Steps> {
    all.sort_by_key(|(join, ready)| *join + *ready);
    all.get(all.len() / 2).copied()
}

/// Returns how long the Machines of each group took to become Ready Nodes.
fn durations(groups: &Groups, nodes: &[Arc<Value>]) -> BTreeMap<GroupKey, Vec<Steps>> {
    let by_name: HashMap<&str, &Arc<Value>> = nodes.iter().map(|node| (node.name(), node)).collect();
    let mut durations: BTreeMap<GroupKey, Vec<Steps>> = BTreeMap::new();
    let time = |object: &Value, pointer: &str| object.text(pointer).and_then(|text| text.parse::<Timestamp>().ok());
    let created = |object: &Value| time(object, "/metadata/creationTimestamp");
    for (group, machine) in &groups.machines {
        let node = machine.text("/status/nodeRef/name").and_then(|name| by_name.get(name));
        let Some((began, node)) = created(machine).zip(node) else { continue };
        let Some(joined) = created(node) else { continue };
        let conditions = node.list("/status/conditions").iter();
        let ready = conditions.filter(|it| it["type"] == "Ready").find_map(|it| time(it, "/lastTransitionTime"));
        let seconds = |from: Timestamp, to: Timestamp| to.as_second() - from.as_second();
        let join = seconds(began, joined);
        // A Node that became Ready again later says nothing of its start.
        let ready = ready.map(|ready| seconds(joined, ready)).filter(|ready| (0..=600).contains(ready)).unwrap_or(30);
        if let (1..=LONGEST, Ok(join), Ok(ready)) = (join, u64::try_from(join), u64::try_from(ready)) {
            let steps = (Duration::from_secs(join), Duration::from_secs(ready));
            durations.entry(group.clone()).or_default().push(steps);
        }
    }
    durations
}

/// Returns the labels in which the Nodes of a group differ.
fn differing<'a>(nodes: &[&'a Arc<Value>]) -> BTreeSet<&'a str> {
    let labels = |node: &'a Arc<Value>| node["metadata"]["labels"].as_object().into_iter().flatten();
    let keys = nodes.iter().copied().flat_map(labels).map(|(key, _)| key.as_str());
    let mut differing: BTreeSet<&str> = keys.filter(|key| *key != HOSTNAME).collect();
    differing.retain(|key| nodes.iter().any(|node| node.label(key) != nodes[0].label(key)));
    differing
}

/// Returns the taints that only some Nodes of a group have.
fn differing_taints<'a>(nodes: &[&'a Arc<Value>]) -> BTreeSet<&'a str> {
    let is_same = |one: &Value, other: &Value| ["key", "value", "effect"].iter().all(|it| one[*it] == other[*it]);
    let has = |node: &Value, taint: &Value| node.list("/spec/taints").iter().any(|one| is_same(one, taint));
    let all = nodes.iter().copied().flat_map(|node| node.list("/spec/taints"));
    let differs = |taint: &&Value| !passes(taint) && !nodes.iter().all(|node| has(node, taint));
    all.filter(differs).filter_map(|taint| taint["key"].as_str()).collect()
}

fn passes(taint: &Value) -> bool {
    let key = taint["key"].as_str().unwrap_or_default();
    PASSING.iter().any(|prefix| key.starts_with(prefix))
}

/// Returns a model of the newest Ready Node, with the labels that all Nodes of the group have.
fn model_of_nodes(nodes: &[&Arc<Value>]) -> Option<Model> {
    let ready = nodes.iter().filter(|node| is_ready(node));
    let newest = ready.max_by_key(|node| node.text("/metadata/creationTimestamp").unwrap_or_default().to_owned())?;
    let map = |pointer: &str| newest.pointer(pointer).and_then(Value::as_object).cloned().unwrap_or_default();
    let mut labels = map("/metadata/labels");
    let differing = differing(nodes);
    labels.retain(|key, _| key != HOSTNAME && !differing.contains(key.as_str()));
    let taints = newest.list("/spec/taints").iter().filter(|taint| !passes(taint)).cloned().collect();
    let (capacity, allocatable, info) = (map("/status/capacity"), map("/status/allocatable"), map("/status/nodeInfo"));
    Some(Model { labels, taints, capacity, allocatable, info, times: None })
}

fn model_of_template(node: &wire::Node) -> Model {
    let metadata = node.metadata.clone().unwrap_or_default();
    let labels = metadata.labels.into_iter().filter(|(key, _)| key != HOSTNAME);
    let taint = |taint: &wire::Taint| {
        let mut value = json!({"key": taint.key, "effect": taint.effect});
        if let Some(text) = taint.value.as_deref().filter(|text| !text.is_empty()) {
            value["value"] = json!(text);
        }
        value
    };
    let taints = node.spec.iter().flat_map(|spec| &spec.taints).map(taint).filter(|taint| !passes(taint));
    let status = node.status.clone().unwrap_or_default();
    let texts = |list: BTreeMap<String, Quantity>| -> Map<String, Value> {
        list.into_iter().map(|(resource, it)| (resource, json!(it.string.unwrap_or_default()))).collect()
    };
    Model {
        labels: labels.map(|(key, value)| (key, json!(value))).collect(),
        taints: taints.collect(),
        capacity: texts(status.capacity),
        allocatable: texts(status.allocatable),
        info: Map::new(),
        times: None,
    }
}

/// Returns what a Node of a group costs per hour, as the program answers it; `None` if it has no price.
pub(crate) async fn price(caller: &Caller, id: &str, node: Option<&Value>, served: &Served) -> Option<f64> {
    let node = if let Some(node) = node {
        ExternalGrpcNode {
            name: node.name().to_owned(),
            provider_id: node.text("/spec/providerID").unwrap_or_default().to_owned(),
            labels: texts(&node["metadata"]["labels"]).into_iter().collect(),
            annotations: texts(&node["metadata"]["annotations"]).into_iter().collect(),
        }
    } else {
        let metadata = served.template.as_ref()?.metadata.clone().unwrap_or_default();
        ExternalGrpcNode {
            // As Cluster Autoscaler names the Nodes that it simulates.
            name: format!("template-node-for-{id}-1"),
            provider_id: String::new(),
            labels: metadata.labels.into_iter().collect(),
            annotations: metadata.annotations.into_iter().collect(),
        }
    };
    let time = |seconds| Some(prost_types::Timestamp { seconds, nanos: 0 });
    let request = PricingNodePriceRequest {
        node: Some(node),
        start_timestamp: time(0),
        end_timestamp: time(3600),
        ..PricingNodePriceRequest::default()
    };
    caller.node_price(request).await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, created: &str, labels: &Value) -> Arc<Value> {
        Arc::new(json!({
            "kind": "Node",
            "metadata": {"name": name, "creationTimestamp": created, "labels": labels},
            "spec": {"taints": [
                {"key": "dedicated", "value": "batch", "effect": "NoSchedule"},
                {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"},
            ]},
            "status": {
                "capacity": {"cpu": "4"}, "allocatable": {"cpu": "3900m"}, "nodeInfo": {"architecture": "arm64"},
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:03:20Z"}],
            },
        }))
    }

    #[test]
    fn a_model_has_what_the_nodes_of_a_group_share() {
        let nodes = [
            node("a", "2026-01-01T00:02:00Z", &json!({HOSTNAME: "a", "disk": "ssd", "id": "1"})),
            node("b", "2026-01-01T00:03:00Z", &json!({HOSTNAME: "b", "disk": "ssd", "id": "2", "zone": "z"})),
        ];
        let nodes = nodes.iter().collect::<Vec<_>>();
        assert_eq!(differing(&nodes), BTreeSet::from(["id", "zone"]));
        let model = model_of_nodes(&nodes).unwrap();
        assert_eq!(Value::Object(model.labels), json!({"disk": "ssd"}));
        assert_eq!(model.taints, [json!({"key": "dedicated", "value": "batch", "effect": "NoSchedule"})]);
        assert_eq!(model.allocatable["cpu"], "3900m");
        assert_eq!(model.info["architecture"], "arm64");
    }

    #[test]
    fn taints_that_pass_are_not_those_of_new_nodes_and_others_that_differ_are_known() {
        let mut older = node("a", "2026-01-01T00:02:00Z", &json!({}));
        let mut newest = node("b", "2026-01-01T00:03:00Z", &json!({}));
        for (node, key) in
            [(&mut older, "maintenance"), (&mut newest, "startup-taint.cluster-autoscaler.kubernetes.io/agent")]
        {
            let taints = Arc::make_mut(node)["spec"]["taints"].as_array_mut().unwrap();
            taints.push(json!({"key": key, "effect": "NoSchedule"}));
        }
        let nodes = [older, newest];
        let nodes = nodes.iter().collect::<Vec<_>>();
        assert_eq!(differing_taints(&nodes), BTreeSet::from(["maintenance"]));
        let stay = [json!({"key": "dedicated", "value": "batch", "effect": "NoSchedule"})];
        assert_eq!(model_of_nodes(&nodes).unwrap().taints, stay);
    }

    #[test]
    fn a_pool_is_in_motion_until_it_has_its_nodes() {
        let pool = ("MachinePool".to_owned(), "n".to_owned(), "spot".to_owned());
        let mut groups = Groups { of_node: HashMap::from([("a".to_owned(), pool.clone())]), ..Groups::default() };
        let nodes = [node("a", "2026-01-01T00:03:00Z", &json!({})), node("b", "2026-01-01T00:03:00Z", &json!({}))];
        groups.sizes.insert(pool.clone(), 2);
        assert_eq!(groups.in_motion(&nodes), 1);
        groups.of_node.insert("b".to_owned(), pool);
        assert_eq!(groups.in_motion(&nodes), 0);
    }

    #[test]
    fn machines_take_as_long_as_those_of_the_dump_did() {
        let group = ("MachineDeployment".to_owned(), "n".to_owned(), "workers".to_owned());
        let machine =
            json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}, "status": {"nodeRef": {"name": "b"}}});
        let groups = Groups { machines: vec![(group.clone(), Arc::new(machine))], ..Groups::default() };
        let nodes = [node("b", "2026-01-01T00:03:00Z", &json!({}))];
        let steps = median(durations(&groups, &nodes)[&group].clone()).unwrap();
        assert_eq!(steps, (Duration::from_secs(180), Duration::from_secs(20)));
        let times = times(steps, 10);
        assert_eq!((times.provision, times.ready), (Duration::from_secs(18), Duration::from_secs(2)));
    }
}
