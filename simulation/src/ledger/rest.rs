//! Checks at the quiet end of a world: faults have ended long ago, and nobody asks for anything.

use super::{Check, Ledger, log::MARKED_BY};

impl Ledger {
    /// Checks what must hold at rest.
    pub(crate) fn at_rest(&mut self) {
        let mut found = Vec::new();
        for (id, group) in self.groups.iter().filter(|(_, group)| !group.is_gone && !group.is_deleting) {
            if !group.log.is_empty() {
                let names: Vec<_> = group.log.values().map(|entry| (&entry.name, entry.is_lowered)).collect();
                found.push((Check::Rest, format!("{id}: still in the log: {names:?}")));
            }
            let alive: Vec<_> =
                self.machines.values().filter(|machine| machine.group == *id && !machine.is_deleting).collect();
            if i64::try_from(alive.len()) != Ok(group.size) && !id.starts_with("MachinePool") {
                found.push((Check::Rest, format!("{id}: {} Machines at size {}", alive.len(), group.size)));
            }
            for machine in alive {
                if machine.mark.as_ref().is_some_and(|(mark, _)| mark.starts_with(MARKED_BY)) {
                    found.push((Check::Rest, format!("{id}: {} is still marked", machine.name)));
                }
            }
        }
        for uid in self.ok_deletes.keys() {
            if let Some(machine) = self.machines.get(uid).filter(|machine| !machine.is_deleting) {
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
