//! Updates the counts of instances after each change of an object, and reads them.

use std::{collections::BTreeSet, sync::Arc};

use arcstr::ArcStr;
use capi::{Machine, Node, ObjectKey, ScalableResource};
use nodegroup::{GroupId, InstanceCounts, instance};

use super::{
    counts::MachineCounts,
    group::Group,
    holder::{ByKey, holder_key},
    live_state::LiveState,
    relation::owner_of,
};

impl LiveState {
    /// Returns the instances of a live group, in time proportional to its MachineSets, and to its Machines that depend
    /// on a shared tail.
    pub(super) fn counts_of(&self, id: &GroupId, group: &Group, size: i32) -> InstanceCounts {
        match self.pool_view(id, group) {
            Some(view) => InstanceCounts::of_provider_ids(size, view.pool.provider_ids.len(), view.has_error()),
            None => self.machine_counts_of(id).instances(size),
        }
    }

    fn machine_counts_of(&self, id: &GroupId) -> MachineCounts {
        let uncounted = self.uncounted_of(id).map(|machine| instance::counted(self.view_of(machine)));
        let mut counts = MachineCounts::all(uncounted);
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
        let by_name = self.machines_by_node.get(name).map(|ByKey(machine)| &machine.meta.key);
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

    /// Collects the Machines whose Nodes depend on holders with the tails of these providerIDs. Those of a shared tail
    /// are collected once, when it comes to be shared. Then they are about twice as many as the limit at most, and so
    /// they are when it ceases to be.
    fn found_by<'a>(&mut self, ids: impl Iterator<Item = &'a str>, into: &mut Vec<ObjectKey>) {
        let mut last = None;
        for tail in ids.map(holder_key) {
            if last.replace(tail) == Some(tail) {
                continue;
            }
            let limit = self.shared_tails.limit;
            let nodes = || self.nodes_by_provider_id.get(tail);
            let is_shared = self.holders.with_tail(tail).nth(limit).is_some() || nodes().nth(limit).is_some();
            let tails = &mut self.shared_tails.tails;
            if is_shared && tails.contains(tail) {
                continue;
            }
            if is_shared {
                tails.insert(tail.to_owned());
            } else {
                tails.remove(tail);
            }
            let machines = self.holders.machines(tail).map(|machine| &machine.meta.key);
            into.extend(machines.chain(nodes().filter_map(|ByKey(node)| node.machine.as_ref())).cloned());
        }
    }

    /// Returns true if the Node of a Machine may depend on holders or Nodes with a shared tail. [`Self::known_node_of`]
    /// looks up no other tails than that of the Machine's providerID, and those of the Nodes that name the Machine.
    fn depends_on_shared_tail(&self, machine: &Machine) -> bool {
        let tails = &self.shared_tails.tails;
        let is_shared = |id: &ArcStr| tails.contains(holder_key(id));
        let mut nodes = self.nodes_by_machine.get(&machine.meta.key).map(|ByKey(node)| node);
        !tails.is_empty()
            && (machine.provider_id.as_ref().is_some_and(is_shared)
                || nodes.any(|node| node.provider_id.as_ref().is_some_and(is_shared)))
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
        let counted = (!self.depends_on_shared_tail(&machine)).then(|| instance::counted(self.view_of(&machine)));
        if let Some(siblings) = self.machines_by_owner.get_mut(&owner) {
            siblings.count(&machine, counted);
        }
    }
}

#[cfg(test)]
impl LiveState {
    /// Returns the Machines of a group by state: as readers get them, and all counted anew for comparison.
    pub(super) fn counts_and_count_of(&self, id: &GroupId) -> (MachineCounts, MachineCounts) {
        (self.machine_counts_of(id), MachineCounts::all(self.members_of(id).map(instance::counted)))
    }
}
