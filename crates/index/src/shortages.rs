//! The times since when Machines lack capacity, recorded as Machines change, so that a read compares times and parses
//! no message.

use capi::Machine;
use jiff::Timestamp;
use nodegroup::Shortage;

use super::live_state::LiveState;

impl LiveState {
    /// Records the lack of capacity of a Machine that was added or changed.
    pub(super) fn note_shortage(&mut self, old: Option<&Machine>, machine: &Machine) {
        let key = &machine.meta.key;
        // A Machine created again under the same name is another one.
        let old = old.filter(|old| old.meta.uid == machine.meta.uid);
        let known = self.shortages.get(key).copied().filter(|_| old.is_some());
        match Shortage::by(&self.rules.capacity_words, machine, known, old.is_some(), Timestamp::now()) {
            Some(shortage) => self.shortages.insert(key.clone(), shortage),
            None => self.shortages.remove(key),
        };
    }
}
