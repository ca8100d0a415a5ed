//! Reads clusters for commands that run once, with the same lists and projections as a server. It must never write, nor
//! leave anything running.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use app::IndexConfig;
use cluster::{Fleet, FleetOptions, WorkloadCluster};
use connect::Clients;
use index::{Index, PlaceView};
use rules::capi::ObjectKey;
use service::listen::{Check, CheckState};
use shared_informer::Spawner;
use tokio::{runtime::Handle, time::sleep};

/// The names of the check of Clusters, and of the one of all kinds while one cause stops them.
const API_SERVER: &str = "management/api-server";
const CLUSTERS: &str = "management/clusters";
/// The prefix of an informer's reason if a permission is missing.
pub(super) const FORBIDDEN: &str = "forbidden:";
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
        let options = FleetOptions { capi_version: config.capi_version, remember: config.remember, ..options };
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

    /// Waits until the Clusters are read, or can't be. Returns them if they are.
    pub(super) async fn clusters(&self) -> Option<BTreeSet<ObjectKey>> {
        loop {
            let check = self.cluster.checks().into_iter().find(|check| [API_SERVER, CLUSTERS].contains(&&*check.name));
            match check.map(|check| (check.state, check.reason)) {
                Some((CheckState::Ready, None)) => return Some(self.index().clusters()),
                Some((CheckState::Pending, Some(why))) if !why.starts_with(FORBIDDEN) => sleep(POLL_INTERVAL).await,
                // They are forbidden, or aren't served.
                _ => return None,
            }
        }
    }

    /// Returns the only Cluster whose groups are in the scope, if it is one that is named.
    pub(super) fn cluster_in_scope(&self) -> Option<ObjectKey> {
        self.cluster.cluster_in_scope()
    }

    pub(super) fn index(&self) -> &Index {
        self.cluster.index()
    }

    /// Returns what is remembered of Nodes.
    pub(super) fn memory(&self) -> Vec<PlaceView> {
        self.fleet.memory().map(|memory| memory.view()).unwrap_or_default()
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
