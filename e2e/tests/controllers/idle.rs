//! Nodes that nobody needs: which go, which stay, and what is asked while nothing is to be done.

use std::{collections::BTreeSet, fs};

use anyhow::{Context, Result, ensure};
use e2e::{
    autoscaling::{Settings, loops},
    controllers::{machines::names, stage::Stage},
    proto::NodeGroupDeleteNodesRequest,
};
use serde_json::json;

use crate::pods::{busy_nodes, create_pod, pods_run, workers};

/// Idle Nodes are named one by one and many at once: just those go.
pub(crate) async fn idle_nodes_go_at_once_and_busy_ones_stay(stage: &Stage) -> Result<()> {
    let group = workers(stage, "workers").sized().replicas(6).create(stage).await?;
    let machines = stage.running(&group, 6).await?;
    // One fits on a Node, and keeps it busy.
    for number in 0..2 {
        create_pod(stage, &format!("web-{number}"), "3").await?;
    }
    let mut autoscaling = stage.autoscale(Settings::default()).await?;
    pods_run(stage, &mut autoscaling, 2).await?;
    let busy = busy_nodes(stage).await?;
    autoscaling.sizes(&[(&group.id, 2)]).await?;
    let left = stage.running(&group, 2).await?;
    let nodes: BTreeSet<_> = left.iter().filter_map(|machine| machine.node.clone()).collect();
    ensure!(nodes == busy.into_iter().collect(), "{nodes:?} are left");
    ensure!(names(&left).is_subset(&names(&machines)), "Machines were made anew: {left:?}");
    let calls = autoscaling.end().await?;
    ensure!(calls.iter().all(|call| call.name != "NodeGroupIncreaseSize"), "it was increased");
    Ok(())
}

/// The minimum holds, whatever is idle, and an option of the group keeps its Nodes for longer than others'.
pub(crate) async fn the_minimum_and_the_groups_own_times_keep_idle_nodes(stage: &Stage) -> Result<()> {
    let least = workers(stage, "least").sized().bounds(1, 5).replicas(3).create(stage).await?;
    let patient = workers(stage, "patient").sized().replicas(1).annotate(UNNEEDED, "10h").create(stage).await?;
    stage.running(&least, 3).await?;
    stage.running(&patient, 1).await?;
    let mut autoscaling = stage.autoscale(Settings::default()).await?;
    autoscaling.sizes(&[(&least.id, 1), (&patient.id, 1)]).await?;
    stage.running(&least, 1).await?;
    autoscaling.looks(4).await?;
    autoscaling.sizes(&[(&least.id, 1), (&patient.id, 1)]).await?;
    let calls = autoscaling.end().await?;
    for call in calls.iter().filter(|call| call.name == "NodeGroupDeleteNodes") {
        let request: NodeGroupDeleteNodesRequest = call.request()?;
        ensure!(request.id == least.id, "{request:?}");
    }
    Ok(())
}

/// While a MachineDeployment replaces its Machines none of them is chosen; afterwards they go.
pub(crate) async fn nothing_goes_while_a_rollout_goes_on(stage: &Stage) -> Result<()> {
    let group = workers(stage, "workers").sized().replicas(2).create(stage).await?;
    stage.running(&group, 2).await?;
    roll(stage, &group.name, "never-join").await?;
    stage.machines_that(&group, "one new Machine beside the old ones", |machines| machines.len() == 3).await?;
    let mut autoscaling = stage.autoscale(Settings::default()).await?;
    autoscaling.looks(6).await?;
    ensure!(autoscaling.calls.of("NodeGroupDeleteNodes").is_empty(), "a Node was chosen");
    autoscaling.sizes(&[(&group.id, 2)]).await?;
    roll(stage, &group.name, "joins").await?;
    autoscaling.sizes(&[(&group.id, 0)]).await?;
    stage.running(&group, 0).await?;
    autoscaling.end().await?;
    Ok(())
}

/// What costs time is how often it asks: nothing here asks more than it is known to.
pub(crate) async fn a_loop_with_nothing_to_do_asks_no_more_than_is_known(stage: &Stage) -> Result<()> {
    let first = workers(stage, "first").sized().replicas(2).create(stage).await?;
    let second = workers(stage, "second").sized().replicas(1).create(stage).await?;
    stage.running(&first, 2).await?;
    stage.running(&second, 1).await?;
    for number in 0..3 {
        create_pod(stage, &format!("web-{number}"), "3").await?;
    }
    let mut autoscaling = stage.autoscale(Settings::default()).await?;
    pods_run(stage, &mut autoscaling, 3).await?;
    autoscaling.looks(6).await?;
    let version = autoscaling.version();
    let calls = autoscaling.end().await?;
    let loops = loops::whole(&calls)?;
    fs::write(stage.directory().join("loops.txt"), format!("{loops:#?}"))?;
    loops::is_idle(loops.last().context("no loop")?, version, 2, 3)
}

const UNNEEDED: &str = "cluster.x-k8s.io/autoscaling-options-scaledownunneededtime";

async fn roll(stage: &Stage, group: &str, behaviour: &str) -> Result<()> {
    let template = json!({
        "metadata": { "labels": { sandbox::BEHAVIOUR_LABEL: behaviour } },
        "spec": { "version": "v1.36.2" },
    });
    stage.objects.patch("MachineDeployment", group, json!({ "spec": { "template": template } })).await
}
