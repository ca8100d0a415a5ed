//! A group that follows the number of Pods, and one that loses a Node.

use anyhow::{Context as _, Result, ensure};
use e2e::{
    controllers::machines::names,
    images::Docker,
    machines::Setup,
    nodes::{POLL_INTERVAL, TIMEOUT},
    wait::every,
};

use crate::load::with_pods;

pub(crate) async fn a_group_grows_from_two_to_three_and_shrinks_to_two(setup: &Setup<'_>) -> Result<()> {
    with_pods(setup, 2, async |load| {
        let before = load.runs(2).await?;
        let more = load.scale(3).await?;
        ensure!(names(&before).is_subset(&names(&more)), "Machines were made anew: {more:?}");
        let after = load.scale(2).await?;
        ensure!(names(&after).is_subset(&names(&more)), "Machines were made anew: {after:?}");
        Ok(())
    })
    .await
}

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
