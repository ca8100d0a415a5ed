//! The chart's default limits under load.

use anyhow::{Context as _, Result, ensure};
use e2e::{
    nodes::{POLL_INTERVAL, TIMEOUT, Testbed, create_group},
    pool::Group,
    wait::every,
};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::apps::v1::Deployment;

const GROUPS: usize = 1000;

pub(crate) async fn a_thousand_groups_fit_the_default_limits(testbed: &Testbed<'_>) -> Result<()> {
    let names: Vec<_> = (0..GROUPS).map(|number| format!("group-{number:04}")).collect();
    let made = stream::iter(&names).map(|name| create_group(&testbed.objects, name, 1)).buffer_unordered(16);
    let made: Vec<Group> = made.try_collect().await?;
    let release = testbed.release();
    let pods = release.apply("install", &release.values()).await?;
    let limit = memory_limit(&release.deployment().await?)?;
    let caller = release.connection().await?.caller();
    let mut expected: Vec<_> = made.iter().map(|group| group.id.as_str()).collect();
    expected.sort_unstable();
    caller.shows(&expected).await?;
    // A loop of Cluster Autoscaler over all of them.
    every(POLL_INTERVAL, "all groups read", TIMEOUT, async || {
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
        println!("with {GROUPS} groups of one Machine a Pod has used {peak} kB at most, of {limit} bytes");
        ensure!(peak * 1024 < limit / 2, "{peak} kB is more than half of the limit of {limit} bytes");
    }
    let now = release.settled().await?;
    let restarts = now.iter().filter_map(|pod| pod.status.as_ref()?.container_statuses.as_ref()).flatten();
    ensure!(restarts.into_iter().all(|status| status.restart_count == 0), "a container was restarted");
    Ok(())
}

/// Returns the bytes that the program's container is limited to.
fn memory_limit(deployment: &Deployment) -> Result<u64> {
    let pod = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref()).context("no Pod's spec")?;
    let serve = pod.containers.iter().find(|container| container.name == "serve").context("no container serve")?;
    let limits = serve.resources.as_ref().and_then(|resources| resources.limits.as_ref());
    let limit = limits.and_then(|limits| limits.get("memory")).context("the chart limits no memory")?;
    bytes(&limit.0).with_context(|| format!("the limit is {}", limit.0))
}

/// Parses a whole number of bytes, with one of the binary suffixes or none.
fn bytes(quantity: &str) -> Result<u64> {
    for (suffix, unit) in [("Ki", 1 << 10), ("Mi", 1 << 20), ("Gi", 1 << 30)] {
        if let Some(number) = quantity.strip_suffix(suffix) {
            return Ok(number.parse::<u64>()? * unit);
        }
    }
    Ok(quantity.parse()?)
}
