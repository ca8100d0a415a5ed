//! The size and the Nodes of each group over the last hours, for the graph on its page: one sample a minute, in memory
//! alone and within bounds.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use rules::GroupId;

const KEPT: u32 = 6 * 60;
/// The maximum number of runs of a group: one that changes more often has a shorter past. With six bytes each, 1,000
/// groups take 1.5 MB at most.
const MOST_RUNS: usize = 240;
const MOST_GROUPS: usize = 5_000;

/// The past of each group. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Past(Arc<Mutex<HashMap<GroupId, Vec<Run>>>>);

/// A number of minutes without a change. Larger numbers than these are cut.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Run {
    pub(crate) minutes: u16,
    pub(crate) size: u16,
    pub(crate) nodes: u16,
}

impl Past {
    /// Adds a sample of all groups: their sizes and Nodes. It forgets all others.
    pub(crate) fn add(&self, groups: impl Iterator<Item = (GroupId, i32, u64)>) {
        let mut past = self.0.lock();
        let mut known = std::mem::take(&mut *past);
        for (id, size, nodes) in groups.take(MOST_GROUPS) {
            let mut runs = known.remove(&id).unwrap_or_default();
            add(&mut runs, u16::try_from(size.max(0)).unwrap_or(u16::MAX), u16::try_from(nodes).unwrap_or(u16::MAX));
            past.insert(id, runs);
        }
    }

    /// Returns the past of a group, the oldest run first.
    pub(crate) fn of(&self, id: &GroupId) -> Vec<Run> {
        self.0.lock().get(id).cloned().unwrap_or_default()
    }
}

fn add(runs: &mut Vec<Run>, size: u16, nodes: u16) {
    match runs.last_mut() {
        Some(last) if (last.size, last.nodes) == (size, nodes) => last.minutes += 1,
        Some(_) | None => {
            if runs.len() == MOST_RUNS {
                runs.remove(0);
            }
            runs.push(Run { minutes: 1, size, nodes });
        }
    }
    let minutes: u32 = runs.iter().map(|run| u32::from(run.minutes)).sum();
    if minutes > KEPT
        && let Some(first) = runs.first_mut()
    {
        first.minutes -= 1;
        if first.minutes == 0 {
            runs.remove(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use rules::capi::{ObjectKey, ScalableKind};

    use super::*;

    fn id(number: usize) -> GroupId {
        GroupId::new(ScalableKind::MachineDeployment, ObjectKey::new("team-a", format!("g{number}")))
    }

    fn after(samples: impl Iterator<Item = (i32, u64)>) -> Vec<Run> {
        let past = Past::default();
        samples.for_each(|(size, nodes)| past.add([(id(0), size, nodes)].into_iter()));
        past.of(&id(0))
    }

    #[test]
    fn equal_samples_are_one_run_of_at_most_six_hours() {
        let runs = after((0..500).map(|at| if at < 200 { (3, 2) } else { (3, 3) }));
        assert_eq!(runs, [Run { minutes: 60, size: 3, nodes: 2 }, Run { minutes: 300, size: 3, nodes: 3 }]);
    }

    #[test]
    fn a_group_that_changes_every_minute_has_a_shorter_past() {
        let runs = after((0..500).map(|at| (at, 0)));
        assert_eq!((runs.len(), runs[0].size, runs[MOST_RUNS - 1].size), (MOST_RUNS, 260, 499));
    }

    #[test]
    fn numbers_are_cut_where_they_do_not_fit() {
        assert_eq!(after([(-1, u64::MAX)].into_iter()), [Run { minutes: 1, size: 0, nodes: u16::MAX }]);
    }

    #[test]
    fn groups_that_are_gone_and_those_beyond_the_bound_have_none() {
        let past = Past::default();
        past.add((0..=MOST_GROUPS).map(|at| (id(at), 1, 1)));
        assert_eq!((past.of(&id(MOST_GROUPS - 1)).len(), past.of(&id(MOST_GROUPS)).len()), (1, 0));
        past.add([(id(1), 1, 1)].into_iter());
        assert_eq!((past.of(&id(0)).len(), past.of(&id(1))[0].minutes), (0, 2));
    }
}
