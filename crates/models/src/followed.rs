//! The entries that a copy may see as followed, as [`delete_rule::Rule::followed`] judges the MachineSets.

use delete_rule::{Entry, Kind};

use crate::{
    program::Program,
    small::{self, Log, Shown, Small},
    variant::Follows,
    world::{MachineSet, Phase, Set, World},
};

impl Program<'_> {
    /// Records after each step the entries that a copy may now see as followed. The copy may use them at any later
    /// time.
    pub(crate) fn note_followed(&self, world: &mut World) {
        let lowered = world.in_phase(Phase::Lowered).without(world.followed);
        if lowered.is_empty() {
            return;
        }
        let own = world.rule_log();
        let source = |of: usize| {
            let (set, first) = (world.sets[of].last(), world.sets[of].all()[0]);
            let is_unacted = self.rule.follows == Follows::CopiedLogAndActed && world.is_unacted;
            // The controller of a MachinePool may see any size at once, and reports nothing about the provider.
            let log = if self.bounds.is_pool { own.clone() } else { Self::copy_of(world, set) };
            let seen_generation = match first.generation {
                _ if is_unacted => -1,
                _ if self.bounds.is_pool => set.generation.into(),
                generation => generation.into(),
            };
            // Where sizes are compared instead of logs, the copied size is compared with the group's, too.
            let is_other = self.rule.follows == Follows::EqualSizes && set.copied.replicas != world.replicas;
            let desired = if is_other { -1 } else { set.copied.replicas.into() };
            let (replicas, generation) = (set.size.into(), set.generation.into());
            Shown { replicas, desired, status: 0, generation, seen_generation, log }
        };
        let sources: Vec<_> = world.machine_sets().map(source).collect();
        let kind = match (self.bounds.is_bare, self.bounds.is_pool) {
            (_, true) => Kind::MachinePool,
            (true, _) => Kind::MachineSet,
            (false, false) => Kind::MachineDeployment,
        };
        let followed = self.core().followed(kind, &sources);
        let is_followed = |machine: usize| own.get(&small::uid(machine)).is_some_and(|entry| followed.has(entry));
        world.followed = world.followed | (lowered & Set::of(is_followed));
    }

    /// Returns a MachineSet's copied log, limited to Machines that are still in the log.
    fn copy_of(world: &World, set: MachineSet) -> Log {
        let entries = (set.copied.lowered | set.copied.stale).iter().filter_map(|machine| {
            let entry = small::entry(machine, world.log[machine])?;
            let ticket = if set.copied.stale.has(machine) { 0 } else { entry.ticket };
            Some(Entry::<Small> { ticket, phase: delete_rule::Phase::Lowered, ..entry })
        });
        Log::default().with(entries)
    }
}
