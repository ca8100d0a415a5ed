//! The numbers of groups and of groups in need, kept up to date as groups change: a reader of many indexes visits no
//! group.

use std::collections::HashSet;

use nodegroup::{Exclusion, GroupId};

use super::Index;

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

/// The groups that are counted.
#[derive(Debug, Default)]
pub(super) struct Tally {
    served: HashSet<GroupId>,
    in_need: HashSet<GroupId>,
}

impl Tally {
    /// Counts a group as it is now; `excluded` is the reason why it isn't one.
    pub(super) fn count(&mut self, id: &GroupId, excluded: Option<Exclusion>, has_problems: bool) {
        set(&mut self.served, id, excluded.is_none());
        set(&mut self.in_need, id, has_problems || excluded.is_some_and(Exclusion::is_error));
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.served.is_empty() && self.in_need.is_empty()
    }
}

fn set(groups: &mut HashSet<GroupId>, id: &GroupId, is_in: bool) {
    if is_in == groups.contains(id) {
        return;
    }
    if is_in {
        groups.insert(id.clone());
    } else {
        groups.remove(id);
    }
}

impl Index {
    /// Returns the numbers of objects, at a cost that doesn't depend on them.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        let inner = self.inner.read();
        let live = &inner.live;
        Sizes {
            groups: live.tally.served.len() as u64,
            in_need: live.tally.in_need.len() as u64,
            machines: live.machines.len() as u64,
            nodes: live.nodes.len() as u64,
        }
    }
}
