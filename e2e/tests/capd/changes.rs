//! A group that follows the number of Pods.

use anyhow::{Result, ensure};
use e2e::{controllers::machines::names, machines::Setup};

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
