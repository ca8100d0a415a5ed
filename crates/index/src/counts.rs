//! The instances of groups by state, kept up to date with each change, so that readers of counts visit no Machine. A
//! Machine counts with its owner, since the owner's group may change without a visit to its Machines. Must never
//! return another number than a count of all Machines would.

use std::{collections::BTreeSet, sync::Arc};

use arcstr::ArcStr;
use capi::{Machine, Node, ObjectKey, ScalableKind, ScalableResource};
use nodegroup::{GroupId, InstanceCounts, InstanceState, MachineView, instance, instance::Counted};

use super::{
    holder::{Holder, MachineByNode, holder_key},
    live_state::LiveState,
    members::NodeByProviderId,
    relation::owner_of,
};

/// The number of Machines or Nodes with the same tail of a providerID above which a change of one updates no other.
const MAX_SHARED: usize = 16;

/// The Machines of an owner, counted by state.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct MachineCounts {
    running: usize,
    creating: usize,
    deleting: usize,
    failed: usize,
    holding: usize,
}

impl MachineCounts {
    fn all(machines: impl Iterator<Item = Counted>) -> Self {
        let mut counts = Self::default();
        for machine in machines {
            counts.add(machine);
        }
        counts
    }

    fn add(&mut self, machine: Counted) {
        *self.of(machine.state) += 1;
        self.failed += usize::from(machine.has_error);
        self.holding += usize::from(machine.holds_its_place);
    }

    fn take(&mut self, machine: Counted) {
        *self.of(machine.state) -= 1;
        self.failed -= usize::from(machine.has_error);
        self.holding -= usize::from(machine.holds_its_place);
    }

    fn of(&mut self, state: InstanceState) -> &mut usize {
        match state {
            InstanceState::Running => &mut self.running,
            InstanceState::Creating => &mut self.creating,
            InstanceState::Deleting => &mut self.deleting,
        }
    }

    fn merge(&mut self, other: Self) {
        let Self { running, creating, deleting, failed, holding } = other;
        self.running += running;
        self.creating += creating;
        self.deleting += deleting;
        self.failed += failed;
        self.holding += holding;
    }

    /// Returns the instances of a group with this size and these Machines.
    fn instances(self, size: i32) -> InstanceCounts {
        InstanceCounts {
            running: self.running as u64,
            creating: self.creating as u64 + u64::from(instance::missing(size, self.holding)),
            deleting: self.deleting as u64,
            failed: self.failed as u64,
        }
    }
}

/// The Machines of an owner by name, each with the state that it counts as.
#[derive(Debug, Default)]
pub(super) struct Siblings {
    machines: Vec<(Arc<Machine>, Option<Counted>)>,
    counts: MachineCounts,
}

impl Siblings {
    /// Adds a Machine, or replaces the one with its name. A replaced one keeps its counted state until it is counted
    /// again.
    pub(super) fn insert(&mut self, machine: &Arc<Machine>) {
        match self.place(machine) {
            Ok(place) => self.machines[place].0 = Arc::clone(machine),
            Err(place) => self.machines.insert(place, (Arc::clone(machine), None)),
        }
    }

    pub(super) fn remove(&mut self, machine: &Machine) {
        if let Ok(place) = self.place(machine)
            && let (_, Some(counted)) = self.machines.remove(place)
        {
            self.counts.take(counted);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Machine>> {
        self.machines.iter().map(|(machine, _)| machine)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.machines.is_empty()
    }

    fn count(&mut self, machine: &Machine, counts_as: Counted) {
        let Ok(place) = self.place(machine) else { return };
        if let Some(before) = self.machines[place].1.replace(counts_as) {
            self.counts.take(before);
        }
        self.counts.add(counts_as);
    }

    fn place(&self, machine: &Machine) -> Result<usize, usize> {
        self.machines.binary_search_by(|(sibling, _)| sibling.meta.key.name.cmp(&machine.meta.key.name))
    }
}

/// The tails of providerIDs that so many objects share that Machines with them aren't kept counted.
#[derive(Debug)]
pub(super) struct SharedTails {
    tails: BTreeSet<String>,
    /// The limit; see [`MAX_SHARED`].
    pub(super) limit: usize,
}

impl Default for SharedTails {
    fn default() -> Self {
        Self { tails: BTreeSet::new(), limit: MAX_SHARED }
    }
}

impl SharedTails {
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.tails.is_empty()
    }
}

impl LiveState {
    /// Returns the instances of a live group, at the cost of its MachineSets.
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
        let shared: Vec<_> = ids.filter(|id| self.holders.get(holder_key(id)).nth(1).is_some()).collect();
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
            if self.holders.get(tail).nth(limit).is_some() || nodes().nth(limit).is_some() {
                self.shared_tails.tails.insert(tail.to_owned());
                continue;
            }
            let holders = self.holders.get(tail).filter_map(|holder| match holder {
                Holder::Machine(machine) => Some(&machine.meta.key),
                Holder::Pool(_) => None,
            });
            into.extend(holders.chain(nodes().filter_map(|NodeByProviderId(node)| node.machine.as_ref())).cloned());
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

    /// Returns a Machine with the facts that its state depends on.
    pub(super) fn view_of<'a>(&'a self, machine: &'a Machine) -> MachineView<'a> {
        MachineView {
            machine,
            node: self.known_node_of(machine).map(AsRef::as_ref),
            shortage: self.shortages.get(&machine.meta.key).copied(),
            undeletable: self.has_failed_delete(machine),
        }
    }
}

#[cfg(test)]
impl LiveState {
    /// Returns the Machines of a group by state: as kept, and as counted now.
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
