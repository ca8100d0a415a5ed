//! The workload cluster: Nodes and Pods, read and written as Cluster Autoscaler does; their parts that are modelled (CPUs,
//! labels and taints), and the free capacity on which Pods are placed.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result};
use k8s_openapi::{
    api::core::v1::{Node as CoreNode, Pod, Taint},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use k8s_pb::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// The time for which a conflicting taint write is retried, and the interval.
const CONFLICTS: (Duration, Duration) = (Duration::from_secs(5), Duration::from_millis(50));

/// A workload cluster, or one namespace's view of it.
#[derive(Clone)]
pub struct Workload {
    client: Client,
    namespace: Option<String>,
}

impl Workload {
    /// Creates a view of all Pods and Nodes.
    pub fn new(client: Client) -> Self {
        Self { client, namespace: None }
    }

    /// Creates a view of the Pods of one namespace, and of as few Nodes of other namespaces as a shared cluster allows.
    pub fn of_namespace(client: Client, namespace: &str) -> Self {
        Self { client, namespace: Some(namespace.to_owned()) }
    }

    pub(super) fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    pub(super) async fn nodes(&self) -> Result<Vec<CoreNode>> {
        let listed = self.nodes_api().list(&ListParams::default()).await;
        Ok(listed.context("listing Nodes")?.items)
    }

    pub(super) async fn pods(&self) -> Result<Vec<Pod>> {
        let pods = match &self.namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        };
        Ok(pods.list(&ListParams::default()).await.context("listing Pods")?.items)
    }

    fn nodes_api(&self) -> Api<CoreNode> {
        Api::all(self.client.clone())
    }

    /// Adds or removes the deletion taint of a Node. Retries conflicts with other writers for a short time.
    pub(super) async fn taint(&self, name: &str, on: bool) -> Result<()> {
        let (patience, pause) = CONFLICTS;
        let end = Instant::now() + patience;
        loop {
            match self.try_taint(name, on).await {
                Err(kube::Error::Api(status)) if status.is_conflict() && Instant::now() < end => sleep(pause).await,
                written => return written.with_context(|| format!("tainting Node {name}")),
            }
        }
    }

    async fn try_taint(&self, name: &str, on: bool) -> Result<(), kube::Error> {
        let node = self.nodes_api().get(name).await?;
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
        let has = taints.iter().any(|taint| taint.key == TO_BE_DELETED);
        if has == on {
            return Ok(());
        }
        let others = taints.into_iter().filter(|taint| taint.key != TO_BE_DELETED);
        let mut taints: Vec<Value> = others.map(|taint| json!(taint)).collect();
        if on {
            let since = seconds_since_epoch().to_string();
            taints.push(json!({ "key": TO_BE_DELETED, "value": since, "effect": "NoSchedule" }));
        }
        let version = node.metadata.resource_version;
        let patch = json!({ "metadata": { "resourceVersion": version }, "spec": { "taints": taints } });
        self.nodes_api().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Evicts a Pod. One that is already gone counts as evicted.
    pub(super) async fn evict(&self, pod: &Pod) -> Result<()> {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let preconditions = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match Api::<Pod>::namespaced(self.client.clone(), namespace).delete(name, &parameters).await {
            // A conflict means another Pod of the same name: the uid differs.
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
            deleted => deleted.map(drop).with_context(|| format!("evicting Pod {name}")),
        }
    }
}

/// The taint that keeps new Pods off a Node that is about to be deleted.
pub const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";

/// The taint of a Node until Cluster API has set its labels: until then it doesn't represent its group.
pub const UNINITIALIZED: &str = "node.cluster.x-k8s.io/uninitialized";

/// The annotation of a Pod that allows or forbids its eviction, whatever its controller.
const SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";

/// The age from which a deletion taint is ignored.
const DELETION: Duration = Duration::from_secs(300);

/// A CPU quantity in millicores.
pub type Cpu = i64;

/// Returns true if the scheduler has found no Node for a Pod.
pub fn is_unschedulable(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| {
        condition.type_ == "PodScheduled"
            && condition.status == "False"
            && condition.reason.as_deref() == Some("Unschedulable")
    })
}

/// Returns true if a Node is Ready and has neither the taint not-ready nor uninitialized.
pub fn is_ready(node: &CoreNode) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.into_iter().flatten().any(|one| one.type_ == "Ready" && one.status == "True");
    ready && !has_taint(node, "node.kubernetes.io/not-ready") && !has_taint(node, UNINITIALIZED)
}

pub(super) fn is_leaving(node: &CoreNode) -> bool {
    has_taint(node, TO_BE_DELETED)
}

/// Returns true if a Node was tainted for deletion recently, so that its deletion is under way.
pub(super) fn is_being_deleted(node: &CoreNode) -> bool {
    let taint = taints(node).find(|taint| taint.key == TO_BE_DELETED);
    let since = taint.and_then(|taint| taint.value.as_ref()?.parse::<i64>().ok());
    since.is_some_and(|since| seconds_since_epoch() - since < DELETION.as_secs().cast_signed())
}

fn has_taint(node: &CoreNode, key: &str) -> bool {
    taints(node).any(|taint| taint.key == key)
}

fn taints(node: &CoreNode) -> impl Iterator<Item = &Taint> {
    node.spec.iter().filter_map(|spec| spec.taints.as_ref()).flatten()
}

/// Returns the wall clock, with which taints and creation times are compared.
pub(super) fn seconds_since_epoch() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs().cast_signed())
}

pub(super) fn is_younger(metadata: &ObjectMeta, than: Duration) -> bool {
    let created = metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second());
    created + than.as_secs().cast_signed() > seconds_since_epoch()
}

/// Returns true if a Pod may be evicted: by its annotation, or else if it has a controller, which replaces it.
pub(super) fn is_movable(pod: &Pod) -> bool {
    match pod.metadata.annotations.as_ref().and_then(|all| all.get(SAFE_TO_EVICT)).map(String::as_str) {
        Some("true") => true,
        Some("false") => false,
        Some(_) | None => pod.metadata.owner_references.iter().flatten().any(|owner| owner.controller == Some(true)),
    }
}

/// The effect of a taint that keeps no Pod off.
const MILD: &str = "PreferNoSchedule";

/// The properties of a Node that decide which Pods fit.
#[derive(Clone, Debug)]
pub struct Shape {
    /// The labels.
    pub labels: BTreeMap<String, String>,
    /// The keys of the taints that keep Pods off it.
    pub taints: Vec<String>,
    /// The allocatable CPU.
    pub cpu: Cpu,
}

/// The shape of a template.
impl From<&Node> for Shape {
    fn from(template: &Node) -> Self {
        let labels = template.metadata.clone().unwrap_or_default().labels.into_iter().collect();
        let taints = template.spec.iter().flat_map(|spec| &spec.taints);
        let taints = taints.filter(|taint| taint.effect.as_deref() != Some(MILD)).filter_map(|taint| taint.key.clone());
        let cpu = template.status.as_ref().and_then(|status| status.allocatable.get("cpu")?.string.as_deref());
        Self { labels, taints: taints.collect(), cpu: cpu.map_or(0, milli) }
    }
}

/// The shape of an existing Node.
impl From<&CoreNode> for Shape {
    fn from(node: &CoreNode) -> Self {
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        Self {
            labels: node.metadata.labels.clone().unwrap_or_default(),
            taints: taints(node).filter(|taint| taint.effect != MILD).map(|taint| taint.key.clone()).collect(),
            cpu: allocatable.and_then(|resources| resources.get("cpu")).map_or(0, |cpu| milli(&cpu.0)),
        }
    }
}

/// Returns true if the Pod would fit on an empty Node of this shape.
pub fn fits(pod: &Pod, shape: &Shape) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let mut chosen = spec.node_selector.iter().flatten();
    let tolerates =
        |key: &String| spec.tolerations.iter().flatten().any(|toleration| toleration.key.as_ref() == Some(key));
    chosen.all(|(key, value)| shape.labels.get(key) == Some(value))
        && shape.taints.iter().all(tolerates)
        && asks_for(pod) <= shape.cpu
}

/// Returns the number of Nodes of this size that the Pods need, and the CPU left over on them.
pub(super) fn new_nodes(pods: &[&Pod], size: Cpu) -> (usize, Cpu) {
    let mut bins: Vec<Cpu> = Vec::new();
    for pod in pods {
        let cpu = asks_for(pod);
        match bins.iter_mut().find(|bin| **bin >= cpu) {
            Some(bin) => *bin -= cpu,
            None => bins.push(size - cpu),
        }
    }
    (bins.len(), bins.iter().sum())
}

pub(super) fn used(node: &CoreNode, pods: &[Pod]) -> Cpu {
    pods.iter().filter(|pod| is_on(pod, node)).map(asks_for).sum()
}

/// Returns true if a Pod is bound to a Node and hasn't ended.
pub(super) fn is_on(pod: &Pod, node: &CoreNode) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    if matches!(phase, Some("Succeeded" | "Failed")) {
        return false;
    }
    let on = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
    on.is_some() && on == node.metadata.name.as_ref()
}

/// Returns the CPU requests of a Pod.
pub fn asks_for(pod: &Pod) -> Cpu {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let cpu = containers.filter_map(|container| container.resources.as_ref()?.requests.as_ref()?.get("cpu"));
    cpu.map(|cpu| milli(&cpu.0)).sum()
}

/// Parses the two CPU notations in use here.
fn milli(text: &str) -> Cpu {
    match text.strip_suffix('m') {
        Some(milli) => milli.parse().unwrap_or_default(),
        None => text.parse::<Cpu>().unwrap_or_default() * 1000,
    }
}

/// A Node with its free CPU. An upcoming one has no name.
#[derive(Clone, Debug)]
struct NodeInfo {
    node: Option<String>,
    shape: Shape,
    left: Cpu,
}

/// The free capacity of all Nodes.
#[derive(Clone, Debug, Default)]
pub(super) struct ClusterSnapshot(Vec<NodeInfo>);

impl ClusterSnapshot {
    /// Adds a Node with the Pods on it. A Node that isn't Ready is left out, since Kubernetes taints it.
    pub(super) fn add(&mut self, node: &CoreNode, pods: &[Pod]) {
        if !is_ready(node) {
            return;
        }
        let shape = Shape::from(node);
        let left = shape.cpu - used(node, pods);
        self.0.push(NodeInfo { node: node.metadata.name.clone(), shape, left });
    }

    pub(super) fn add_coming(&mut self, shape: &Shape, count: usize) {
        let node_info = NodeInfo { node: None, left: shape.cpu, shape: shape.clone() };
        self.0.extend(vec![node_info; count]);
    }

    /// Places a Pod. Returns true if it fits.
    pub(super) fn place(&mut self, pod: &Pod) -> bool {
        let cpu = asks_for(pod);
        match self.0.iter_mut().find(|node_info| fits(pod, &node_info.shape) && cpu <= node_info.left) {
            Some(node_info) => {
                node_info.left -= cpu;
                true
            }
            None => false,
        }
    }

    /// Places all Pods of a Node on other Nodes and removes the Node. Returns true if all fit; otherwise changes
    /// nothing.
    pub(super) fn vacate(&mut self, node: &str, pods: &[&Pod]) -> bool {
        let mut snapshot = self.clone();
        snapshot.0.retain(|node_info| node_info.node.as_deref() != Some(node));
        let placed = pods.iter().all(|pod| snapshot.place(pod));
        if placed {
            *self = snapshot;
        }
        placed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(name: &str, cpu: &str) -> CoreNode {
        let ready = json!([{ "type": "Ready", "status": "True" }]);
        let status = json!({ "allocatable": { "cpu": cpu }, "conditions": ready });
        serde_json::from_value(json!({ "metadata": { "name": name }, "status": status })).unwrap_or_default()
    }

    fn pod(node: &str, cpu: &str) -> Pod {
        let container = json!({ "name": "a", "resources": { "requests": { "cpu": cpu } } });
        let pod = json!({ "spec": { "nodeName": node, "containers": [container] } });
        serde_json::from_value(pod).unwrap_or_default()
    }

    #[test]
    fn a_node_that_is_not_ready_takes_no_pod() {
        let mut left_over = node("left-over", "4");
        left_over.status.as_mut().unwrap().conditions = None;
        let mut snapshot = ClusterSnapshot::default();
        snapshot.add(&left_over, &[]);
        assert!(!snapshot.place(&pod("", "1")), "it would wait for ever, and no scale-up would be made for it");
    }

    #[test]
    fn nodes_are_vacated_as_long_as_their_pods_fit_on_others() {
        let pods = [pod("a", "1"), pod("b", "1"), pod("c", "3500m")];
        let mut snapshot = ClusterSnapshot::default();
        for name in ["a", "b", "c"] {
            snapshot.add(&node(name, "4"), &pods);
        }
        assert!(!snapshot.vacate("c", &[&pods[2]]), "it doesn't fit beside another");
        assert!(snapshot.vacate("a", &[&pods[0]]), "it fits on b");
        assert!(!snapshot.vacate("b", &[&pods[0], &pods[1]]), "a takes no more");
        assert!(snapshot.place(&pod("", "2")));
        assert!(!snapshot.place(&pod("", "1")));
    }
}
