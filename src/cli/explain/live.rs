//! Reads the clusters for `explain`, until everything is complete.

use std::{
    future::pending,
    time::{Duration, Instant},
};

use anyhow::{anyhow, bail};

use crate::cli::{live_index::LiveIndex, printing::listed};
use app::IndexConfig;
use connect::{Clients, ConnectError, WorkloadSource};

/// Reads the clusters, for at most `patience`.
///
/// # Errors
/// If they can't be reached, the Cluster or its kubeconfig isn't there, or they aren't read in time, with the kinds and
/// the reasons.
pub(super) async fn read(config: IndexConfig, patience: Duration) -> anyhow::Result<LiveIndex> {
    let connect = |cluster, error| anyhow!("{cluster} cluster: {error}; --manifests explains files without a cluster");
    let clients = config.management.connect().await.map_err(|error| connect("management", error))?;
    if config.workload.connects_at_once() {
        config.workload.connect(&clients).await.map_err(|error| connect("workload", error))?;
    }
    let workload = config.workload.clone();
    let index = LiveIndex::start(clients.clone(), config, patience);
    let in_vain = tokio::select! {
        error = in_vain(&index, &clients, &workload) => Some(error),
        is_read = index.wait(Instant::now() + patience, |_| true) => {
            if is_read {
                return Ok(index);
            }
            None
        }
    };
    if let Some(error) = in_vain {
        index.end().await;
        return Err(error);
    }
    let missing: Vec<_> = index.unready_checks().iter().map(|(name, why)| format!("\n  {name}: {why}")).collect();
    index.end().await;
    let missing = missing.concat();
    bail!("the clusters weren't read within {patience:?}; --timeout allows more. What is missing:{missing}")
}

/// Waits until it is known that waiting is in vain, and returns the reason.
async fn in_vain(index: &LiveIndex, clients: &Clients, workload: &WorkloadSource) -> anyhow::Error {
    // A Cluster that isn't there explains a Secret that isn't.
    if let Some(clusters) = index.clusters().await
        && let Some(cluster) = index.cluster_in_scope().filter(|cluster| !clusters.contains(cluster))
    {
        let known: Vec<_> = clusters.iter().map(ToString::to_string).collect();
        let there_is =
            if known.is_empty() { format!("none in namespace {}", cluster.namespace) } else { listed(&known) };
        return anyhow!(
            "Cluster {cluster} isn't there: correct --cluster or --management-kubeconfig; there is {there_is}"
        );
    }
    let connected = match workload {
        WorkloadSource::Secret(_) => workload.connect(clients).await,
        WorkloadSource::Management | WorkloadSource::Own(_) | WorkloadSource::None | WorkloadSource::Made(..) => {
            return pending().await;
        }
    };
    match connected {
        // The reads say why the management cluster doesn't answer.
        Ok(_) | Err(ConnectError::SecretUnreadable(_)) => pending().await,
        Err(error) => anyhow!("{error}; --workload-nodes none explains without Nodes"),
    }
}
