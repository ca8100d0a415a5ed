//! Checks at the quiet end of a world: faults have ended long ago, and nobody asks for anything.

use super::{Check, Ledger, Machine, log::MARKED_BY};

impl Ledger {
    /// Checks what must hold at rest.
    pub(crate) fn at_rest(&mut self) {
        let mut found = Vec::new();
        for (id, group) in self.groups.iter().filter(|(_, group)| !group.is_gone && !group.is_deleting) {
            // The infrastructure of a MachinePool has its time.
            let is_pool = id.starts_with("MachinePool/");
            let is_waiting = is_pool && group.is_waiting(self.now);
            if !group.log.is_empty() && !is_waiting {
                let names: Vec<_> = group.log.values().map(|entry| (&entry.name, entry.is_lowered)).collect();
                found.push((Check::Rest, format!("{id}: still in the log: {names:?}")));
            }
            let alive: Vec<_> =
                self.machines.values().filter(|machine| machine.group == *id && !machine.is_deleting).collect();
            // Those of a MachinePool may be no Machines.
            let there = if is_pool { group.has } else { i64::try_from(alive.len()).unwrap_or(i64::MAX) };
            if there != group.size && !is_waiting {
                found.push((Check::Rest, format!("{id}: {there} Machines at size {}", group.size)));
            }
            for machine in alive.into_iter().filter(|_| !is_waiting) {
                if machine.mark.as_ref().is_some_and(|(mark, _)| mark.starts_with(MARKED_BY)) {
                    found.push((Check::Rest, format!("{id}: {} is still marked", machine.name)));
                }
            }
        }
        for uid in self.ok_deletes.keys() {
            let waits = |machine: &&Machine| {
                let group = self.groups.get(&machine.group);
                group.is_some_and(|group| group.log.contains_key(uid) && group.is_waiting(self.now))
            };
            let left = self.machines.get(uid).filter(|machine| !machine.is_deleting);
            if let Some(machine) = left.filter(|machine| !waits(machine)) {
                let what =
                    format!("the deletion of {} of {} was answered OK, and it is there", machine.name, machine.group);
                found.push((Check::DeletedInTime, what));
            }
        }
        for (check, what) in found {
            self.find(check, what);
        }
    }
}
