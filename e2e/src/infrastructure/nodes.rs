//! Nodes of the workload cluster, as kubelets register them and kube-controller-manager completes them, and their Pods.

use std::sync::Arc;

use anyhow::{Context, Result};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use kube_runtime::{
    controller::{Action, Controller},
    watcher,
};
use serde_json::{Value, json};

use super::{AGAIN, Failure, World};

const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// The taint that kubelets are configured to register with, until Cluster API has set its labels on the Node.
const UNINITIALIZED: &str = "node.cluster.x-k8s.io/uninitialized";

/// A Node to be registered.
pub(super) struct NewNode {
    pub(super) name: String,
    pub(super) provider_id: String,
    /// The capacity; null means a default.
    pub(super) capacity: Value,
    /// The CPU that is left to Pods; null means all of it.
    pub(super) allocatable_cpu: Value,
    /// The labels in its kubelet's configuration.
    pub(super) labels: Value,
}

/// Registers a Node that is not ready, unless it exists. The API server taints it, and so does its kubelet.
pub(super) async fn register(client: &Client, new: &NewNode) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    if nodes.get_opt(&new.name).await?.is_some() {
        return Ok(());
    }
    let mut labels = json!({
        "kubernetes.io/hostname": new.name,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
    });
    for (key, value) in new.labels.as_object().into_iter().flatten() {
        labels[key] = value.clone();
    }
    let node = json!({
        "metadata": { "name": new.name, "labels": labels },
        "spec": {
            "providerID": new.provider_id,
            "taints": [{ "key": UNINITIALIZED, "effect": "NoSchedule" }],
        },
    });
    let what = || format!("registering Node {}", new.name);
    let node = serde_json::from_value(node).with_context(what)?;
    nodes.create(&PostParams::default(), &node).await.with_context(what)?;
    let mut capacity = json!({ "cpu": "4", "memory": "16Gi", "pods": "110" });
    for (resource, quantity) in new.capacity.as_object().into_iter().flatten() {
        capacity[resource] = quantity.clone();
    }
    let mut allocatable = capacity.clone();
    if new.allocatable_cpu.is_string() {
        allocatable["cpu"] = new.allocatable_cpu.clone();
    }
    let status = json!({
        "capacity": capacity,
        "allocatable": allocatable,
        "nodeInfo": {
            "architecture": "amd64",
            "operatingSystem": "linux",
            "kubeletVersion": "v1.36.3",
            "kubeProxyVersion": "",
            "containerRuntimeVersion": "",
            "kernelVersion": "",
            "osImage": "",
            "bootID": "",
            "machineID": "",
            "systemUUID": "",
        },
        "conditions": conditions(false),
    });
    write_status(&nodes, &new.name, status).await
}

/// Makes a Node ready, and removes its not-ready taint. A deleted Node stays deleted.
pub(super) async fn become_ready(client: &Client, name: &str) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let Some(node) = nodes.get_opt(name).await? else { return Ok(()) };
    let known = node.status.and_then(|status| status.conditions).unwrap_or_default();
    if !known.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True") {
        write_status(&nodes, name, json!({ "conditions": conditions(true) })).await?;
    }
    let mut taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
    if taints.iter().any(|taint| taint.key == NOT_READY) {
        taints.retain(|taint| taint.key != NOT_READY);
        // Cluster API writes taints too.
        let version = node.metadata.resource_version;
        let patch = json!({ "metadata": { "resourceVersion": version }, "spec": { "taints": taints } });
        let patched = nodes.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.with_context(|| format!("taking the taint off Node {name}"))?;
    }
    Ok(())
}

/// Deletes a Node, if it exists.
pub(super) async fn remove(client: &Client, name: &str) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    if nodes.get_opt(name).await?.is_some() {
        nodes.delete(name, &DeleteParams::default()).await?;
    }
    Ok(())
}

async fn write_status(nodes: &Api<Node>, name: &str, status: Value) -> Result<()> {
    let patch = Patch::Merge(json!({ "status": status }));
    let patched = nodes.patch_status(name, &PatchParams::default(), &patch).await;
    patched.with_context(|| format!("writing the status of Node {name}"))?;
    Ok(())
}

fn conditions(ready: bool) -> Value {
    let condition = |kind: &str, status: bool, reason: &str| json!({ "type": kind, "status": if status { "True" } else { "False" }, "reason": reason });
    json!([
        condition("Ready", ready, if ready { "KubeletReady" } else { "KubeletNotReady" }),
        condition("MemoryPressure", false, "KubeletHasSufficientMemory"),
        condition("DiskPressure", false, "KubeletHasNoDiskPressure"),
        condition("PIDPressure", false, "KubeletHasSufficientPID"),
    ])
}

/// Runs the kubelets of all Nodes: Pods bound to one run at once, and end at once when they are deleted.
pub(super) async fn run_pods(world: Arc<World>) {
    let pods: Api<Pod> = Api::all(world.settings.workload.clone());
    let retry = |_: Arc<Pod>, _: &Failure, _: Arc<World>| Action::requeue(AGAIN);
    let controller = Controller::new(pods, watcher::Config::default());
    controller.run(reconcile, retry, world).for_each(|_| std::future::ready(())).await;
}

async fn reconcile(pod: Arc<Pod>, world: Arc<World>) -> Result<Action, Failure> {
    bring_on(&pod, &world).await.map_err(Failure)?;
    Ok(Action::await_change())
}

async fn bring_on(pod: &Pod, world: &World) -> Result<()> {
    let bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    let pods: Api<Pod> = Api::namespaced(world.settings.workload.clone(), &pod.namespace().unwrap_or_default());
    let name = pod.name_any();
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    if !bound {
        return Ok(());
    }
    if pod.metadata.deletion_timestamp.is_some() {
        let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        // The Pod may be gone already.
        return match pods.delete(&name, &at_once).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            other => other.map(drop).map_err(Into::into),
        };
    }
    if phase == Some("Pending") {
        let status = json!({ "status": {
            "phase": "Running",
            "conditions": [{ "type": "Ready", "status": "True" }],
        } });
        pods.patch_status(&name, &PatchParams::default(), &Patch::Strategic(status)).await?;
    }
    Ok(())
}
