//! The instances of groups by state. A group's Machines are counted when somebody asks, and the result is kept until
//! one of them may count otherwise. Must never return another number than a count of all Machines would.

use std::collections::HashMap;

use parking_lot::Mutex;
use rules::capi::{Machine, Node, ObjectKey};
use rules::{
    GroupId, InstanceCounts, InstanceState,
    instance::{self, Counted},
};

use super::{
    group::Group,
    relations::{ByKey, holder_key},
    state::LiveState,
};

/// The number of Machines or Nodes with the same tail of a providerID above which a change of one drops all counts,
/// rather than to look at each of the others: a tenant may give one providerID to any number of Machines.
const MAX_SHARED: usize = 16;

/// The Machines of a group, counted by state.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct MachineCounts {
    running: u64,
    creating: u64,
    deleting: u64,
    failed: u64,
    holding: usize,
}

impl MachineCounts {
    fn of(machines: impl Iterator<Item = Counted>) -> Self {
        let mut counts = Self::default();
        for Counted { state, has_error, holds_its_place } in machines {
            match state {
                InstanceState::Running => counts.running += 1,
                InstanceState::Creating => counts.creating += 1,
                InstanceState::Deleting => counts.deleting += 1,
            }
            counts.failed += u64::from(has_error);
            counts.holding += usize::from(holds_its_place);
        }
        counts
    }

    /// Returns the instances of a group with this size and these Machines.
    fn instances(self, size: i32) -> InstanceCounts {
        let Self { running, creating, deleting, failed, holding } = self;
        let creating = creating + u64::from(instance::missing(size, holding));
        InstanceCounts { running, creating, deleting, failed }
    }
}

/// The counts of groups that were asked for. A count that is missing is always right.
#[derive(Debug, Default)]
pub(super) struct Counts(Mutex<HashMap<GroupId, MachineCounts>>);

impl Counts {
    pub(super) fn clear(&mut self) {
        self.0.get_mut().clear();
    }

    pub(super) fn remove(&mut self, group: &GroupId) {
        self.0.get_mut().remove(group);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}

impl LiveState {
    /// Returns the instances of a live group.
    pub(super) fn counts_of(&self, id: &GroupId, group: &Group, size: i32) -> InstanceCounts {
        match self.pool_view(id, group) {
            Some(view) => InstanceCounts::of_provider_ids(size, view.pool.provider_ids.len(), view.has_error()),
            None => self.machine_counts_of(id).instances(size),
        }
    }

    fn machine_counts_of(&self, id: &GroupId) -> MachineCounts {
        let kept = self.counts.0.lock().get(id).copied();
        kept.unwrap_or_else(|| {
            let counts = MachineCounts::of(self.members_of(id).map(instance::counted));
            self.counts.0.lock().insert(id.clone(), counts);
            counts
        })
    }

    /// Drops the counts that a Machine changed which was added, changed or deleted.
    pub(super) fn drop_counts_of_machine(&mut self, old: Option<&Machine>, new: Option<&Machine>) {
        if self.counts.is_empty() {
            return;
        }
        for machine in [old, new].into_iter().flatten() {
            self.drop_counts_with(machine);
        }
        // Only these fields affect the Nodes of other Machines.
        let seen_by_others = |machine: &Machine| {
            let Machine { provider_id, node_name, owner, .. } = machine;
            (provider_id.clone(), node_name.clone(), owner.clone())
        };
        if old.map(seen_by_others) != new.map(seen_by_others) {
            for id in [old, new].into_iter().filter_map(|machine| machine?.provider_id.as_ref()) {
                self.drop_counts_by_provider_id(id);
            }
        }
    }

    /// Drops the counts that a Node changed which was added, changed or deleted.
    pub(super) fn drop_counts_of_node(&mut self, old: Option<&Node>, new: Option<&Node>) {
        let leads = |node: &Node| (node.provider_id.clone(), node.machine.clone());
        if self.counts.is_empty() || old.map(leads) == new.map(leads) {
            return;
        }
        for node in [old, new].into_iter().flatten() {
            let by_name = self.machines_by_node.get(&node.meta.key.name).map(|ByKey(machine)| &machine.meta.key);
            let machines: Vec<_> = by_name.chain(&node.machine).cloned().collect();
            self.drop_counts_with_any(&machines);
            if let Some(id) = &node.provider_id {
                self.drop_counts_by_provider_id(id);
            }
        }
    }

    /// Drops the counts of Machines whose Nodes depend on who holds this providerID.
    fn drop_counts_by_provider_id(&mut self, id: &str) {
        let tail = holder_key(id);
        let machines = self.holders.machines(tail).map(|machine| Some(&machine.meta.key));
        let named = self.nodes_by_provider_id.get(tail).map(|ByKey(node)| node.machine.as_ref());
        let concerned: Vec<_> = machines.take(MAX_SHARED + 1).chain(named.take(MAX_SHARED + 1)).collect();
        if concerned.len() > MAX_SHARED {
            self.counts.clear();
            return;
        }
        let machines: Vec<_> = concerned.into_iter().flatten().cloned().collect();
        self.drop_counts_with_any(&machines);
    }

    fn drop_counts_with_any(&mut self, machines: &[ObjectKey]) {
        for machine in machines {
            if let Some(machine) = self.machines.get(machine).cloned() {
                self.drop_counts_with(&machine);
            }
        }
    }

    fn drop_counts_with(&mut self, machine: &Machine) {
        if let Some(group) = self.group_of(machine) {
            self.counts.remove(&group);
        }
    }
}

#[cfg(test)]
impl LiveState {
    /// Returns the Machines of a group by state: as readers get them, and all counted anew for comparison.
    pub(super) fn counts_and_count_of(&self, id: &GroupId) -> (MachineCounts, MachineCounts) {
        (self.machine_counts_of(id), MachineCounts::of(self.members_of(id).map(instance::counted)))
    }
}
