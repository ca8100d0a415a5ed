//! Compares how a Node joins its Machine with how one did when it was recorded, which the sandbox's Nodes must match.

use anyhow::{Context as _, Result, ensure};
use e2e::{
    machines::Setup,
    nodes::{POLL_INTERVAL, TIMEOUT},
    wait::every,
};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{WatchEvent, WatchParams},
};
use sandbox::conformance::node::{recorded, shape};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::load::with_pods;

const UNINITIALIZED: &str = "node.cluster.x-k8s.io/uninitialized";
const MACHINE: &str = "cluster.x-k8s.io/machine";

pub(crate) async fn a_node_joins_its_machine_as_it_was_recorded(setup: &Setup<'_>) -> Result<()> {
    let nodes: Api<Node> = Api::all(setup.workload.client.clone());
    let events = nodes.watch(&WatchParams::default().timeout(290), "0").await?.boxed();
    let (end, ended) = oneshot::channel::<()>();
    let watching = tokio::spawn(events.take_until(ended).try_collect::<Vec<_>>());
    with_pods(setup, 1, async |load| {
        let name = load.runs(1).await?.remove(0).node.context("no Node")?;
        let expected = shape(&recorded("joined"));
        every(POLL_INTERVAL, "a Node as it was recorded", TIMEOUT, async || {
            let found = shape(&json!(nodes.get(&name).await?));
            ensure!(found == expected, "the Node has {found}, and {expected} was recorded");
            Ok(())
        })
        .await?;
        // An error means that the watch has ended by itself, with all that it had.
        let _ = end.send(());
        let states = watching.await??.into_iter().filter_map(|event| match event {
            WatchEvent::Added(node) | WatchEvent::Modified(node) => Some(json!(node)),
            WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) | WatchEvent::Error(_) => None,
        });
        joins_as_recorded(&states.filter(|node| node["metadata"]["name"] == *name).collect::<Vec<_>>())
    })
    .await
}

/// Checks the states of a Node from its registration on.
fn joins_as_recorded(states: &[Value]) -> Result<()> {
    // CAPD, unlike a cloud's kubelet, adds the providerID a moment later.
    let without_id = |node: &Value| {
        let mut shape = shape(node);
        shape["providerID"] = json!(false);
        shape
    };
    let first = without_id(states.first().context("no state of the Node was seen")?);
    let expected = without_id(&recorded("joining"));
    ensure!(first == expected, "the Node registers as {first}, and {expected} was recorded");
    for node in states {
        let mut taints = node["spec"]["taints"].as_array().into_iter().flatten();
        let is_uninitialized = taints.any(|taint| taint["key"] == UNINITIALIZED);
        let is_claimed = node["metadata"]["annotations"][MACHINE].is_string();
        ensure!(is_uninitialized != is_claimed, "the taint goes in the write by which the annotations come: {node}");
    }
    Ok(())
}
