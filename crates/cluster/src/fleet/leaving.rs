//! The Clusters that have left. Each is read for a while. One that opted out joins again after a pause: a join visits
//! all objects of its namespace, and its owner may change the label at any rate.

use std::{
    collections::{BTreeSet, VecDeque},
    time::Duration,
};

use rules::capi::{ObjectKey, Uid};
use tokio::time::Instant;

use super::standing::Left;
use crate::workload_cluster::WorkloadCluster;
use rules::text::LogLimit;

/// The time for which a Cluster that has left answers reads: longer than a loop of Cluster Autoscaler, which restarts
/// itself after ten minutes without one.
const GRACE: Duration = Duration::from_secs(15 * 60);
/// The time after an opt-out for which a Cluster doesn't join again.
const PAUSE: Duration = Duration::from_secs(10);
/// The number of lines about one Cluster in a minute.
const LINES: usize = 4;

/// A Cluster that has left, and when.
type LeftAt = (Instant, ObjectKey, WorkloadCluster);

/// The Clusters that have left, the last one last, and the lines about those that come and go.
pub(super) struct Leaving {
    left: VecDeque<LeftAt>,
    lines: LogLimit<ObjectKey>,
}

impl Default for Leaving {
    fn default() -> Self {
        Self { left: VecDeque::new(), lines: LogLimit::new(LINES) }
    }
}

impl Leaving {
    /// Adds a Cluster that has just left.
    pub(super) fn add(&mut self, name: ObjectKey, cluster: WorkloadCluster, now: Instant) {
        self.left.push_back((now, name, cluster));
    }

    /// Forgets the Clusters that are served again.
    pub(super) fn forget(&mut self, is_served: impl Fn(&ObjectKey) -> bool) {
        self.left.retain(|(_, name, _)| !is_served(name));
    }

    /// Takes the Clusters that aren't read any more.
    pub(super) fn take_over(&mut self, now: Instant) -> Vec<(ObjectKey, WorkloadCluster)> {
        let over = self.left.iter().take_while(|(at, ..)| *at + GRACE <= now).count();
        self.left.drain(..over).map(|(_, name, cluster)| (name, cluster)).collect()
    }

    /// Leaves out the Clusters that have to wait.
    pub(super) fn hold_back(&self, to_join: &mut Vec<(ObjectKey, Uid)>, now: Instant) {
        let pausing: BTreeSet<_> = self.pausing(now).map(|(_, name, _)| name).collect();
        to_join.retain(|(cluster, _)| !pausing.contains(cluster));
    }

    /// Returns the Clusters that don't join again yet, the last one first.
    fn pausing(&self, now: Instant) -> impl Iterator<Item = &LeftAt> {
        let lately = self.left.iter().rev().take_while(move |(at, ..)| *at + PAUSE > now);
        lately.filter(|(.., cluster)| cluster.left() == Some(Left::OptedOut))
    }

    /// Returns the time of the next change that comes by itself.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        let over = self.left.front().map(|(at, ..)| *at + GRACE);
        let joins = self.pausing(now).last().map(|(at, ..)| *at + PAUSE);
        [over, joins, self.lines.due().map(Instant::from_std)].into_iter().flatten().min()
    }

    /// Logs a change of a Cluster, unless there were many.
    pub(super) fn log(&mut self, cluster: &ObjectKey, now: Instant, line: impl FnOnce()) {
        if let Some(more) = self.lines.allows(cluster.clone(), 1, now.into_std()) {
            log_more(cluster, more);
            line();
        }
    }

    /// Logs the numbers of changes that weren't logged.
    pub(super) fn sum_up(&mut self, now: Instant) {
        for (cluster, more) in self.lines.over(now.into_std()) {
            log_more(&cluster, more);
        }
    }
}

fn log_more(cluster: &ObjectKey, more: u64) {
    if more > 0 {
        tracing::info!(%cluster, more, "a Cluster has joined and left more often than is logged");
    }
}
