//! Checks at the quiet end of a world: faults have ended long ago, and no actor sends requests.

use super::{Check, Ledger, Machine};
use crate::entropy::{Nanos, SECOND};

/// The time after the end of faults in which a Machine whose deletion was answered OK must be gone: it may hang, be
/// drained and take long to end, one after the other.
const GOES_WITHIN: Nanos = 800 * SECOND;

/// The time in deletion after which a Machine may have made a scale-up time out: Cluster Autoscaler waits for at least
/// 180 s.
const HANGS: Nanos = 100 * SECOND;

/// The cause for which a Machine that was named stays.
const KEPT: &str = "the infrastructure of a MachinePool has kept a named Machine, and taken another one";

impl Ledger {
    pub(crate) fn at_rest(&mut self) {
        let (mut found, mut kept) = (Vec::new(), 0);
        for (id, group) in self.groups.iter().filter(|(_, group)| !group.is_gone && !group.is_deleting) {
            // The infrastructure of a MachinePool may take its time.
            let is_pool = id.starts_with("MachinePool/");
            let is_waiting = is_pool && group.is_waiting(self.now);
            let alive: Vec<_> =
                self.machines.values().filter(|machine| machine.group == *id && !machine.is_deleting).collect();
            // The instances of a MachinePool may have no Machines; if they have, a failed one is a Machine without an
            // instance, and isn't in the pool's status.
            let has_machines = !is_pool || self.machines.values().any(|machine| machine.group == *id);
            let there = if has_machines { i64::try_from(alive.len()).unwrap_or(i64::MAX) } else { group.has };
            // A MachineSet counts a Machine that is being deleted, as by a MachineHealthCheck just now, and replaces it
            // once it is gone.
            let is_going = |machine: &&Machine| machine.group == *id && machine.is_deleting && !machine.is_gone;
            let going = i64::try_from(self.machines.values().filter(is_going).count()).unwrap_or(i64::MAX);
            let is_right = there == group.size || (there < group.size && there + going >= group.size);
            if !is_right && !is_waiting {
                found.push((Check::Rest, format!("{id}: {there} Machines at size {}", group.size)));
            }
        }
        self.remembered_at_rest();
        for (uid, since) in &self.ok_deletes {
            let is_long = |machine: &Machine| {
                let of_pool = machine.deleting_since.filter(|_| machine.group.starts_with("MachinePool/"));
                let since = (*since).max(self.calm_from).max(of_pool.unwrap_or_default());
                self.now.saturating_sub(since) >= GOES_WITHIN
            };
            let is_left = |machine: &&Machine| !machine.is_gone && (is_long(machine) || !machine.is_deleting);
            let Some(machine) = self.machines.get(uid).filter(is_left) else { continue };
            // The mark of an answered deletion stays, until a later one that was refused takes it off.
            let is_taken_back = self.taken_back.get(uid).is_some_and(|at| at > since);
            let was_marked = machine.marked_since().is_some() || is_taken_back;
            if machine.group.starts_with("MachinePool/") && was_marked {
                kept += 1;
            } else {
                let what =
                    format!("the deletion of {} of {} was answered OK, and it is there", machine.name, machine.group);
                found.push((Check::DeletedInTime, what));
            }
        }
        if kept > 0 {
            *self.exceptions.entry(KEPT).or_default() += kept;
        }
        for (check, what) in found {
            self.find(check, what);
        }
    }

    /// Returns true if a Machine of a group has hung in deletion since faults ended: its MachineSet makes no other one
    /// as long as it counts it, so that a scale-up times out.
    pub(crate) fn hung_in_deletion(&self, group: &str) -> bool {
        let hung = |machine: &Machine| {
            let since = machine.deleting_since?;
            let until = if machine.is_gone { machine.changed } else { self.now };
            Some(until >= self.calm_from && until.saturating_sub(since) >= HANGS)
        };
        self.machines.values().filter(|machine| machine.group == group).any(|machine| hung(machine) == Some(true))
    }
}
