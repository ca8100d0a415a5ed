//! Metrics of a fleet, computed on each scrape: a fixed few series for each Cluster that is served. None of its
//! objects may be visited.

use std::{fmt, sync::Arc, time::Instant};

use jiff::Timestamp;
use prometheus_client::{collector::Collector, encoding::DescriptorEncoder};

use cluster::Fleet;
use index::families::{count, counter, gauge, single_counter};
use index::{GroupSeries, encode_groups};
use page::state::{ServedCluster, ServedClusters};

/// The label of a Cluster's series: `<namespace>/<name>`. The labels `namespace` and `cluster` mean other things.
const CLUSTER: &str = "workload_cluster";

/// The collector for the Clusters of a fleet.
pub(crate) struct FleetMetrics {
    fleet: Fleet,
    served: Arc<dyn ServedClusters>,
    /// Whether each node group has its own series: for fleets that are small enough for that.
    group_series: GroupSeries,
}

/// A gauge of a Cluster: name, help, value. There is no series where there is no value.
type Gauge = (&'static str, &'static str, fn(&Row) -> Option<i64>);

/// A counter of a Cluster: name, help, value.
type Count = (&'static str, &'static str, fn(&Row) -> u64);

struct Row {
    cluster: String,
    synced: bool,
    nodes_synced: bool,
    groups: i64,
    problems: i64,
    remembered: i64,
    denied: u64,
    foreign: u64,
    last_refresh: Option<i64>,
    certificate_until: Option<i64>,
}

/// The time of a scrape by both clocks.
#[derive(Clone, Copy)]
struct Now {
    instant: Instant,
    timestamp: Timestamp,
}

impl Now {
    fn new() -> Self {
        Self { instant: Instant::now(), timestamp: Timestamp::now() }
    }

    /// Returns an earlier time as Unix time in seconds.
    fn in_unix_time(self, at: Instant) -> i64 {
        let age = self.instant.saturating_duration_since(at);
        self.timestamp.checked_sub(age).map_or(0, Timestamp::as_second)
    }
}

impl FleetMetrics {
    pub(crate) fn new(fleet: Fleet, served: Arc<dyn ServedClusters>, group_series: GroupSeries) -> Self {
        Self { fleet, served, group_series }
    }
}

impl fmt::Debug for FleetMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FleetMetrics")
    }
}

impl Row {
    fn of(served: &ServedCluster, is_core_in_sync: bool, now: Now) -> Self {
        let ServedCluster { cluster, calls, denied, foreign, .. } = served;
        let sizes = cluster.index().sizes();
        let sync = cluster.sync(is_core_in_sync);
        Self {
            cluster: cluster.cluster().map(ToString::to_string).unwrap_or_default(),
            synced: is_core_in_sync && sync.problem.is_none(),
            nodes_synced: sync.nodes.is_none(),
            groups: count(sizes.groups),
            problems: count(sizes.in_need),
            remembered: count(sizes.remembered),
            denied: *denied,
            foreign: *foreign,
            last_refresh: calls.last_refresh().map(|last| now.in_unix_time(last.at)),
            certificate_until: calls.callers().iter().filter_map(|client| client.until).min().map(Timestamp::as_second),
        }
    }

    fn label(&self) -> [(&'static str, &str); 1] {
        [(CLUSTER, &self.cluster)]
    }
}

impl Collector for FleetMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let (encoder, now, is_core_in_sync) = (&mut encoder, Now::new(), self.fleet.core_problem().is_none());
        let clusters = self.served.clusters();
        let (leaving, served): (Vec<_>, Vec<_>) = clusters.iter().partition(|served| served.cluster.left().is_some());
        let sums = [("leaving", leaving.len()), ("served", served.len())];
        let sums = sums.map(|(standing, number)| ([("standing", standing)], count(number as u64)));
        gauge(encoder, "fleet_clusters", "Clusters of the fleet, by standing", sums)?;

        let denied = self.served.denied_callers().calls;
        single_counter(encoder, "fleet_denied_calls", "Calls that were denied, whoever made them", denied)?;

        if self.group_series == GroupSeries::Each {
            encode_groups(served.iter().map(|served| &**served.cluster.index()), encoder)?;
        }
        let rows: Vec<_> = served.into_iter().map(|cluster| Row::of(cluster, is_core_in_sync, now)).collect();
        let gauges: [Gauge; 7] = [
            ("fleet_cluster_synced", "Whether Refresh of a Cluster succeeds (1) or not (0)", |row| {
                Some(i64::from(row.synced))
            }),
            (
                "fleet_cluster_nodes_synced",
                "Whether the Nodes of a Cluster's workload cluster are in sync, or aren't read (1), or not (0)",
                |row| Some(i64::from(row.nodes_synced)),
            ),
            ("fleet_cluster_node_groups", "Node groups of a Cluster", |row| Some(row.groups)),
            ("fleet_cluster_node_groups_with_problem", "Node groups of a Cluster that have a problem", |row| {
                Some(row.problems)
            }),
            (
                "fleet_cluster_node_groups_from_remembered_nodes",
                "Node groups of a Cluster that scale from zero by a remembered Node",
                |row| Some(row.remembered),
            ),
            (
                "fleet_cluster_last_refresh_timestamp_seconds",
                "When Refresh of a Cluster was last answered, in Unix time",
                |row| row.last_refresh,
            ),
            (
                "fleet_cluster_client_certificate_expiry_timestamp_seconds",
                "First end of the certificates of a Cluster's connected clients, in Unix time",
                |row| row.certificate_until,
            ),
        ];
        for (name, help, value) in gauges {
            gauge(encoder, name, help, rows.iter().filter_map(|row| Some((row.label(), value(row)?))))?;
        }
        let counters: [Count; 2] = [
            ("fleet_cluster_denied_calls", "Calls of a Cluster's clients that were denied", |row| row.denied),
            (
                "fleet_cluster_foreign_group_calls",
                "Calls of a Cluster's clients for node groups of other Clusters",
                |row| row.foreign,
            ),
        ];
        for (name, help, value) in counters {
            counter(encoder, name, help, rows.iter().map(|row| (row.label(), value(row))))?;
        }
        Ok(())
    }
}
