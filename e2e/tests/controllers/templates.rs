//! Joining Nodes match their templates.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use e2e::{
    controllers::{
        groups::{Group, Workers},
        testbed::Testbed,
    },
    provider::Provider,
    wait::eventually,
};
use serde_json::json;

/// Cluster API propagates labels of some domains from a MachineDeployment's template to its Nodes, and the taints of
/// its Machines.
pub(crate) async fn the_node_that_comes_has_the_labels_and_taints_that_were_promised(testbed: &Testbed) -> Result<()> {
    let labels = [
        ("node-role.kubernetes.io/worker", ""),
        ("example.node-restriction.kubernetes.io/zone", "a"),
        ("node.cluster.x-k8s.io/pool", "workers"),
        ("my.node.cluster.x-k8s.io/pool", "mine"),
        ("example.com/plain", "stays-on-the-machine"),
    ];
    let mut workers = Workers::new("workers").sized().taint("dedicated", "web", "NoSchedule");
    for (key, value) in labels {
        workers = workers.label(key, value);
    }
    let group = workers.create(testbed).await?;
    let provider = testbed.serve().await?;
    provider.shows(&[&group.id]).await?;
    let promised = promised(&provider, &group).await?;

    provider.increase(&group.id, 1).await?;
    let machine = testbed.running(&group, 1).await?.remove(0);
    let name = machine.node.context("no Node")?;
    eventually("labels and taints of the Node", e2e::controllers::testbed::TIMEOUT, async || {
        let node = testbed.workload.get("Node", &name).await?;
        let there = node.metadata.labels.clone().unwrap_or_default();
        for (key, _) in labels {
            ensure!(promised.labels.get(key) == there.get(key), "{key}: promised {promised:?}, there {there:?}");
        }
        let taints: Vec<_> = node.data["spec"]["taints"].as_array().into_iter().flatten().cloned().collect();
        let expected = [json!({ "key": "dedicated", "value": "web", "effect": "NoSchedule" })];
        ensure!(taints == expected, "taints there: {taints:?}");
        Ok(())
    })
    .await?;
    assert_eq!(promised.taints, [("dedicated".to_owned(), "web".to_owned(), "NoSchedule".to_owned())]);
    assert!(!promised.labels.contains_key("example.com/plain"), "{promised:?}");
    Ok(())
}

/// The parts of a template Node that scenarios compare.
#[derive(Debug)]
struct Promised {
    labels: BTreeMap<String, String>,
    taints: Vec<(String, String, String)>,
}

async fn promised(provider: &Provider, group: &Group) -> Result<Promised> {
    let node = provider.template_node(&group.id).await?;
    let taints = node.spec.context("a template without spec")?.taints.into_iter();
    Ok(Promised {
        labels: node.metadata.context("a template without metadata")?.labels,
        taints: taints
            .map(|taint| {
                (taint.key.unwrap_or_default(), taint.value.unwrap_or_default(), taint.effect.unwrap_or_default())
            })
            .collect(),
    })
}
