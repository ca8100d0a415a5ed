//! Checks on marks that belong to no entry, and on entries of deleted Machines: a copy that knows of one, and whose
//! requests succeed, must remove the mark at once, and the entry from the log soon.

use std::collections::{BTreeMap, BTreeSet};

use super::{Check, Ledger, watches::TAKEN_UP};
use crate::entropy::{Nanos, SECOND};

/// The longest time that a copy leaves such a mark, latency included.
const LEFT: Nanos = 15 * SECOND;
/// The longest time that a copy leaves an entry of a Machine that it knows to be gone, once the MachineSets have
/// observed the smaller size.
const FORGOTTEN: Nanos = 600 * SECOND;
/// The longest time that a copy waits after a failed request, time-outs included.
const WAITS: Nanos = 130 * SECOND;

impl Ledger {
    /// Records that a copy stands still, or that one of its requests fails.
    pub(crate) fn troubles(&mut self, copy: usize) {
        self.troubled.insert(copy, self.now);
    }

    /// Looks once a second for marks that are left.
    pub(super) fn look_at_marks(&mut self) {
        let now = self.now;
        if now < self.looked + SECOND {
            return;
        }
        self.looked = now;
        let is_left = |uid: &String, machine: &super::Machine| {
            let group = self.groups.get(&machine.group).filter(|group| !group.is_gone);
            machine.marked_since().is_some()
                && !machine.is_deleting
                && group.is_some_and(|group| !group.log.contains_key(uid))
        };
        let left = self.machines.iter().filter(|(uid, machine)| is_left(uid, machine));
        let copies = self.writing_copies();
        let found: Vec<_> = left
            .filter_map(|(_, machine)| {
                let since = now - LEFT.min(now);
                let knows = |copy: &&usize| {
                    self.is_well(**copy)
                        && !self.is_denied(**copy, &machine.name)
                        && !self.is_held_up(**copy, &machine.group)
                        && self.knows(**copy, &machine.group, since)
                };
                let copy = copies.iter().find(knows)?;
                Some(format!("copy {copy} knows that {} of {} has a mark and no entry", machine.name, machine.group))
            })
            .collect();
        for what in found {
            self.find(Check::MarksOwn, what);
        }
        self.look_at_entries();
        self.look_at_watches();
    }

    /// Looks once a second for entries of Machines that are long gone.
    fn look_at_entries(&mut self) {
        let at = self.now.saturating_sub(TAKEN_UP);
        let copies = self.writing_copies();
        let is_gone = |uid: &String| self.machines.get(uid).is_some_and(|it| it.is_gone);
        let (mut found, mut known) = (Vec::new(), BTreeMap::new());
        // Nothing leaves a log while Cluster API is down, perhaps twice in a row.
        let may_leave =
            |(id, group): &(&String, &super::Group)| !group.is_gone && !group.is_deleting && self.have_observed(id);
        for (id, group) in self.groups.iter().filter(may_leave) {
            for (uid, entry) in group.log.iter().filter(|(uid, _)| is_gone(uid)) {
                for copy in &copies {
                    let is_known = self.knows(*copy, id, at);
                    let key = (*copy, uid.clone());
                    let Some(since) = self.known_gone.get(&key).copied().or(is_known.then_some(self.now)) else {
                        continue;
                    };
                    let is_long = self.now.saturating_sub(since) > FORGOTTEN;
                    if is_long && is_known && self.is_well(*copy) && !self.is_denied(*copy, &entry.name) {
                        let name = &entry.name;
                        found.push(format!("copy {copy} knows that {name} of {id} is gone, and leaves it in the log"));
                    }
                    known.insert(key, since);
                }
            }
        }
        self.known_gone = known;
        for what in found {
            self.find(Check::Forgets, what);
        }
    }

    /// Returns the copies that watch something and may write.
    fn writing_copies(&self) -> BTreeSet<usize> {
        let mut copies = self.copies();
        copies.retain(|copy| self.read_only != Some(*copy));
        copies
    }

    /// Returns true if nothing delays a copy.
    pub(super) fn is_well(&self, copy: usize) -> bool {
        !self.is_out_lately(self.now) && self.is_undisturbed_for(copy, WAITS)
    }

    /// Returns true if for a time no request of a copy has failed, and all its tasks have run.
    pub(super) fn is_undisturbed_for(&self, copy: usize, time: Nanos) -> bool {
        if self.has_paused(copy, self.now.saturating_sub(time), self.now) {
            return false;
        }
        let troubled = self.troubled.get(&copy).copied();
        let killed = self.last_killed.get(&copy).copied();
        troubled.is_none_or(|troubled| troubled + time < self.now || killed.is_some_and(|killed| killed > troubled))
    }
}
