//! Groups that grow and shrink.

use anyhow::Result;
use e2e::controllers::{groups::Workers, machines::names, stage::Stage};

/// The whole way once.
pub(crate) async fn a_deployment_is_followed_from_zero_and_back(stage: &Stage) -> Result<()> {
    let group = Workers::new("workers").sized().create(stage).await?;
    let provider = stage.serve().await?;
    provider.shows(&[&group.id]).await?;
    provider.increase(&group.id, 3).await?;
    let machines = stage.running(&group, 3).await?;
    let node = stage.node_of(&machines[1]).await?;
    provider.delete(&group.id, &[node]).await?;
    let left = stage.running(&group, 2).await?;
    let mut expected = names(&machines);
    expected.remove(&machines[1].name);
    assert_eq!(names(&left), expected);
    Ok(())
}
