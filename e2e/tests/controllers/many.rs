//! A scenario with two hundred groups.

use anyhow::{Result, bail, ensure};
use e2e::{
    controllers::{
        groups::{Group, Workers},
        testbed::{POLL_INTERVAL, TIMEOUT, Testbed},
    },
    provider::Provider,
    wait::every,
};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use tonic::Code;

const GROUPS: usize = 200;
/// The number of concurrent calls, as many deletes as Cluster Autoscaler makes.
const AT_ONCE: usize = 10;

/// The number of loops that a group's increase may take, each with Cluster Autoscaler's deadline.
const LOOPS: u32 = 5;

/// Requests one Node as Cluster Autoscaler does over several loops: after a time-out it reads the size before it asks
/// again, since a command that has begun to write is completed.
async fn grow(provider: &Provider, group: &Group) -> Result<()> {
    for _ in 0..LOOPS {
        match provider.increase(&group.id, 1).await {
            Ok(()) => return Ok(()),
            Err(status) => match status.code() {
                Code::Cancelled | Code::DeadlineExceeded | Code::Aborted | Code::Unavailable => {}
                _ => bail!("{}: {status}", group.id),
            },
        }
        let grown = every(POLL_INTERVAL, "the size", TIMEOUT / 4, async || {
            let size = provider.target_size(&group.id).await?;
            ensure!(size == 1, "{size}");
            Ok(())
        });
        if grown.await.is_ok() {
            return Ok(());
        }
    }
    bail!("{} isn't grown by {LOOPS} loops", group.id)
}

/// All groups are listed, and those that grow by a Node lose it again.
pub(crate) async fn two_hundred_groups_grow_and_shrink_at_once(testbed: &Testbed) -> Result<()> {
    let create = |number: usize| Workers::new(&format!("workers-{number:03}")).sized().create(testbed);
    let groups: Vec<Group> = stream::iter(0..GROUPS).map(create).buffered(AT_ONCE).try_collect().await?;
    let provider = testbed.serve().await?;
    provider.shows(&groups.iter().map(|group| group.id.as_str()).collect::<Vec<_>>()).await?;

    let increase = async |group: &Group| grow(&provider, group).await;
    stream::iter(&groups).map(increase).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
    every(4 * POLL_INTERVAL, "a running Machine for each group", 4 * TIMEOUT, async || {
        let machines = testbed.objects.list("Machine", "").await?;
        let running = machines.iter().filter(|machine| machine.data["status"]["phase"] == "Running").count();
        ensure!(machines.len() == GROUPS && running == GROUPS, "{running} of {} run", machines.len());
        Ok(())
    })
    .await?;

    let mut nodes = Vec::new();
    for group in &groups {
        nodes.push((group, testbed.node_of(&testbed.running(group, 1).await?[0]).await?));
    }
    // The caller's next loop repeats a call that times out, and must not take another Machine then.
    let delete =
        async |(group, node): &(&Group, _)| provider.delete_with_retries(&group.id, std::slice::from_ref(node)).await;
    stream::iter(&nodes).map(delete).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
    every(4 * POLL_INTERVAL, "no Machine", 4 * TIMEOUT, async || {
        let machines = testbed.objects.list("Machine", "").await?;
        ensure!(machines.is_empty(), "{} are left", machines.len());
        Ok(())
    })
    .await?;
    for group in &groups {
        ensure!(provider.target_size(&group.id).await? == 0, "the size of {}", group.id);
    }
    Ok(())
}
