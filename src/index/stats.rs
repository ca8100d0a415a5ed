//! Numbers of the picture, for metrics: what the groups are, what is wrong with them, and what they are going through.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use jiff::Timestamp;
use nodegroup::{GroupId, LeftOut};

use super::{
    Index,
    group::Group,
    standing::{Standing, StandingKind},
};

/// A group's problem, in closed sets of words.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GroupProblem {
    /// Its id.
    pub group: String,
    /// Its standing, as in [`Stats::groups`].
    pub state: &'static str,
    /// The kind of the problem, or `left_out` for a group that has none of its own.
    pub problem: &'static str,
}

/// A group that is rolling out, or about to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GroupRollout {
    /// Its id.
    pub group: String,
    /// The evidence for it, in one word.
    pub cause: &'static str,
    /// Since when.
    pub since: Timestamp,
    /// True if its Machines are deleted all the same.
    pub ignored: bool,
}

/// A group whose size is beyond one of its bounds.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OutsideBounds {
    /// Its id.
    pub group: String,
    /// Which: `min` or `max`.
    pub bound: &'static str,
    /// By how many replicas.
    pub by: u64,
}

/// Numbers of the picture, for metrics.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Stats {
    /// MachineDeployments, MachineSets and MachinePools by what they are: `served` or why not.
    pub groups: BTreeMap<&'static str, u64>,
    /// Problems, each with its group.
    pub problems: Vec<GroupProblem>,
    /// Which groups are rolling out.
    pub rollouts: Vec<GroupRollout>,
    /// Which groups' sizes are beyond their bounds.
    pub outside_bounds: Vec<OutsideBounds>,
    /// Machines.
    pub machines: u64,
    /// Nodes.
    pub nodes: u64,
    /// Groups that have a price.
    pub priced: u64,
}

impl Index {
    /// Numbers for metrics, at the cost of one look at every group.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let inner = self.inner.read();
        let live = &inner.live;
        let mut sums = Stats {
            machines: live.machines.len() as u64,
            nodes: live.nodes.len() as u64,
            priced: live.prices.priced() as u64,
            ..Stats::default()
        };
        let now = Instant::now();
        for (id, group) in &live.groups {
            sums.outside_bounds.extend(outside_bounds(id, group, now));
            if let (Standing::Live(()), Some(rollout)) = (&group.standing, &group.rollout) {
                sums.rollouts.push(GroupRollout {
                    group: id.to_string(),
                    cause: rollout.cause.as_str(),
                    since: rollout.since,
                    ignored: group.holding_rollout().is_none(),
                });
            }
            let state = match group.standing.kind() {
                StandingKind::Gone => continue,
                kind => kind.as_str(),
            };
            let problems = match &group.served {
                Some(served) if group.is_live() => &served.definition.problems,
                Some(_) | None => group.standing.problems(),
            };
            *sums.groups.entry(state).or_default() += 1;
            let mut kinds: BTreeSet<_> = problems.iter().map(|problem| problem.kind.as_str()).collect();
            let left_out =
                matches!(group.standing, Standing::LeftOut(LeftOut::InvalidBounds | LeftOut::NoScaleFromZero, _));
            if left_out && kinds.is_empty() {
                kinds.insert("left_out");
            }
            let problems = kinds.into_iter().map(|problem| GroupProblem { group: id.to_string(), state, problem });
            sums.problems.extend(problems);
        }
        sums
    }
}

/// Returns by how far the size of a group is beyond its bounds.
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
