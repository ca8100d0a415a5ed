//! Since when Machines lack capacity, noted as they change: a read compares times, and reads no message.

use capi::Machine;
use jiff::Timestamp;
use nodegroup::Shortage;

use super::live_state::LiveState;

impl LiveState {
    /// A Machine came or changed.
    pub(super) fn note_shortage(&mut self, old: Option<&Machine>, machine: &Machine) {
        let key = &machine.meta.key;
        // One that was made anew under the same name is another.
        let old = old.filter(|old| old.meta.uid == machine.meta.uid);
        let known = self.shortages.get(key).copied().filter(|_| old.is_some());
        match Shortage::of(machine, known, old.is_some(), Timestamp::now()) {
            Some(shortage) => self.shortages.insert(key.clone(), shortage),
            None => self.shortages.remove(key),
        };
    }
}
