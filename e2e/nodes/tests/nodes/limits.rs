//! The chart's default limits under load.

use anyhow::{Context as _, Result, ensure};
use e2e::{
    nodes::{Group, TIMEOUT, Testbed},
    wait::every,
};
use futures::{StreamExt as _, TryStreamExt as _, stream};

use crate::pod::INTERVAL;

const GROUPS: usize = 1000;

/// The bytes that the chart limits a Pod to.
const LIMIT: u64 = 256 * 1024 * 1024;

pub(crate) async fn a_thousand_groups_fit_the_default_limits(testbed: &Testbed<'_>) -> Result<()> {
    let names: Vec<_> = (0..GROUPS).map(|number| format!("group-{number:04}")).collect();
    let made = stream::iter(&names).map(|name| Group::create(&testbed.objects, name, 1)).buffer_unordered(16);
    let made: Vec<Group> = made.try_collect().await?;
    let release = testbed.release();
    let pods = release.apply("install", &release.values()).await?;
    let caller = release.connection(&release.outside_of_all().await?).await?.caller();
    let mut expected: Vec<_> = made.iter().map(|group| group.id.as_str()).collect();
    expected.sort_unstable();
    caller.shows(&expected).await?;
    // A loop of Cluster Autoscaler over all of them.
    every(INTERVAL, "all groups read", TIMEOUT, async || {
        for group in &made {
            ensure!(caller.target_size(&group.id).await? == 1, "{}", group.id);
            ensure!(caller.instances(&group.id).await?.len() == 1, "{}", group.id);
        }
        Ok(())
    })
    .await?;
    for pod in &pods {
        let process = crate::pod::process(testbed, pod)?;
        let status = testbed.cluster.on_node(&["cat", &format!("/proc/{process}/status")])?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
        let peak: u64 = peak.trim().trim_end_matches(" kB").parse().with_context(|| format!("VmHWM is {peak}"))?;
        println!("with {GROUPS} groups of one Machine a Pod has used {peak} kB at most");
        ensure!(peak * 1024 < LIMIT / 2, "{peak} kB is more than half of the limit");
    }
    let now = release.settled().await?;
    let restarts = now.iter().filter_map(|pod| pod.status.as_ref()?.container_statuses.as_ref()).flatten();
    ensure!(restarts.into_iter().all(|status| status.restart_count == 0), "a container was restarted");
    Ok(())
}
