//! The workloads of the workload cluster: Deployments that come, grow, shrink and go in bursts and quiet times, with a
//! minimal scheduler and kubelets. They must not depend on the program.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::Result;
use connect::Policy;
use fastrand::Rng;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    core::Status,
};
use parking_lot::Mutex;
use sandbox::autoscaler::{Cpu, Shape, asks_for, fits, is_ready, is_unschedulable};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    actor::{self, Script},
    entropy::{self, Nanos, SECOND},
    network::Port,
    plan::Chance,
};

const NAMESPACE: &str = "apps";
/// The max number of Deployments, and of replicas in one.
const MOST: (usize, u32) = (6, 5);

/// A Pod that fits on no Node.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    /// The time since when.
    pub(crate) since: Nanos,
    pub(crate) cpu: Cpu,
    pub(crate) selector: BTreeMap<String, String>,
}

/// The Pods that fit on no Node, by name. The world reads it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waitlist(Arc<Mutex<BTreeMap<String, Waiting>>>);

impl Waitlist {
    /// Returns the Pods that have been waiting for at least so long.
    pub(crate) fn for_longer_than(&self, time: Nanos, now: Nanos) -> BTreeMap<String, Waiting> {
        let mut waiting = self.0.lock().clone();
        waiting.retain(|_, one| now.saturating_sub(one.since) >= time);
        waiting
    }

    /// Replaces the Pods. Known ones keep their time.
    fn set(&self, waiting: BTreeMap<String, Waiting>) {
        let mut known = self.0.lock();
        let old = std::mem::replace(&mut *known, waiting);
        for (name, one) in known.iter_mut() {
            if let Some(old) = old.get(name) {
                one.since = old.since;
            }
        }
    }
}

/// A set of identical Pods.
struct Deployment {
    name: String,
    replicas: u32,
    cpu: Cpu,
    selector: BTreeMap<String, String>,
}

struct Workloads {
    pods: Api<Pod>,
    nodes: Api<Node>,
    port: Port,
    pools: Vec<BTreeMap<String, String>>,
    deployments: Vec<Deployment>,
    made: u64,
    waitlist: Waitlist,
}

/// Runs until the host ends. `pools` are the labels by which Pods may select Nodes of one group. Once it is quiet, the
/// Deployments stay as they are.
pub(crate) async fn run(
    port: Port,
    seed: u64,
    pools: Vec<BTreeMap<String, String>>,
    script: Script,
    waitlist: Waitlist,
) {
    let chance = Chance::new(seed);
    let client: Client = port.workload(Policy::WRITES);
    let mut workloads = Workloads {
        pods: Api::namespaced(client.clone(), NAMESPACE),
        nodes: Api::all(client),
        port,
        pools,
        deployments: Vec::new(),
        made: 0,
        waitlist,
    };
    while let Err(error) = actor::make_namespace(&Api::all(workloads.port.workload(Policy::WRITES)), NAMESPACE).await {
        workloads.port.note(format!("workloads: {error:#}"));
        sleep(Duration::from_secs(1)).await;
    }
    let (mut next, mut changes) = (0, 0);
    for ordinal in 0.. {
        if entropy::now() >= next && !script.is_quiet() {
            let mut draw = chance.of("workloads", 0, changes);
            if script.has("workloads", changes) {
                workloads.change(&mut draw);
            }
            let is_burst = chance.of("workloads' phase", 0, entropy::now() / (300 * SECOND)).bool();
            let seconds = if is_burst { draw.u64(2..30) } else { draw.u64(60..240) };
            (next, changes) = (entropy::now() + seconds * SECOND, changes + 1);
        }
        if let Err(error) = workloads.reconcile().await {
            workloads.port.note(format!("workloads: {error:#}"));
        }
        let mut draw = chance.of("workloads' tick", 0, ordinal);
        sleep(Duration::from_millis(draw.u64(1000..7000))).await;
    }
}

impl Workloads {
    fn change(&mut self, draw: &mut Rng) {
        let count = self.deployments.len();
        let (most, replicas) = MOST;
        match draw.u32(0..10) {
            0..4 if count < most => {
                let cpu = draw.choice([250, 500, 1000, 1500, 2500, 3500]).unwrap_or(500);
                let selector = if draw.bool() { draw.choice(&self.pools).cloned() } else { None };
                let deployment = Deployment {
                    name: format!("app-{}", self.made),
                    replicas: draw.u32(1..=replicas),
                    cpu,
                    selector: selector.unwrap_or_default(),
                };
                self.made += 1;
                self.note(&deployment);
                self.deployments.push(deployment);
            }
            0..8 if count > 0 => {
                let which = draw.usize(0..count);
                self.deployments[which].replicas = draw.u32(0..=replicas);
                self.note(&self.deployments[which]);
            }
            _ if count > 0 => {
                let gone = self.deployments.remove(draw.usize(0..count));
                self.port.note(format!("workloads: {} goes", gone.name));
            }
            _ => {}
        }
    }

    fn note(&self, deployment: &Deployment) {
        let Deployment { name, replicas, cpu, selector } = deployment;
        self.port.note(format!("workloads: {name} is to have {replicas} of {cpu}m {selector:?}"));
    }

    /// Catches up with the work of controllers, the scheduler and kubelets since the last call.
    async fn reconcile(&mut self) -> Result<()> {
        let mut pods = self.pods.list(&ListParams::default()).await?.items;
        let nodes = self.nodes.list(&ListParams::default()).await?.items;
        let exists = |node: &str| nodes.iter().any(|one| one.metadata.name.as_deref() == Some(node));
        let (gone, left): (Vec<Pod>, Vec<Pod>) = pods.drain(..).partition(|pod| {
            let has_node = node_of(pod).is_none_or(exists);
            pod.metadata.deletion_timestamp.is_some() || !has_node
        });
        for pod in &gone {
            self.remove(pod).await?;
        }
        let left = self.count(left).await?;
        self.schedule(left, &nodes).await
    }

    /// Creates missing Pods and removes surplus ones. Returns the remaining ones.
    async fn count(&mut self, pods: Vec<Pod>) -> Result<Vec<Pod>> {
        let mut by_owner: BTreeMap<String, Vec<Pod>> = BTreeMap::new();
        for pod in pods {
            let owner = pod.metadata.labels.as_ref().and_then(|labels| labels.get("app")).cloned();
            by_owner.entry(owner.unwrap_or_default()).or_default().push(pod);
        }
        let mut staying = Vec::new();
        for deployment in &self.deployments {
            let mut pods = by_owner.remove(&deployment.name).unwrap_or_default();
            let wanted = usize::try_from(deployment.replicas)?;
            // Pending Pods are removed first.
            pods.sort_by_key(|pod| node_of(pod).is_none());
            for pod in pods.split_off(pods.len().min(wanted)) {
                self.evict(&pod).await?;
            }
            for _ in pods.len()..wanted {
                self.made += 1;
                let pod = self.pods.create(&PostParams::default(), &pod_of(deployment, self.made)?).await?;
                pods.push(pod);
            }
            staying.extend(pods);
        }
        for pod in by_owner.into_values().flatten() {
            self.evict(&pod).await?;
        }
        Ok(staying)
    }

    /// Binds Pods to the Nodes with the most free CPU, and marks those that fit on none.
    async fn schedule(&self, pods: Vec<Pod>, nodes: &[Node]) -> Result<()> {
        let mut nodes_left: Vec<(&str, Shape, Cpu)> = Vec::new();
        for node in nodes.iter().filter(|node| is_ready(node)) {
            let (name, shape) = (node.metadata.name.as_deref().unwrap_or_default(), Shape::from(node));
            let used: Cpu = pods.iter().filter(|pod| node_of(pod) == Some(name)).map(asks_for).sum();
            let left = shape.cpu - used;
            nodes_left.push((name, shape, left));
        }
        let mut waiting = BTreeMap::new();
        let mut first_error = Ok(());
        for pod in pods.iter().filter(|pod| node_of(pod).is_none()) {
            let cpu = asks_for(pod);
            let fitting = nodes_left.iter_mut().filter(|(_, shape, left)| cpu <= *left && fits(pod, shape));
            let name = pod.metadata.name.clone().unwrap_or_default();
            let written = match fitting.max_by_key(|(_, _, left)| *left) {
                Some((node, _, left)) => {
                    *left -= cpu;
                    self.bind(&name, node).await
                }
                None => {
                    let selector = pod.spec.as_ref().and_then(|spec| spec.node_selector.clone()).unwrap_or_default();
                    waiting.insert(name.clone(), Waiting { since: entropy::now(), cpu, selector });
                    if is_unschedulable(pod) { Ok(()) } else { self.mark(&name).await }
                }
            };
            first_error = first_error.and(written);
        }
        self.waitlist.set(waiting);
        first_error
    }

    async fn bind(&self, name: &str, node: &str) -> Result<()> {
        let bound = json!({ "spec": { "nodeName": node } });
        self.pods.patch(name, &PatchParams::default(), &Patch::Merge(bound)).await?;
        let condition = json!({ "type": "PodScheduled", "status": "True" });
        self.write_status(name, json!({ "phase": "Running", "conditions": [condition] })).await
    }

    async fn mark(&self, name: &str) -> Result<()> {
        let condition = json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable" });
        self.write_status(name, json!({ "phase": "Pending", "conditions": [condition] })).await
    }

    async fn write_status(&self, name: &str, status: Value) -> Result<()> {
        let patch = Patch::Merge(json!({ "status": status }));
        self.pods.patch_status(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Deletes a Pod as its controller does: its kubelet has some time.
    async fn evict(&self, pod: &Pod) -> Result<()> {
        self.delete(pod, &DeleteParams::default()).await
    }

    /// Deletes a Pod as its kubelet does once it has ended.
    async fn remove(&self, pod: &Pod) -> Result<()> {
        self.delete(pod, &DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() }).await
    }

    async fn delete(&self, pod: &Pod, parameters: &DeleteParams) -> Result<()> {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        actor::tolerate(self.pods.delete(name, parameters).await, Status::is_not_found)
    }
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

fn pod_of(deployment: &Deployment, number: u64) -> Result<Pod> {
    let name = format!("{}-{number}", deployment.name);
    Ok(serde_json::from_value(json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": { "app": deployment.name },
            // Needed because its owner isn't on the API.
            "annotations": { "cluster-autoscaler.kubernetes.io/safe-to-evict": "true" },
        },
        "spec": {
            "nodeSelector": deployment.selector,
            "terminationGracePeriodSeconds": 5,
            "containers": [{
                "name": "app",
                "image": "registry.k8s.io/pause:3.10",
                "resources": { "requests": { "cpu": format!("{}m", deployment.cpu) } },
            }],
        },
    }))?)
}
