//! Unneeded Nodes: those that are removed, those that stay, and the calls of an idle loop.

use std::{collections::BTreeSet, fs};

use anyhow::{Context, Result, ensure};
use e2e::{
    autoscaling::{Settings, loops},
    controllers::{
        groups::UNNEEDED,
        machines::{Machine, names},
        testbed::Testbed,
    },
    proto::NodeGroupDeleteNodesRequest,
};
use sandbox::autoscaler::TO_BE_DELETED;
use serde_json::{Value, json};

use crate::pods::{busy_nodes, create_pod, pods_run, workers};

/// Concurrent calls name one idle Node each. Exactly those Nodes are removed.
pub(crate) async fn idle_nodes_go_at_once_and_busy_ones_stay(testbed: &Testbed) -> Result<()> {
    // Real machines are expensive.
    let size: u8 = if testbed.is_existing() { 4 } else { 6 };
    let group = workers(testbed, "workers").sized().replicas(size.into()).create(testbed).await?;
    let machines = testbed.running(&group, size.into()).await?;
    // Each Pod fits on one Node and keeps it busy.
    for number in 0..2 {
        create_pod(testbed, &format!("web-{number}"), &testbed.cpu(3, 4)).await?;
    }
    let mut autoscaling = testbed.autoscale(Settings::default()).await?;
    pods_run(testbed, &mut autoscaling, 2).await?;
    let busy = busy_nodes(testbed).await?;
    autoscaling.sizes(&[(&group.id, 2)]).await?;
    let left = testbed.running(&group, 2).await?;
    let nodes: BTreeSet<_> = left.iter().filter_map(|machine| machine.node.clone()).collect();
    ensure!(nodes == busy.into_iter().collect(), "{nodes:?} are left");
    ensure!(names(&left).is_subset(&names(&machines)), "Machines were made anew: {left:?}");
    let Some(calls) = autoscaling.end().await? else { return Ok(()) };
    ensure!(calls.iter().all(|call| call.name != "NodeGroupIncreaseSize"), "it was increased");
    Ok(())
}

/// The min size limits removals, and an option of a group keeps its Nodes longer than those of others.
pub(crate) async fn the_minimum_and_the_groups_own_times_keep_idle_nodes(testbed: &Testbed) -> Result<()> {
    let least = workers(testbed, "least").sized().bounds(1, 5).replicas(3).create(testbed).await?;
    let patient = workers(testbed, "patient").sized().replicas(1).annotate(UNNEEDED, "10h").create(testbed).await?;
    testbed.running(&least, 3).await?;
    testbed.running(&patient, 1).await?;
    let mut autoscaling = testbed.autoscale(Settings::default()).await?;
    autoscaling.sizes(&[(&least.id, 1), (&patient.id, 1)]).await?;
    testbed.running(&least, 1).await?;
    autoscaling.wait_for_loops(4).await?;
    autoscaling.sizes(&[(&least.id, 1), (&patient.id, 1)]).await?;
    let Some(calls) = autoscaling.end().await? else { return Ok(()) };
    for call in calls.iter().filter(|call| call.name == "NodeGroupDeleteNodes") {
        let request: NodeGroupDeleteNodesRequest = call.request()?;
        ensure!(request.id == least.id, "{request:?}");
    }
    Ok(())
}

/// No Machine is scaled down while its MachineDeployment rolls out; afterwards all are removed. A hook on the drain of
/// the old Machines delays the rollout.
pub(crate) async fn nothing_goes_while_a_rollout_goes_on(testbed: &Testbed) -> Result<()> {
    let group = workers(testbed, "workers").sized().replicas(2).create(testbed).await?;
    let old = testbed.running(&group, 2).await?;
    testbed.hold(&old, json!("held")).await?;
    testbed.roll(&group).await?;
    let held = |machine: &Machine| machine.deleting && names(&old).contains(&machine.name);
    let begun =
        |machines: &[Machine]| machines.iter().any(held) && machines.iter().filter(|one| one.runs()).count() > 1;
    testbed.machines_that(&group, "an old one held in deletion, and a new one", begun).await?;
    let mut autoscaling = testbed.autoscale(Settings::default()).await?;
    autoscaling.wait_for_loops(6).await?;
    ensure!(autoscaling.calls.of("NodeGroupDeleteNodes").is_empty(), "a Node was chosen");
    autoscaling.sizes(&[(&group.id, 2)]).await?;
    testbed.hold(&old, Value::Null).await?;
    autoscaling.sizes(&[(&group.id, 0)]).await?;
    testbed.running(&group, 0).await?;
    autoscaling.end().await?;
    Ok(())
}

/// A Cluster Autoscaler that ends during a scale-down leaves its taints. The next one removes them once, before its
/// first Refresh, and asks for the group of each Node then: Pods run on those Nodes again.
pub(crate) async fn the_taints_of_an_interrupted_scale_down_go_at_the_start(testbed: &Testbed) -> Result<()> {
    let group = workers(testbed, "workers").sized().bounds(2, 2).replicas(2).create(testbed).await?;
    let machines = testbed.running(&group, 2).await?;
    let nodes: Vec<_> = machines.iter().filter_map(|machine| machine.node.clone()).collect();
    for node in &nodes {
        let taint = json!({ "key": TO_BE_DELETED, "value": "1767225600", "effect": "NoSchedule" });
        testbed.workload.patch("Node", node, json!({ "spec": { "taints": [taint] } })).await?;
    }
    for number in 0..2 {
        create_pod(testbed, &format!("web-{number}"), &testbed.cpu(3, 4)).await?;
    }
    let mut autoscaling = testbed.autoscale(Settings::default()).await?;
    pods_run(testbed, &mut autoscaling, 2).await?;
    for node in &nodes {
        let node = testbed.workload.get("Node", node).await?;
        let taints = node.data["spec"]["taints"].as_array().into_iter().flatten();
        ensure!(
            taints.filter(|taint| taint["key"] == TO_BE_DELETED).count() == 0,
            "{:?} is tainted",
            node.metadata.name
        );
    }
    autoscaling.end().await?;
    Ok(())
}

/// The number of calls determines the time of a loop: the program must not cause more than the known number.
pub(crate) async fn a_loop_with_nothing_to_do_asks_no_more_than_is_known(testbed: &Testbed) -> Result<()> {
    let first = workers(testbed, "first").sized().replicas(2).create(testbed).await?;
    let second = workers(testbed, "second").sized().replicas(1).create(testbed).await?;
    testbed.running(&first, 2).await?;
    testbed.running(&second, 1).await?;
    for number in 0..3 {
        create_pod(testbed, &format!("web-{number}"), &testbed.cpu(3, 4)).await?;
    }
    let mut autoscaling = testbed.autoscale(Settings::default()).await?;
    pods_run(testbed, &mut autoscaling, 3).await?;
    autoscaling.wait_for_loops(6).await?;
    let version = autoscaling.version().context("no version")?;
    let calls = autoscaling.end().await?.context("no calls")?;
    let loops = loops::whole(&calls)?;
    fs::write(testbed.directory().join("loops.txt"), format!("{loops:#?}"))?;
    loops::is_idle(loops.last().context("no loop")?, version, 2, 3)
}
