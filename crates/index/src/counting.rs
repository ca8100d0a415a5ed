//! Updates the counts of instances after each change of an object, and reads them.

use std::{collections::BTreeSet, sync::Arc};

use arcstr::ArcStr;
use capi::{Machine, Node, ObjectKey, ScalableKind, ScalableResource};
use nodegroup::{GroupId, InstanceCounts, instance};

use super::{
    counts::MachineCounts,
    holder::{MachineByNode, holder_key},
    live_state::LiveState,
    node_key::NodeByProviderId,
    relation::owner_of,
};

impl LiveState {
    /// Returns the instances of a live group, in time proportional to its MachineSets.
    pub(super) fn counts_of(&self, id: &GroupId, pool: Option<&ScalableResource>, size: i32) -> InstanceCounts {
        if id.kind == ScalableKind::MachinePool {
            return InstanceCounts::of_provider_ids(size, pool.map_or(0, |pool| pool.provider_ids.len()));
        }
        let counts = if self.shared_tails.tails.is_empty() {
            self.kept_counts_of(id)
        } else {
            MachineCounts::all(self.members_of(id).map(instance::counted))
        };
        counts.instances(size)
    }

    fn kept_counts_of(&self, id: &GroupId) -> MachineCounts {
        let mut counts = MachineCounts::default();
        for siblings in self.siblings_of(id) {
            counts.merge(siblings.counts);
        }
        counts
    }

    /// Updates the counts after a Machine was added, changed or deleted.
    pub(super) fn count_machine(&mut self, old: Option<&Machine>, new: Option<&Machine>) {
        let mut concerned: Vec<_> = new.map(|new| new.meta.key.clone()).into_iter().collect();
        // Only these fields affect the Nodes of other Machines.
        let seen_by_others = |machine: &Machine| {
            let Machine { provider_id, node_name, owner, .. } = machine;
            (provider_id.clone(), node_name.clone(), owner.clone())
        };
        if old.map(seen_by_others) != new.map(seen_by_others) {
            let ids = [old, new].map(|machine| machine.and_then(|machine| machine.provider_id.as_deref()));
            self.found_by(ids.into_iter().flatten(), &mut concerned);
        }
        self.count_all(concerned);
    }

    /// Updates the counts after a Node was added, changed or deleted.
    pub(super) fn count_node(&mut self, old: Option<&Node>, new: Option<&Node>) {
        let leads = |node: &Node| (node.provider_id.clone(), node.machine.clone());
        if old.map(leads) == new.map(leads) {
            return;
        }
        let both = || [old, new].into_iter().flatten();
        let Some(name) = both().next().map(|node| &node.meta.key.name) else { return };
        let by_name = self.machines_by_node.get(name).map(|MachineByNode(machine)| &machine.meta.key);
        let mut concerned: Vec<_> = by_name.chain(both().filter_map(|node| node.machine.as_ref())).cloned().collect();
        self.found_by(both().filter_map(|node| node.provider_id.as_deref()), &mut concerned);
        self.count_all(concerned);
    }

    /// Updates the counts after a MachinePool was added, changed or deleted, since it may list other ids.
    pub(super) fn count_pool(&mut self, old: Option<&ScalableResource>, new: Option<&ScalableResource>) {
        let ids = |pool: Option<&ScalableResource>| {
            pool.into_iter().flat_map(|pool| &pool.provider_ids).cloned().collect::<BTreeSet<_>>()
        };
        let mut concerned = Vec::new();
        self.found_by(ids(old).symmetric_difference(&ids(new)).map(ArcStr::as_str), &mut concerned);
        self.count_all(concerned);
    }

    /// Updates the counts after the Machines of a MachineSet have moved to another group: if several Machines have
    /// one providerID, their groups decide which one a Node leads to.
    pub(super) fn count_set(&mut self, set: &GroupId) {
        let ids = self.machines_of(set).filter_map(|machine| machine.provider_id.clone());
        let shared: Vec<_> = ids.filter(|id| self.holders.with_tail(holder_key(id)).nth(1).is_some()).collect();
        let mut concerned = Vec::new();
        self.found_by(shared.iter().map(ArcStr::as_str), &mut concerned);
        self.count_all(concerned);
    }

    /// Collects the Machines whose Nodes depend on holders with the tails of these providerIDs.
    fn found_by<'a>(&mut self, ids: impl Iterator<Item = &'a str>, into: &mut Vec<ObjectKey>) {
        let mut last = None;
        for tail in ids.map(holder_key) {
            if last.replace(tail) == Some(tail) {
                continue;
            }
            let limit = self.shared_tails.limit;
            let nodes = || self.nodes_by_provider_id.get(tail);
            if self.holders.with_tail(tail).nth(limit).is_some() || nodes().nth(limit).is_some() {
                self.shared_tails.tails.insert(tail.to_owned());
                continue;
            }
            let machines = self.holders.machines(tail).map(|machine| &machine.meta.key);
            into.extend(machines.chain(nodes().filter_map(|NodeByProviderId(node)| node.machine.as_ref())).cloned());
            self.shared_tails.tails.remove(tail);
        }
    }

    fn count_all(&mut self, mut machines: Vec<ObjectKey>) {
        machines.sort_unstable();
        machines.dedup();
        for machine in &machines {
            self.count(machine);
        }
    }

    fn count(&mut self, key: &ObjectKey) {
        let Some(machine) = self.machines.get(key) else { return };
        let Some(owner) = owner_of(machine) else { return };
        let machine = Arc::clone(machine);
        let counted = instance::counted(self.view_of(&machine));
        if let Some(siblings) = self.machines_by_owner.get_mut(&owner) {
            siblings.count(&machine, counted);
        }
    }
}

#[cfg(test)]
impl LiveState {
    /// Returns the Machines of a group by state: the kept counts, and new ones for comparison.
    pub(super) fn counts_and_count_of(&self, id: &GroupId) -> (MachineCounts, MachineCounts) {
        (
            self.kept_counts_of(id),
            MachineCounts::all(self.machines_of(id).map(|machine| instance::counted(self.view_of(machine)))),
        )
    }

    /// Returns true if the kept counts aren't used, since too many objects share the tail of a providerID.
    pub(super) fn has_shared_tails(&self) -> bool {
        !self.shared_tails.tails.is_empty()
    }
}
