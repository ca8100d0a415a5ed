//! Deleted groups, which continue to answer until the next Refresh. On a replica that gets no Refresh they are
//! dropped after a time, by later changes.

use std::{collections::VecDeque, time::Duration};

use nodegroup::GroupId;
use tokio::time::Instant;

use super::{group::Group, live_state::LiveState};

/// The time for which a deleted group answers.
const ANSWERS_FOR: Duration = Duration::from_secs(15 * 60);
/// The maximum number of groups that one change drops, so that its cost stays bounded after many deletions.
const DROPPED_AT_ONCE: usize = 4;

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
    fn take_old(&mut self) -> Option<(Instant, GroupId)> {
        let is_old = self.0.front().is_some_and(|(since, _)| since.elapsed() >= ANSWERS_FOR);
        if is_old { self.0.pop_front() } else { None }
    }

    /// Returns true if there are no groups.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl LiveState {
    /// Drops groups that were deleted long ago.
    pub(super) fn drop_deleted(&mut self) {
        for _ in 0..DROPPED_AT_ONCE {
            let Some((since, id)) = self.deleted_groups.take_old() else { return };
            if self.groups.get(&id).is_some_and(|group| group.deleted_at == Some(since))
                && let Some(group) = self.groups.remove(&id)
            {
                let price = group.served.as_ref().and_then(|served| served.definition.price.as_ref());
                self.prices.replace(price, None);
            }
        }
    }
}
