//! Compares a kubelet's Node with the recorded one, which the sandbox's kubelets must match.

use anyhow::{Result, ensure};
use e2e::nodes::{POLL_INTERVAL, TIMEOUT, Testbed};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, api::ListParams};
use sandbox::recorded::{recorded, shape};

pub(crate) async fn a_kubelet_writes_its_node_as_it_was_recorded(testbed: &Testbed<'_>) -> Result<()> {
    is_as_recorded(testbed, "ready").await?;
    // Containers keep running without containerd.
    testbed.cluster.on_node(&["systemctl", "stop", "containerd"])?;
    let unready = is_as_recorded(testbed, "unready").await;
    testbed.cluster.on_node(&["systemctl", "start", "containerd"])?;
    unready?;
    is_as_recorded(testbed, "ready").await
}

async fn is_as_recorded(testbed: &Testbed<'_>, recording: &str) -> Result<()> {
    let nodes = Api::<Node>::all(testbed.cluster.client());
    e2e::wait::every(POLL_INTERVAL, recording, TIMEOUT, async || {
        for node in nodes.list(&ListParams::default()).await? {
            let mut recorded = recorded(recording);
            // The node lifecycle controller evicts nothing where no Node is ready, while the record is of one of two
            // Nodes.
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
