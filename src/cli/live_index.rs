//! Reads clusters for commands that run once, with the same lists and projections as a server. It must never write, nor
//! leave anything running.

use std::time::{Duration, Instant};

use shared_informer::Spawner;
use tokio::{runtime::Handle, time::sleep};

use app::IndexConfig;
use cluster::{Fleet, FleetOptions, WorkloadCluster};
use connect::Clients;
use index::Index;
use service::listen::{Check, CheckState};

/// The interval at which the checks are polled.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// An index that is being filled from the clusters.
pub(super) struct LiveIndex {
    fleet: Fleet,
    cluster: WorkloadCluster,
}

impl LiveIndex {
    /// Starts to read the clusters.
    pub(super) fn start(clients: Clients, config: IndexConfig, patience: Duration) -> Self {
        let options = FleetOptions::of_one(config.rules, patience);
        let options = FleetOptions { capi_version: config.capi_version, ..options };
        let tasks = Spawner::from(Handle::current());
        let (fleet, cluster) = Fleet::start_one(clients, config.workload, options, &tasks);
        Self { fleet, cluster }
    }

    /// Waits until all checks for which `is_waited_for` returns true are ready. Returns false if they aren't at the
    /// deadline.
    pub(super) async fn wait(&self, until: Instant, is_waited_for: impl Fn(&Check) -> bool) -> bool {
        loop {
            let is_there = |check: &Check| check.is_ready() || !is_waited_for(check);
            if self.cluster.checks().iter().all(is_there) && self.index().has_settled() {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    pub(super) fn index(&self) -> &Index {
        self.cluster.index()
    }

    /// Returns the names of the checks that aren't ready, with the reason.
    pub(super) fn unready_checks(&self) -> Vec<(String, String)> {
        let checks = self.cluster.checks();
        let missing = checks.into_iter().filter(|check| check.state != CheckState::Ready);
        missing.map(|check| (check.name, check.reason.unwrap_or_default())).collect()
    }

    /// Ends everything that was started.
    pub(super) async fn end(self) {
        self.fleet.shutdown().await;
    }
}
