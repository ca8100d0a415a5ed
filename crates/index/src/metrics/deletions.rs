//! The deletions in progress, for metrics. A reader visits only the groups whose objects have a log, and no Machine.

use std::time::Instant;

use jiff::Timestamp;
use nodegroup::{DeletionLog, Exclusion};

use crate::Index;

/// The deletions of an index in progress.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct DeletionSums {
    /// The time at which the oldest was accepted; `None` without any whose ticket has a time.
    pub oldest: Option<Timestamp>,
    /// The number of groups whose log can't be read.
    pub unreadable: u64,
}

impl Index {
    /// Returns the deletions in progress, at the cost of one visit to each group whose object has a log.
    #[must_use]
    pub fn deletion_sums(&self) -> DeletionSums {
        let now = Instant::now();
        let inner = self.inner.read();
        let live = &inner.live;
        let logged = live.tally.logged().filter_map(|id| live.groups.get(id));
        let counted = logged.filter(|group| are_counted(group.excluded.as_ref().map(|excluded| excluded.reason)));
        let logs: Vec<_> = counted.filter_map(|group| group.versions.current(now)?.log.clone()).collect();
        // Logs are parsed without the lock.
        drop(inner);
        let mut sums = DeletionSums::default();
        for log in &logs {
            match log.read() {
                Ok(log) => sums.oldest = sums.oldest.into_iter().chain(oldest(log)).min(),
                Err(_) => sums.unreadable += 1,
            }
        }
        sums
    }
}

/// Returns true if the deletions in the log of an object are this program's; `excluded` is the reason why it isn't a
/// group. Cluster API copies a MachineDeployment's log to its MachineSets, so a MachineSet's copy doesn't count.
pub(super) fn are_counted(excluded: Option<Exclusion>) -> bool {
    match excluded {
        // The progress of objects that can't be read is unknown.
        Some(
            Exclusion::OutOfScope
            | Exclusion::OwnedByMachineDeployment
            | Exclusion::KarpenterMember
            | Exclusion::ReplicasManagedElsewhere
            | Exclusion::NamespaceForbidden
            | Exclusion::Gone,
        ) => false,
        None
        | Some(
            Exclusion::NotAutoscaled
            | Exclusion::InvalidBounds
            | Exclusion::Paused
            | Exclusion::NoScaleFromZero
            | Exclusion::WaitingForTemplate
            | Exclusion::Undecodable,
        ) => true,
    }
}

/// Returns the time at which the oldest deletion was accepted, if its ticket has one.
pub(super) fn oldest(log: &DeletionLog) -> Option<Timestamp> {
    log.entries().iter().filter_map(|entry| entry.ticket.time()).min()
}
