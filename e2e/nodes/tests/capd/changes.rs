//! Changes that others than the autoscaler make to a group whose Nodes are busy.

use anyhow::{Result, ensure};
use e2e::{
    controllers::machines::names,
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

/// A rollout replaces all Machines. While it goes on the group may have one more; at its end it has as many as Pods
/// need.
pub(crate) async fn a_rollout_ends_with_as_many_machines(setup: &Setup<'_>) -> Result<()> {
    with_pods(setup, 2, async |load| {
        let before = load.runs(2).await?;
        setup.testbed.roll(&load.group).await?;
        every(POLL_INTERVAL, "all Machines anew", 3 * TIMEOUT, async || {
            let now = setup.testbed.machines(&load.group).await?;
            let old = names(&before);
            ensure!(now.len() == 2 && now.iter().all(|one| one.runs() && !old.contains(&one.name)), "{now:?}");
            Ok(())
        })
        .await?;
        let after = load.runs(2).await?;
        ensure!(names(&before).is_disjoint(&names(&after)), "not replaced: {after:?}");
        Ok(())
    })
    .await
}

/// Cluster API makes another Machine, since the group's size stays: it is nobody's scale-down.
pub(crate) async fn a_machine_deleted_by_hand_is_replaced(setup: &Setup<'_>) -> Result<()> {
    with_pods(setup, 2, async |load| {
        let before = load.runs(2).await?;
        let victim = &before[0].name;
        setup.testbed.objects.delete("Machine", victim).await?;
        every(POLL_INTERVAL, "the Machine gone", TIMEOUT, async || {
            let found = setup.testbed.objects.find("Machine", victim).await?;
            ensure!(found.is_none(), "it is still there: {:?}", found.map(|found| found.data));
            Ok(())
        })
        .await?;
        let after = load.runs(2).await?;
        ensure!(names(&after).contains(&before[1].name), "the other Machine is gone: {after:?}");
        ensure!(setup.testbed.objects.scale(load.group.kind, &load.group.name).await? == 2, "another size");
        Ok(())
    })
    .await
}
