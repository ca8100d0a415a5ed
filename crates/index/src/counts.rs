//! The instances of groups by state, which each scrape and page asks for: kept until a change that may concern them.
//! Must never return other numbers than a count of all Machines would. A change of what relates Machines and Nodes drops
//! all counts, rather than to find out which groups it concerns.

use std::collections::HashMap;

use parking_lot::Mutex;
use rules::{
    GroupId, InstanceCounts,
    capi::{Machine, Node},
};

use super::{group::Group, state::LiveState};

/// The counts of groups that were asked for, with the sizes that they are for.
#[derive(Debug, Default)]
pub(super) struct KeptCounts(Mutex<HashMap<GroupId, (i32, InstanceCounts)>>);

impl KeptCounts {
    /// Drops all of them.
    pub(super) fn clear(&mut self) {
        self.0.get_mut().clear();
    }

    pub(super) fn remove(&mut self, group: &GroupId) {
        self.0.get_mut().remove(group);
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}

impl LiveState {
    /// Returns the instances of a live group of this size.
    pub(super) fn counts_of(&self, id: &GroupId, group: &Group, size: i32) -> InstanceCounts {
        if let Some(view) = self.pool_view(id, group) {
            return InstanceCounts::of_provider_ids(size, view.pool.provider_ids.len(), view.has_error());
        }
        let kept = self.counts.0.lock().get(id).copied();
        if let Some((_, counts)) = kept.filter(|(of_size, _)| *of_size == size) {
            return counts;
        }
        let counts = InstanceCounts::of_machines(size, self.members_of(id));
        self.counts.0.lock().insert(id.clone(), (size, counts));
        counts
    }

    /// Drops the counts that a Machine changed which was added, changed or deleted.
    pub(super) fn drop_counts_of_machine(&mut self, old: Option<&Machine>, new: Option<&Machine>) {
        let relations = |machine: &Machine| {
            let Machine { provider_id, node_name, owner, .. } = machine;
            (provider_id.clone(), node_name.clone(), owner.clone())
        };
        if old.map(relations) != new.map(relations) {
            self.counts.clear();
        } else if let Some(group) = new.and_then(|machine| self.group_of(machine)) {
            self.counts.remove(&group);
        }
    }

    /// Drops the counts that a Node changed which was added, changed or deleted.
    pub(super) fn drop_counts_of_node(&mut self, old: Option<&Node>, new: Option<&Node>) {
        let relations = |node: &Node| (node.provider_id.clone(), node.machine.clone());
        if old.map(relations) != new.map(relations) {
            self.counts.clear();
        }
    }
}
