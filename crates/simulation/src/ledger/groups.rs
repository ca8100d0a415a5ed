//! Checks on the groups that copies return, and on the time at which they forget deleted ones.

use std::collections::BTreeSet;

use proto::{NodeGroupForNodeResponse, NodeGroupsResponse};

use super::{
    Check, Group, Ledger,
    calls::{Asked, decode},
};
use crate::entropy::{Nanos, SECOND};

/// The age from which a group is known after each Refresh.
const LONG_THERE: Nanos = 600 * SECOND;
/// The time since a group's deletion after which each Refresh drops it.
const LONG_GONE: Nanos = LONG_THERE;
/// The time since a group's deletion after which the next change drops it: 15 minutes, and the lag of a watch.
const FORGETS: Nanos = 1080 * SECOND;

impl Ledger {
    /// Records a Refresh, which changes the groups for all callers of this copy until they ask for them again.
    pub(super) fn refreshes(&mut self, copy: usize) {
        self.last_groups.remove(&copy);
        self.last_refreshed.insert(copy, self.now);
    }

    /// Checks the groups that a copy has returned.
    pub(super) fn groups_answered(&mut self, asked: &Asked, message: &[u8]) {
        let now = self.now;
        let answer: NodeGroupsResponse = decode(message);
        let groups: BTreeSet<String> = answer.node_groups.into_iter().map(|group| group.id).collect();
        self.are_of_caller(asked.copy, groups.iter());
        // Groups come and go with a successful Refresh; here copies don't know the connections of their callers.
        let fresh = self.last_fresh.get(&asked.copy).copied().unwrap_or(0);
        let is_missing = |(id, group): &(&String, &Group)| {
            !group.is_gone && !group.is_deleting && !groups.contains(*id) && fresh > group.created + LONG_THERE
        };
        let missing: Vec<_> = self.groups.iter().filter(is_missing).map(|(id, _)| id.clone()).collect();
        if !missing.is_empty() {
            self.find(Check::Consistent, format!("copy {} leaves {missing:?} out of its groups", asked.copy));
        }
        let is_left = |(id, since): &(&String, &Nanos)| groups.contains(*id) && fresh > **since + LONG_GONE;
        let left: Vec<_> = self.gone.iter().filter(is_left).map(|(id, _)| id.clone()).collect();
        if !left.is_empty() {
            self.find(Check::Consistent, format!("copy {} names {left:?}, which are long gone", asked.copy));
        }
        if self.last_refreshed.get(&asked.copy).is_none_or(|refreshed| *refreshed <= asked.at) {
            self.last_groups.insert(asked.copy, (now, groups));
        }
    }

    /// Checks the group that a copy has returned for a Node.
    pub(super) fn group_of_node_answered(&mut self, asked: &Asked, message: &[u8]) {
        let answer: NodeGroupForNodeResponse = decode(message);
        let id = answer.node_group.unwrap_or_default().id;
        self.are_of_caller(asked.copy, [&id].into_iter());
        let known = self.last_groups.get(&asked.copy).filter(|(since, _)| *since <= asked.at);
        if !id.is_empty() && known.is_some_and(|(_, known)| !known.contains(&id)) {
            let what = format!("copy {} answers that a Node is of {id}, which NodeGroups didn't name", asked.copy);
            self.find(Check::Consistent, what);
        }
    }

    /// Returns the groups that no copy may know any more: each change of an object drops those deleted long ago.
    pub(crate) fn forgotten(&self) -> Vec<String> {
        let is_forgotten = |since: Nanos| self.last_changed > since + FORGETS;
        self.gone.iter().filter(|(_, since)| is_forgotten(**since)).map(|(id, _)| id.clone()).collect()
    }
}
