//! API servers that restart while controllers work.

use anyhow::{Result, bail};
use e2e::{
    controllers::{
        groups::Workers,
        instances::instances_are,
        testbed::{Controllers, TIMEOUT, Testbed},
    },
    provider::assert_refused,
    wait::eventually,
};
use tonic::Code;

use crate::sizes::running;

/// During the outage reads succeed and writes are refused; afterwards the group grows and its Nodes are known.
pub(crate) async fn api_servers_that_restart_are_followed(testbed: &Testbed) -> Result<()> {
    let Controllers::Real(environment) = &testbed.controllers else { bail!("this needs real API servers") };
    let group = Workers::new("workers").replicas(1).create(testbed).await?;
    let provider = testbed.serve().await?;
    provider.shows(&[&group.id]).await?;
    testbed.running(&group, 1).await?;

    environment.management.stop_api_server();
    assert_eq!(provider.target_size(&group.id).await?, 1);
    assert_refused(provider.increase(&group.id, 1).await, Code::Unavailable, &[])?;
    environment.management.start_api_server().await?;
    eventually("an increase after the restart", TIMEOUT, async || Ok(provider.increase(&group.id, 1).await?)).await?;
    let machines = testbed.running(&group, 2).await?;
    instances_are(&provider, &group.id, running(&machines)).await?;

    environment.workload.stop_api_server();
    provider.increase(&group.id, 1).await?;
    environment.workload.start_api_server().await?;
    let machines = testbed.running(&group, 3).await?;
    instances_are(&provider, &group.id, running(&machines)).await?;
    for machine in &machines {
        let node = testbed.node_of(machine).await?;
        eventually("the group of a Node", TIMEOUT, async || {
            let found = provider.group_of(&node).await?.map(|group| group.id);
            anyhow::ensure!(found.as_deref() == Some(group.id.as_str()), "{node:?} is of {found:?}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}
