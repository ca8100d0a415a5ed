//! Scaling down takes the Machines that were named, and no others.

use anyhow::Result;
use e2e::{
    controllers::{
        groups::{Group, Workers},
        instances::target_size_is,
        machines::names,
        stage::Stage,
    },
    pool::Scalable,
};
use futures::future::try_join_all;

/// One call for each Node, all at once, as for empty Nodes.
pub(crate) async fn parallel_deletes_take_exactly_the_named_machines(stage: &Stage) -> Result<()> {
    let group = Workers::new("workers").replicas(6).create(stage).await?;
    takes_exactly(stage, &group, 6, &[1, 3, 4], true).await
}

/// Several Nodes in one call.
pub(crate) async fn one_delete_of_several_nodes_takes_exactly_those(stage: &Stage) -> Result<()> {
    let group = Workers::new("workers").replicas(5).create(stage).await?;
    takes_exactly(stage, &group, 5, &[0, 4], false).await
}

/// The same for a MachineSet alone.
pub(crate) async fn a_bare_machine_set_loses_exactly_the_named_machines(stage: &Stage) -> Result<()> {
    let group = Workers::new("bare").of(Scalable::MachineSet).replicas(4).create(stage).await?;
    takes_exactly(stage, &group, 4, &[1, 2], true).await
}

async fn takes_exactly(stage: &Stage, group: &Group, size: usize, named: &[usize], parallel: bool) -> Result<()> {
    let provider = stage.serve().await?;
    provider.shows(&[&group.id]).await?;
    let machines = stage.running(group, size).await?;
    let mut nodes = Vec::new();
    for &index in named {
        nodes.push(stage.node_of(&machines[index]).await?);
    }
    if parallel {
        try_join_all(nodes.iter().map(|node| provider.delete(&group.id, std::slice::from_ref(node)))).await?;
    } else {
        provider.delete(&group.id, &nodes).await?;
    }
    let mut expected = names(&machines);
    for &index in named {
        expected.remove(&machines[index].name);
    }
    let left = stage.running(group, size - named.len()).await?;
    assert_eq!(names(&left), expected, "Machines that are left");
    target_size_is(&provider, &group.id, i32::try_from(expected.len())?).await
}
