//! Starts discovery and the informers of the management cluster and of its workload cluster, which fill one index.
//! Every user of an index starts them here, so that all indexes are the same.

use std::time::Duration;

use nodegroup::Rules;
use shared_informer::{Settings, SharedLimit, Spawner};

use cluster::{Management, ManagementOptions, Workload, WorkloadOptions};
use connect::{Clients, WorkloadSource};

/// The limit of the memory of all objects that are kept, in bytes: 100,000 Machines and Nodes need at most 128 MiB.
/// With what else the process needs it is less than the chart's limit.
const MAX_BYTES: usize = 160 << 20;

/// The options for reading the clusters.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// The scope, and the operator's rules for all node groups.
    pub rules: Rules,
    /// The configuration for reaching the workload cluster.
    pub workload: WorkloadSource,
    /// The version of Cluster API; `None` is the one that the API server prefers.
    pub capi_version: Option<String>,
    /// The time that a watch may be broken before the index counts as stale.
    pub max_staleness: Duration,
}

/// The clusters that fill an index. Both fields are handles to background tasks.
#[derive(Clone)]
pub struct Clusters {
    /// The management cluster.
    pub management: Management,
    /// The workload cluster, with the index.
    pub workload: Workload,
}

impl Clusters {
    /// Starts to read the clusters in the background, and returns at once.
    #[must_use]
    pub fn start(management: Clients, options: ClusterOptions, tasks: &Spawner) -> Self {
        let ClusterOptions { rules, workload, capi_version, max_staleness } = options;
        let informers = informers();
        let group = rules.keys.group.clone();
        let of_management = ManagementOptions { group, version: capi_version, informers: informers.clone() };
        let management = Management::start(management, of_management, tasks);
        let of_workload = WorkloadOptions { rules, source: workload, max_staleness, informers };
        let workload = Workload::start(management.clone(), of_workload, tasks);
        Self { management, workload }
    }

    /// Stops all tasks, and waits for them.
    pub async fn shutdown(&self) {
        self.workload.shutdown().await;
        self.management.shutdown().await;
    }
}

/// The settings of all informers of one cluster.
fn informers() -> Settings {
    Settings { shared_limit: Some(SharedLimit::new("all objects", MAX_BYTES)), ..Settings::default() }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Lists and their texts, threads and buffers take less than half as much again, as performance.md measures.
    #[test]
    fn all_kinds_of_one_cluster_share_a_limit_well_below_the_chart_s() {
        let values = include_str!("../../../charts/capi-autoscaler-provider/values.yaml");
        let limits = values.lines().skip_while(|line| *line != "  limits:");
        let of_chart = limits.skip(1).find_map(|line| line.trim().strip_prefix("memory: ")?.strip_suffix("Mi"));
        let of_chart = of_chart.unwrap().parse::<usize>().unwrap() << 20;
        let shared = informers().shared_limit.unwrap();
        assert!(shared.max_bytes() * 3 / 2 < of_chart, "{} of {of_chart}", shared.max_bytes());
    }
}
