//! The values of node groups for a scrape. The index is copied group by group, and nothing is encoded here.

use jiff::Timestamp;
use nodegroup::{InstanceCounts, NodeTemplate, Source};

use super::deletions::{are_counted, oldest};
use crate::{Detail, GroupSnapshot, Index, Stats};
use metric_families::count;

/// The metrics of a node group.
pub(super) struct GroupNumbers {
    pub(super) id: String,
    pub(super) size: i64,
    pub(super) min: i64,
    pub(super) max: i64,
    pub(super) running: i64,
    pub(super) creating: i64,
    pub(super) deleting: i64,
    pub(super) failed: i64,
    pub(super) source: &'static str,
}

/// The deletions of a group in progress.
pub(super) struct Deletions {
    pub(super) id: String,
    /// The number of deletions; `None` if the log can't be read.
    pub(super) count: Option<i64>,
    /// The time at which the oldest was accepted, if its ticket has one.
    pub(super) oldest: Option<Timestamp>,
}

/// The values of the series, sorted by group.
#[derive(Default)]
pub(super) struct Values {
    pub(super) stats: Stats,
    pub(super) groups: Vec<GroupNumbers>,
    pub(super) deletions: Vec<Deletions>,
}

impl Values {
    pub(super) fn of(index: &Index) -> Self {
        let stats = index.stats();
        let snapshot = index.snapshot(None, Detail::Counts);
        let mut groups: Vec<_> = snapshot.groups.iter().filter_map(numbers).collect();
        groups.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        Self { stats, groups, deletions: snapshot.groups.iter().filter_map(deletions).collect() }
    }

    /// Adds what has series per group.
    pub(super) fn extend_series(&mut self, other: Self) {
        let Self { stats: Stats { problems, rollouts, outside_bounds, .. }, groups, deletions } = other;
        self.stats.problems.extend(problems);
        self.stats.rollouts.extend(rollouts);
        self.stats.outside_bounds.extend(outside_bounds);
        self.groups.extend(groups);
        self.deletions.extend(deletions);
    }
}

/// Returns the numbers of a live group, or `None` for an object that isn't one.
fn numbers(group: &GroupSnapshot) -> Option<GroupNumbers> {
    let served = group.served()?;
    let bounds = served.definition.bounds;
    let InstanceCounts { running, creating, deleting, failed } = group.counts;
    Some(GroupNumbers {
        id: group.id.to_string(),
        size: group.size.into(),
        min: bounds.min.into(),
        max: bounds.max.into(),
        running: count(running),
        creating: count(creating),
        deleting: count(deleting),
        failed: count(failed),
        source: served.definition.template.as_ref().and_then(NodeTemplate::source).map_or("none", Source::as_str),
    })
}

/// Returns the deletions in progress, or `None` if there are none of this program's.
fn deletions(group: &GroupSnapshot) -> Option<Deletions> {
    let log = group.deletion_log.as_ref()?;
    if !are_counted(group.standing.as_ref().err().map(|excluded| excluded.reason)) {
        return None;
    }
    let id = group.id.to_string();
    Some(match log.read() {
        Ok(log) => Deletions { id, count: Some(count(log.entries().len() as u64)), oldest: oldest(log) },
        Err(_) => Deletions { id, count: None, oldest: None },
    })
}
