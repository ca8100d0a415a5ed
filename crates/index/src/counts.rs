//! The instances of groups by state, kept up to date with each change, so that readers of counts visit no Machine. A
//! Machine counts with its owner, since the owner's group may change without a visit to its Machines. Must never
//! return another number than a count of all Machines would.

use std::{collections::BTreeSet, mem, sync::Arc};

use capi::Machine;
use nodegroup::{InstanceCounts, InstanceState, instance, instance::Counted};

/// The number of Machines or Nodes with the same tail of a providerID above which a change of one counts no other.
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
    pub(super) fn all(machines: impl Iterator<Item = Counted>) -> Self {
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

    fn machines(&self) -> usize {
        self.running + self.creating + self.deleting
    }

    pub(super) fn merge(&mut self, other: Self) {
        let Self { running, creating, deleting, failed, holding } = other;
        self.running += running;
        self.creating += creating;
        self.deleting += deleting;
        self.failed += failed;
        self.holding += holding;
    }

    /// Returns the instances of a group with this size and these Machines.
    pub(super) fn instances(self, size: i32) -> InstanceCounts {
        InstanceCounts {
            running: self.running as u64,
            creating: self.creating as u64 + u64::from(instance::missing(size, self.holding)),
            deleting: self.deleting as u64,
            failed: self.failed as u64,
        }
    }
}

/// The Machines of an owner by name, each with the state that it counts as, or `None` if it is counted at each read.
/// Lists of pairs would have half of their bytes unused.
#[derive(Debug, Default)]
pub(super) struct Siblings {
    machines: Vec<Arc<Machine>>,
    counted: Vec<Option<Counted>>,
    pub(super) counts: MachineCounts,
}

impl Siblings {
    /// Adds a Machine, or replaces the one with its name. A replaced one keeps its counted state until it is counted
    /// again.
    pub(super) fn insert(&mut self, machine: &Arc<Machine>) {
        match self.place(machine) {
            Ok(place) => self.machines[place] = Arc::clone(machine),
            Err(place) => {
                self.machines.insert(place, Arc::clone(machine));
                self.counted.insert(place, None);
            }
        }
    }

    pub(super) fn remove(&mut self, machine: &Machine) {
        let Ok(place) = self.place(machine) else { return };
        self.machines.remove(place);
        if let Some(counted) = self.counted.remove(place) {
            self.counts.take(counted);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Machine>> {
        self.machines.iter()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.machines.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.machines.len()
    }

    /// Keeps the state of a Machine; `None` leaves it to the reads.
    pub(super) fn count(&mut self, machine: &Machine, counts_as: Option<Counted>) {
        let Ok(place) = self.place(machine) else { return };
        if let Some(before) = mem::replace(&mut self.counted[place], counts_as) {
            self.counts.take(before);
        }
        if let Some(counted) = counts_as {
            self.counts.add(counted);
        }
    }

    /// Iterates over the Machines whose state isn't kept. Where it is kept for all, none is visited.
    pub(super) fn uncounted(&self) -> impl Iterator<Item = &Arc<Machine>> {
        let number = self.machines.len() - self.counts.machines();
        let uncounted = self.machines.iter().zip(&self.counted).filter(|(_, counted)| counted.is_none());
        uncounted.map(|(machine, _)| machine).take(number)
    }

    fn place(&self, machine: &Machine) -> Result<usize, usize> {
        self.machines.binary_search_by(|sibling| sibling.meta.key.name.cmp(&machine.meta.key.name))
    }
}

/// The tails of providerIDs that more than [`MAX_SHARED`] objects share. The states of the Machines that depend on one
/// of them aren't kept.
#[derive(Debug)]
pub(super) struct SharedTails {
    pub(super) tails: BTreeSet<String>,
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
