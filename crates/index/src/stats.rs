//! Statistics of the index, for metrics: the state of the groups, their problems and their rollouts.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use jiff::Timestamp;
use nodegroup::{Exclusion, GroupId};

use super::{Index, group::Group};

/// The word of metrics and JSON for a node group; an object that is none has the reason's word.
pub(super) const SERVED: &str = "served";

/// A group's problem, as values of closed sets.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GroupProblem {
    /// Its id.
    pub group: String,
    /// Its state, as in [`Stats::groups`].
    pub state: &'static str,
    /// The kind of the problem, or `left_out` for a group that is left out without a problem.
    pub problem: &'static str,
}

/// A group with a rollout, in progress or about to begin.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GroupRollout {
    /// Its id.
    pub group: String,
    /// The evidence for it, in one word.
    pub cause: &'static str,
    /// The time of its beginning.
    pub since: Timestamp,
    /// True if its Machines are deleted nevertheless.
    pub ignored: bool,
}

/// A group whose size is outside its bounds.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OutsideBounds {
    /// Its id.
    pub group: String,
    /// The bound: `min` or `max`.
    pub bound: &'static str,
    /// The number of replicas outside the bound.
    pub by: u64,
}

/// Statistics of the index, for metrics.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Stats {
    /// The number of MachineDeployments, MachineSets and MachinePools by state: `served`, or the reason for not being a
    /// group.
    pub groups: BTreeMap<&'static str, u64>,
    /// The problems, each with its group.
    pub problems: Vec<GroupProblem>,
    /// The groups with a rollout.
    pub rollouts: Vec<GroupRollout>,
    /// The groups whose sizes are outside their bounds.
    pub outside_bounds: Vec<OutsideBounds>,
    /// The number of Machines.
    pub machines: u64,
    /// The number of Nodes.
    pub nodes: u64,
    /// The number of groups with a price.
    pub priced: u64,
}

/// The numbers of objects of an index.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Sizes {
    /// The number of node groups.
    pub groups: u64,
    /// The number of node groups with problems, and of objects that are left out because of an error.
    pub in_need: u64,
    /// The number of Machines.
    pub machines: u64,
    /// The number of Nodes.
    pub nodes: u64,
}

impl Index {
    /// Returns the numbers of objects, at the cost of one visit to every group.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        let live = &self.inner.read().live;
        let (machines, nodes) = (live.machines.len() as u64, live.nodes.len() as u64);
        let mut sizes = Sizes { machines, nodes, ..Sizes::default() };
        for group in live.groups.values() {
            sizes.groups += u64::from(group.is_live());
            sizes.in_need += u64::from(group.is_in_need());
        }
        sizes
    }

    /// Returns statistics for metrics, at the cost of one visit to every group.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let inner = self.inner.read();
        let live = &inner.live;
        let mut sums = Stats {
            machines: live.machines.len() as u64,
            nodes: live.nodes.len() as u64,
            priced: live.priced().count() as u64,
            ..Stats::default()
        };
        let now = Instant::now();
        for (id, group) in &live.groups {
            sums.outside_bounds.extend(outside_bounds(id, group, now));
            if let (None, Some(rollout)) = (&group.excluded, &group.rollout) {
                sums.rollouts.push(GroupRollout {
                    group: id.to_string(),
                    cause: rollout.cause.as_str(),
                    since: rollout.since,
                    ignored: group.holding_rollout().is_none(),
                });
            }
            let reason = group.excluded.as_ref().map(|excluded| excluded.reason);
            if reason == Some(Exclusion::Gone) {
                continue;
            }
            let state = reason.map_or(SERVED, Exclusion::as_str);
            *sums.groups.entry(state).or_default() += 1;
            let mut kinds: BTreeSet<_> = group.problems().iter().map(|problem| problem.kind.as_str()).collect();
            let left_out = matches!(reason, Some(Exclusion::InvalidBounds | Exclusion::NoScaleFromZero));
            if left_out && kinds.is_empty() {
                kinds.insert("left_out");
            }
            let problems = kinds.into_iter().map(|problem| GroupProblem { group: id.to_string(), state, problem });
            sums.problems.extend(problems);
        }
        sums
    }
}

/// Returns the distance of a group's size from its bounds, if it is outside.
fn outside_bounds(id: &GroupId, group: &Group, now: Instant) -> Option<OutsideBounds> {
    let bounds = group.served.as_ref().filter(|_| group.is_live())?.definition.bounds;
    let size = group.size(now);
    let (bound, limit) = match (size < bounds.min, size > bounds.max) {
        (true, _) => ("min", bounds.min),
        (false, true) => ("max", bounds.max),
        (false, false) => return None,
    };
    Some(OutsideBounds { group: id.to_string(), bound, by: size.abs_diff(limit).into() })
}
