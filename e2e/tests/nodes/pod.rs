//! Pods of a release as scenarios read them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context as _, Result};
use e2e::nodes::Testbed;
use k8s_openapi::api::core::v1::Pod;

/// The time within which a change becomes visible in a cluster.
pub(crate) const VISIBLE_WITHIN: Duration = Duration::from_secs(120);

/// Returns the name of a Pod.
pub(crate) fn name(pod: &Pod) -> Result<&str> {
    pod.metadata.name.as_deref().context("a Pod without name")
}

/// Returns the uids of Pods.
pub(crate) fn uids(pods: &[Pod]) -> BTreeSet<String> {
    pods.iter().filter_map(|pod| pod.metadata.uid.clone()).collect()
}

/// Returns the id of the program's process of a Pod, on the Node.
pub(crate) fn process(testbed: &Testbed<'_>, pod: &Pod) -> Result<String> {
    process_of(testbed, pod, "serve")
}

/// Returns the id of a container's process, on the Node.
pub(crate) fn process_of(testbed: &Testbed<'_>, pod: &Pod, container: &str) -> Result<String> {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    let status = statuses.into_iter().flatten().find(|status| status.name == container);
    let status = status.with_context(|| format!("no container {container}"))?;
    let id =
        status.container_id.as_deref().and_then(|id| id.strip_prefix("containerd://")).context("no container id")?;
    let listed = testbed.cluster.on_node(&["ctr", "--namespace=k8s.io", "tasks", "list"])?;
    let rows = listed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let tasks: BTreeMap<_, _> = rows.filter_map(|row| Some((*row.first()?, (*row.get(1)?).to_owned()))).collect();
    tasks.get(id).cloned().with_context(|| format!("no task {id} in {listed}"))
}
