//! The times since when Machines and MachinePools lack capacity, recorded as they change, so that a read compares times
//! and parses no message.

use capi::{Machine, ScalableKind, ScalableResource};
use jiff::Timestamp;
use nodegroup::{GroupId, Shortage};

use super::live_state::LiveState;

impl LiveState {
    /// Records the lack of capacity of a Machine that was added or changed.
    pub(super) fn note_shortage(&mut self, old: Option<&Machine>, machine: &Machine) {
        let key = &machine.meta.key;
        // A Machine created again under the same name is another one.
        let old = old.filter(|old| old.meta.uid == machine.meta.uid);
        let known = self.shortages.get(key).copied().filter(|_| old.is_some());
        let condition = machine.infrastructure_not_ready();
        match Shortage::by(&self.rules.capacity_words, condition, known, old.is_some(), Timestamp::now()) {
            Some(shortage) => self.shortages.insert(key.clone(), shortage),
            None => self.shortages.remove(key),
        };
    }

    /// Records the lack of capacity of a MachinePool that was added or changed. Its condition counts only while instances
    /// are missing: a provider may leave it until the next change, and an increase has to be tried anew.
    pub(super) fn note_pool_shortage(&mut self, id: &GroupId, old: Option<&ScalableResource>, pool: &ScalableResource) {
        let Some(group) = self.groups.get_mut(id).filter(|_| id.kind == ScalableKind::MachinePool) else { return };
        let old = old.filter(|old| old.meta.uid == pool.meta.uid);
        let known = group.shortage.filter(|_| old.is_some());
        let listed = i32::try_from(pool.provider_ids.len()).unwrap_or(i32::MAX);
        let is_short = pool.replicas.is_some_and(|replicas| replicas > listed);
        let condition = pool.infrastructure_not_ready.as_ref().filter(|_| is_short);
        group.shortage = Shortage::by(&self.rules.capacity_words, condition, known, old.is_some(), Timestamp::now());
    }
}
