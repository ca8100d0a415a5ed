//! Failures of a Node, of the management cluster's API server and of the provider's Pods.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use e2e::{
    images::Docker,
    machines::{NAMESPACE, Setup},
    nodes::{POLL_INTERVAL, Release, TIMEOUT},
    wait::every,
};
use k8s_openapi::api::core::v1::Pod;
use kube::api::EvictParams;

use crate::load::with_pods;

/// The Pod of the dead Node moves to a Node that the autoscaler adds, and the dead Node is removed with its Machine.
pub(crate) async fn a_node_whose_container_is_killed_is_replaced(setup: &Setup<'_>) -> Result<()> {
    with_pods(setup, 2, async |load| {
        let before = load.runs(2).await?;
        let victim = &before[0];
        let node = victim.node.as_deref().context("no Node")?;
        Docker::running()?.run(&["kill", node])?;
        // Cluster Autoscaler before 1.35 takes a quarter of an hour.
        every(POLL_INTERVAL, "the dead Node gone", 6 * TIMEOUT, async || {
            let found = setup.testbed.workload.find("Node", node).await?;
            ensure!(found.is_none(), "it is still there: {:?}", found.map(|found| found.data["spec"].clone()));
            let found = setup.testbed.objects.find("Machine", &victim.name).await?;
            ensure!(found.is_none(), "its Machine is still there: {:?}", found.map(|found| found.data));
            Ok(())
        })
        .await?;
        let after = load.runs(2).await?;
        ensure!(after.contains(&before[1]), "the other Machine has changed: {after:?}");
        Ok(())
    })
    .await
}

/// The kubelet restarts the API server. The provider, the autoscaler and the managers keep working.
pub(crate) async fn the_management_api_server_may_restart(setup: &Setup<'_>) -> Result<()> {
    let cluster = &setup.management.cluster;
    with_pods(setup, 1, async |load| {
        let server = || cluster.on_node(&["pgrep", "-x", "kube-apiserver"]);
        let before = server()?;
        load.want(2).await?;
        cluster.on_node(&["pkill", "-KILL", "-x", "kube-apiserver"])?;
        every(POLL_INTERVAL, "the API server again", TIMEOUT, async || {
            let now = server()?;
            ensure!(now != before, "process {now} is the old one");
            setup.testbed.objects.get("Cluster", &setup.testbed.cluster).await
        })
        .await?;
        load.runs(2).await?;
        load.scale(1).await.map(drop)
    })
    .await
}

/// The Pods are evicted one after the other, as by `kubectl drain`, while a group grows and shrinks.
pub(crate) async fn the_providers_pods_may_be_evicted(setup: &Setup<'_>) -> Result<()> {
    let release = Release::new(&setup.management.cluster, NAMESPACE);
    with_pods(setup, 1, async |load| {
        for (round, count) in [2, 1].into_iter().enumerate() {
            let pods = names(&release.settled().await?);
            load.want(count).await?;
            for name in &pods {
                // The budget is counted a moment after Pods are ready; until then an eviction is answered 429.
                every(POLL_INTERVAL, "the eviction", TIMEOUT, async || {
                    release.pod_api().evict(name, &EvictParams::default()).await?;
                    Ok(())
                })
                .await?;
                every(POLL_INTERVAL, "another Pod", TIMEOUT, async || {
                    let now = names(&release.settled().await?);
                    ensure!(!now.contains(name), "{name} is still there in round {round}");
                    Ok(())
                })
                .await?;
            }
            load.runs(count).await?;
        }
        Ok(())
    })
    .await
}

fn names(pods: &[Pod]) -> BTreeSet<String> {
    pods.iter().filter_map(|pod| pod.metadata.name.clone()).collect()
}
