//! Compares a kubelet's Node with the recorded one, which the sandbox's kubelets must match.

use anyhow::{Result, ensure};
use e2e::nodes::{Stage, TIMEOUT};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, api::ListParams};
use sandbox::conformance::node::{recorded, shape};

use crate::pod::INTERVAL;

pub(crate) async fn a_kubelet_writes_its_node_as_it_was_recorded(stage: &Stage<'_>) -> Result<()> {
    is_as_recorded(stage, "ready").await?;
    // Containers keep running without it.
    stage.cluster.on_node(&["systemctl", "stop", "containerd"])?;
    let unready = is_as_recorded(stage, "unready").await;
    stage.cluster.on_node(&["systemctl", "start", "containerd"])?;
    unready?;
    is_as_recorded(stage, "ready").await
}

async fn is_as_recorded(stage: &Stage<'_>, recording: &str) -> Result<()> {
    let nodes = Api::<Node>::all(stage.cluster.client());
    e2e::wait::every(INTERVAL, recording, TIMEOUT, async || {
        for node in nodes.list(&ListParams::default()).await? {
            let mut recorded = recorded(recording);
            // Where no Node is ready, the node lifecycle controller evicts nothing: the record is of one of two Nodes.
            if let Some(taints) = recorded["spec"]["taints"].as_array_mut() {
                taints.retain(|taint| taint["effect"] != "NoExecute");
            }
            let (real, expected) = (shape(&serde_json::to_value(&node)?), shape(&recorded));
            ensure!(real == expected, "the Node has {real}, and {expected} was recorded");
        }
        Ok(())
    })
    .await
}
