//! Checks on deleted Machines: one with a Node is deleted only if it was named, or for a cause that can't be ruled out.

use sandbox::stepped::Observed;

use super::{Author, Check, EXCUSED, Group, Ledger, Machine, log::Entry};
use crate::entropy::{Nanos, SECOND};

/// The longest time that a smaller size stays unseen by a controller whose caches lag.
const UNSEEN: Nanos = 120 * SECOND;

/// A cause for the deletion of a Machine that nobody named: docs/design/delete-rule.md, What can't be promised.
pub(super) const FOREIGN_DELETE: &str = "a named Machine that someone else deletes may be made good first";
pub(super) const FOREIGN_SIZE: &str = "someone else wrote a smaller size";
const MISSED_MARK: &str = "the MachineSet controller may miss a mark";
const REFUSED_MARK: &str = "a Machine that was marked when its size write was refused is taken for another one";
const TWICE: &str = "the MachineSet controller may act twice after an error";
pub(super) const OLD_SIZE: &str = "the MachineDeployment controller wrote an old size to its MachineSet";
const SURPLUS: &str = "the MachineSet controller has made more Machines than its size";
const TIED: &str = "up to Cluster API 1.8 an unhealthy Machine goes as soon as a marked one";
const ROLLOUT: &str = "a rollout replaces Machines";
pub(super) const POOL: &str = "the infrastructure of a MachinePool chooses which Machine goes";
const PLACE: &str = "a Machine has come into a placeholder's place";
const JOINED: &str = "a Machine that was given up as one that never joined joins after its mark";

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
        let Some(group) = self.groups.get_mut(id) else { return };
        for times in [&mut group.given_up, &mut group.beyond_size] {
            times.retain(|since| now.saturating_sub(*since) < EXCUSED);
        }
        let is_beyond = i64::try_from(alive).is_ok_and(|alive| alive > group.size);
        if is_beyond && group.given_up.pop().is_some() {
            group.allow(PLACE, 1, now);
        } else if is_beyond && group.beyond_size.pop().is_some() {
            group.allow(OLD_SIZE, 1, now);
        }
        // A surplus Machine causes the deletion of another one, now or when the size is lowered.
        if is_surplus {
            group.allow(SURPLUS, 1, now);
        }
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
        if author == Author::Foreign {
            // A new Machine may replace a deleted logged one before the controller sees the smaller size.
            let is_logged = self.groups.get(&machine.group).is_some_and(|group| group.log.contains_key(uid));
            if let Some(group) = self.groups.get_mut(&machine.group)
                && (is_logged || self.named.contains(uid))
            {
                group.allow(FOREIGN_DELETE, 1, self.now);
            }
            return;
        }
        if !has_node || self.named.contains(uid) {
            // The MachinePool has deleted this Machine for a smaller size.
            if author == Author::Controllers
                && let Some(group) = self.groups.get_mut(&machine.group)
            {
                group.excuses(POOL, self.now);
            }
            return;
        }
        let now = self.now;
        let Some(group) = self.groups.get(&machine.group) else { return };
        let observed = self.observed.get(&self.revision).copied();
        let is_unseen = |revision: u64| observed.is_some_and(|observed| observed.machines < revision);
        let has_unseen_mark = |(uid, entry): (&String, &Entry)| {
            // A deletion by anybody else came after the Machine was marked, and is also unseen.
            let is_it = |it: &Machine| {
                it.mark.is_some() && is_unseen(it.marked_at) && it.deleted_by != Some(Author::Controllers)
            };
            entry.is_lowered && self.machines.get(uid).is_some_and(is_it)
        };
        let missed = group.log.iter().any(has_unseen_mark);
        let is_another = |by: Observed| observed.is_some_and(|observed| observed.reconcile != by.reconcile);
        let twice = group.taken.is_some_and(|(revision, by)| is_unseen(revision) && is_another(by));
        let was_marked = machine.marked_since().is_some() || is_unseen(machine.marked_at);
        // If the mark came after the Node, the check on marks reports it.
        let was_soft = self.soft_lowered.keys().any(|(of, _)| of == uid);
        let given_up = was_soft || group.log.get(uid).is_some_and(|entry| entry.is_soft);
        let was_unhealthy = machine.is_unhealthy || is_unseen(machine.healthy_at);
        let is_lowering = group.log.values().any(|entry| entry.is_lowered);
        let is_tied = was_unhealthy && self.ties_with_unhealthy && is_lowering;
        let is_surplus = self.is_surplus(&machine.group);
        let is_rolling = self.rolls(&machine.group).is_some();
        let Some(group) = self.groups.get_mut(&machine.group) else { return };
        // The Machine is deleted with its group.
        if group.is_deleting {
            return;
        }
        if given_up && machine.marked_since().is_some() {
            *self.exceptions.entry(JOINED).or_default() += 1;
            return;
        }
        if is_surplus {
            *self.exceptions.entry(SURPLUS).or_default() += 1;
            return;
        }
        if is_rolling || group.rolled.is_some_and(|at| now.saturating_sub(at) < EXCUSED) {
            *self.exceptions.entry(ROLLOUT).or_default() += 1;
            return;
        }
        let causes = [POOL, OLD_SIZE, FOREIGN_SIZE, FOREIGN_DELETE, PLACE, SURPLUS];
        match causes.into_iter().find(|cause| group.excuses(cause, now)) {
            Some(cause) => {
                *self.exceptions.entry(cause).or_default() += 1;
            }
            None if is_tied => *self.exceptions.entry(TIED).or_default() += 1,
            None if missed => *self.exceptions.entry(MISSED_MARK).or_default() += 1,
            None if was_marked => *self.exceptions.entry(REFUSED_MARK).or_default() += 1,
            None if twice => *self.exceptions.entry(TWICE).or_default() += 1,
            None => {
                let what = format!("{} of {} went with its Node, and nobody has named it", machine.name, machine.group);
                self.find(Check::TakenUnnamed, what);
            }
        }
    }
}
