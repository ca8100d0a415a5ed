//! Deleted groups, which are served until the next Refresh. A copy of the program that gets no Refresh drops them after
//! a time, at later changes.

use std::{collections::VecDeque, time::Duration};

use nodegroup::GroupId;
use tokio::time::Instant;

use super::group::Group;

/// The time for which a deleted group is served.
const ANSWERS_FOR: Duration = Duration::from_secs(15 * 60);
/// The deleted groups with the times of their deletions, in order. A group may exist again by now.
#[derive(Debug, Default)]
pub(super) struct DeletedGroups(VecDeque<(Instant, GroupId)>);

impl DeletedGroups {
    /// Records the deletion of a group. A repeated report keeps the first time.
    pub(super) fn note(&mut self, id: &GroupId, group: &mut Group) {
        if group.deleted_at.is_none() {
            let now = Instant::now();
            group.deleted_at = Some(now);
            self.0.push_back((now, id.clone()));
        }
    }

    /// Forgets all, after all of them were dropped.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Removes and returns the first one that is old enough.
    pub(super) fn take_old(&mut self) -> Option<(Instant, GroupId)> {
        let is_old = self.0.front().is_some_and(|(since, _)| since.elapsed() >= ANSWERS_FOR);
        if is_old { self.0.pop_front() } else { None }
    }

    /// Returns true if there are no groups.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
