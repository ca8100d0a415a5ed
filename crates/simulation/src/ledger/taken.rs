//! Checks on deleted Machines: one with a Node is deleted only if it was named, or for a cause that can't be ruled out.

use sandbox::engine::Observed;

use super::{Author, Check, EXCUSED, Group, Ledger, Machine};
use crate::entropy::{Nanos, SECOND};

/// The longest time that a smaller size stays unseen by a controller whose caches lag.
const UNSEEN: Nanos = 120 * SECOND;

/// A cause for the deletion of a Machine that nobody named: docs/design/simulation.md, What can't be promised.
pub(super) const FOREIGN_SIZE: &str = "someone else wrote a smaller size";
/// The size is lowered for one that is gone by now, and in whose place another one has come.
pub(super) const GONE_EARLY: &str = "a named Machine is gone, and made good, before Cluster API sees the smaller size";
/// A size that was given up has arrived when the size was again what it had been.
pub(super) const LATE_SIZE: &str = "a size write that was given up arrives when the size is again what it was";
const UNSEEN_DELETION: &str = "the MachineSet controller sees a smaller size before the deletion that it is for";
const TWICE: &str = "the MachineSet controller may act twice after an error";
pub(super) const OLD_SIZE: &str = "the MachineDeployment controller wrote an old size to its MachineSet";
const SURPLUS: &str = "the MachineSet controller has made more Machines than its size";
const ROLLOUT: &str = "a rollout replaces Machines";
pub(super) const POOL: &str = "the infrastructure of a MachinePool chooses which Machine goes";
const PLACE: &str = "a Machine has come into a placeholder's place";

impl Group {
    /// Records that the size was lowered for replicas that had no Machine, or one in deletion. If a new Machine has
    /// filled such a replica since the count, or fills it later, the controllers may delete another Machine.
    pub(super) fn gives_up(&mut self, places: i64, came: i64, now: Nanos) {
        let came = came.min(places);
        self.allow(PLACE, came, now);
        let open = usize::try_from(places - came).unwrap_or_default();
        self.given_up.extend(std::iter::repeat_n(now, open));
    }
}

impl Ledger {
    /// Records that the MachineSet controller has created a Machine.
    pub(super) fn comes(&mut self, id: &str) {
        let now = self.now;
        let alive = self.machines.values().filter(|machine| machine.group == id && !machine.is_deleting).count();
        let is_surplus = self.is_surplus(id);
        let is_early = self.comes_early(id);
        if is_early && !self.fills_place(id) {
            self.makes_good(id);
        }
        let Some(group) = self.groups.get_mut(id) else { return };
        let is_beyond = i64::try_from(alive).unwrap_or(i64::MAX) > group.size;
        group.given_up.retain(|since| now.saturating_sub(*since) < EXCUSED);
        group.beyond_size.retain(|since| now.saturating_sub(*since) < EXCUSED);
        if is_beyond && group.given_up.pop().is_some() {
            group.allow(PLACE, 1, now);
        } else if is_beyond && !is_early && group.beyond_size.pop().is_some() {
            group.allow(OLD_SIZE, 1, now);
        }
        // A surplus Machine causes the deletion of another one, now or when the size is lowered.
        if is_surplus {
            group.allow(SURPLUS, 1, now);
        }
    }

    /// Returns true if a new Machine comes in the place of a replica that was given up.
    fn fills_place(&self, id: &str) -> bool {
        let is_recent = |since: &Nanos| self.now.saturating_sub(*since) < EXCUSED;
        let alive = self.machines.values().filter(|machine| machine.group == id && !machine.is_deleting).count();
        let is_it = |group: &Group| {
            i64::try_from(alive).unwrap_or(i64::MAX) > group.size && group.given_up.iter().any(is_recent)
        };
        self.groups.get(id).is_some_and(is_it)
    }

    /// Returns true if a group has more Machines than any of its recent sizes.
    fn is_surplus(&self, id: &str) -> bool {
        let alive = self.machines.values().filter(|machine| machine.group == id && !machine.is_deleting).count();
        let largest = self.highest_size(id, self.now.saturating_sub(UNSEEN));
        largest.is_some_and(|largest| i64::try_from(alive).unwrap_or(i64::MAX) > largest)
    }

    /// Checks the deletion of a Machine: one with a Node is deleted only if it was named, or for a cause that can't be
    /// ruled out.
    pub(super) fn goes(&mut self, uid: &str, machine: &Machine, author: Author) {
        let has_node = machine.node.is_some()
            || (!machine.provider_id.is_empty() && self.nodes.contains_key(&machine.provider_id));
        if author != Author::Controllers || self.named.contains(uid) || !has_node {
            if machine.group.starts_with("MachinePool/")
                && author == Author::Controllers
                && let Some(group) = self.groups.get_mut(&machine.group)
            {
                group.excuses(POOL, self.now);
            }
            return;
        }
        let now = self.now;
        let observed = self.observed.get(&self.revision).copied();
        let is_unseen = |revision: u64| observed.is_some_and(|observed| observed.machines < revision);
        let lags = self.removals.iter().any(|removal| {
            let deletion = self.machines.get(&removal.uid).and_then(|machine| machine.deleting_at);
            removal.group == machine.group && removal.is_lowered && deletion.is_some_and(is_unseen)
        });
        let is_surplus = self.is_surplus(&machine.group);
        let is_rolling = self.rolls(&machine.group).is_some();
        let Some(group) = self.groups.get_mut(&machine.group) else { return };
        let is_another = |by: Observed| observed.is_some_and(|observed| observed.reconcile != by.reconcile);
        let twice = group.taken.is_some_and(|(revision, by)| is_unseen(revision) && is_another(by));
        // The Machine is deleted with its group.
        if group.is_deleting {
            return;
        }
        let is_rolling = is_rolling || group.rolled.is_some_and(|at| now.saturating_sub(at) < EXCUSED);
        let causes = [POOL, OLD_SIZE, FOREIGN_SIZE, GONE_EARLY, LATE_SIZE, PLACE, SURPLUS];
        let cause = if is_surplus {
            Some(SURPLUS)
        } else if is_rolling {
            Some(ROLLOUT)
        } else {
            let allowed = causes.into_iter().find(|cause| group.excuses(cause, now));
            allowed.or(lags.then_some(UNSEEN_DELETION)).or(twice.then_some(TWICE))
        };
        match cause {
            Some(cause) => *self.exceptions.entry(cause).or_default() += 1,
            None => {
                let what = format!("{} of {} went with its Node, and nobody has named it", machine.name, machine.group);
                self.find(Check::TakenUnnamed, what);
            }
        }
    }
}
