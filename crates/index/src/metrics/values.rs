//! The values of node groups for a scrape. The index is copied group by group, and nothing is encoded here.

use nodegroup::{InstanceCounts, NodeTemplate, Source};

use crate::families::count;
use crate::{Detail, GroupSnapshot, Index, Stats};

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

/// The values of the series, sorted by group.
#[derive(Default)]
pub(super) struct Values {
    pub(super) stats: Stats,
    pub(super) groups: Vec<GroupNumbers>,
}

impl Values {
    pub(super) fn of(index: &Index) -> Self {
        let stats = index.stats();
        let snapshot = index.snapshot(None, Detail::Counts);
        let mut groups: Vec<_> = snapshot.groups.iter().filter_map(numbers).collect();
        groups.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        Self { stats, groups }
    }

    /// Adds what has series per group.
    pub(super) fn extend_series(&mut self, other: Self) {
        let Self { stats: Stats { problems, rollouts, outside_bounds, .. }, groups } = other;
        self.stats.problems.extend(problems);
        self.stats.rollouts.extend(rollouts);
        self.stats.outside_bounds.extend(outside_bounds);
        self.groups.extend(groups);
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
