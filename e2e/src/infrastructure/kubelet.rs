//! The kubelets of all Nodes: Pods bound to one run at once, and end at once when they are deleted.

use std::sync::Arc;

use anyhow::Result;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams},
};
use kube_runtime::{
    controller::{Action, Controller},
    watcher,
};
use serde_json::json;

use super::{AGAIN, Failure, World};

pub(super) async fn run(world: Arc<World>) {
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
