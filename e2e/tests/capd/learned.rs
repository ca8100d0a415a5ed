//! Compares template Nodes with real Nodes.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use e2e::{
    machines::{NAMESPACE, Setup},
    nodes::{POLL_INTERVAL, Release, TIMEOUT},
    provider::Caller,
    wait::every,
};
use serde_json::{Value, json};

use crate::load::with_pods;

/// The resources that both of them have.
const RESOURCES: [&str; 3] = ["cpu", "memory", "pods"];

/// A kubelet reports less for Pods than the capacity in the infrastructure template. Once a group has a Node, its node
/// template promises what the kubelet reports, and still does when the group has no Node any more.
pub(crate) async fn a_template_promises_what_the_kubelet_reports(setup: &Setup<'_>) -> Result<()> {
    let caller = caller(setup).await?;
    with_pods(setup, 1, async |load| {
        let machine = load.runs(1).await?.remove(0);
        let node = setup.testbed.workload.get("Node", machine.node.as_deref().context("no Node")?).await?;
        let (reported, capacity) =
            (amounts(&node.data["status"]["allocatable"])?, amounts(&node.data["status"]["capacity"])?);
        ensure!(reported["cpu"] + 100 == capacity["cpu"], "the kubelet keeps {reported:?} of {capacity:?}");
        promises(&caller, &load.group.id, &reported).await?;
        load.want(0).await?;
        load.runs(0).await?;
        promises(&caller, &load.group.id, &reported).await
    })
    .await
}

/// Returns a caller of the chart's provider, from outside.
async fn caller(setup: &Setup<'_>) -> Result<Caller> {
    let release = Release::new(&setup.management.cluster, NAMESPACE);
    Ok(release.connection().await?.caller())
}

async fn promises(caller: &Caller, group: &str, reported: &BTreeMap<&str, u64>) -> Result<()> {
    every(POLL_INTERVAL, "the kubelet's figures in the template", TIMEOUT, async || {
        let status = caller.template_node(group).await?.status.context("a template without status")?;
        let promised = status.allocatable.into_iter().map(|(name, quantity)| (name, json!(quantity.string)));
        let promised = amounts(&promised.collect::<serde_json::Map<_, _>>().into())?;
        ensure!(promised == *reported, "promised {promised:?}, reported {reported:?}");
        Ok(())
    })
    .await
}

/// Returns CPUs in thousandths, and other resources in full.
fn amounts(resources: &Value) -> Result<BTreeMap<&'static str, u64>> {
    RESOURCES
        .into_iter()
        .map(|name| {
            let text = resources[name].as_str().with_context(|| format!("no {name} in {resources}"))?;
            let units = [("Ki", 1 << 10), ("Mi", 1 << 20), ("Gi", 1 << 30), ("m", 1)];
            let whole = if name == "cpu" { 1000 } else { 1 };
            let (digits, unit) = units
                .into_iter()
                .find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?, unit)))
                .unwrap_or((text, whole));
            Ok((name, digits.parse::<u64>().with_context(|| format!("{name} is {text}"))? * unit))
        })
        .collect()
}
