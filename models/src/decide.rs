//! The decisions of the copies: what a copy sees is shown to [`delete_rule`], under the policy that the variant is.

use delete_rule::{Era, Map, Marking, Request, Rule, Seen};

use crate::{
    program::{Asked, Program},
    small::{self, Listed, Log, Small, Uids},
    variant::Variant,
    world::{Entry, Life, Past, Phase, Set, World},
};

/// The ticket under which a command has its Machines accepted; the world draws those of the entries.
pub(crate) const NEW: (u8, u8) = (u8::MAX, u8::MAX);

impl Program<'_> {
    /// The rule, under the policy that the variant is.
    pub(crate) fn core(&self) -> Rule<Variant> {
        Rule(*self.rule)
    }

    /// The Machines that a DeleteNodes adds to the log, and those of them that were counted; nothing if it is refused.
    pub(crate) fn accept(&self, world: &World, asked: Asked, past: Past) -> Option<(Set, Set)> {
        let machines = past.show(&world.machines);
        let unlogged = asked.named.without(world.logged());
        let life = |machine: usize| match machines[machine].life {
            Life::Unborn => None,
            Life::Alive => Some(delete_rule::Life::Alive),
            Life::Deleting => Some(delete_rule::Life::Deleting),
            Life::Gone => Some(delete_rule::Life::Gone),
        };
        let lives: Map<Small, _> =
            unlogged.iter().filter_map(|machine| Some((small::uid(machine), life(machine)?))).collect();
        // Those that are given up as Machines that never joined are read.
        let has_joined =
            |machine: usize| world.machines[machine].life == Life::Alive && world.machines[machine].has_node;
        let joined = small::uids(asked.never_joined & unlogged & Set::of(has_joined));
        // One that is being deleted has all of them listed.
        let listed = if (unlogged & past.deleting).is_empty() {
            Listed::default()
        } else {
            Listed { alive: small::uids(past.alive), draining: small::uids(past.deleting), ..Listed::default() }
        };
        let log = world.rule_log();
        let seen = Seen {
            log: &log,
            replicas: world.replicas.into(),
            bounds: self.size_bounds(),
            lives: &lives,
            joined: &joined,
            listed: &listed,
            counts_deleting: true,
            given_up: 0,
        };
        let mut acceptance = self.core().acceptance(seen, NEW);
        let machines = asked.named.iter().map(|machine| small::named(machine, asked.never_joined)).collect();
        acceptance.accept(&Request { machines, ..Request::default() }).ok()?;
        Some(acceptance.log().map_or((Set(0), Set(0)), Self::new_in))
    }

    /// The Machines that a command has added to a log, and those of them that were counted.
    pub(crate) fn new_in(log: &Log) -> (Set, Set) {
        let new = || log.entries().iter().filter(|entry| entry.ticket == NEW);
        (small::set(new().map(|entry| entry.uid)), small::set(new().filter(|it| it.counted).map(|entry| entry.uid)))
    }

    /// The same of a DecreaseTargetSize, which has chosen a Machine.
    pub(crate) fn accept_soft(&self, world: &World, asked: Asked, past: Past) -> Option<(Set, Set)> {
        let (logged, named) = (world.logged(), asked.named);
        let is_joined = |machine: usize| world.log[machine].is_soft;
        if !(named & logged).without(Set::of(is_joined)).is_empty() {
            return None;
        }
        let alive = past.alive.without(logged);
        let with_node = (alive & past.with_node).len();
        let waiting = small::count(alive.without(past.with_node));
        let (log, min) = (world.rule_log(), self.bounds.min.into());
        let room = (with_node.into(), waiting);
        let shrinking = self.core().shrink(&log, world.replicas.into(), min, -i32::from(named.len()), room).ok()?;
        if shrinking.machines + shrinking.others == 0 {
            return None;
        }
        // What it chose is read before it is logged.
        let has_joined =
            |machine: usize| world.machines[machine].life == Life::Alive && world.machines[machine].has_node;
        let new = (named & alive).without(Set::of(has_joined));
        Some((new, Set(0)))
    }

    pub(crate) fn size_bounds(&self) -> delete_rule::Bounds {
        delete_rule::Bounds { min: self.bounds.min.into(), max: i32::MAX }
    }

    /// The age of what is believed of Machines, at the first of the moments that caches may show.
    pub(crate) fn era(&self, world: &World) -> Era<Small> {
        let left = world.left_log.without(world.logged());
        let entry = |machine: usize| small::entry(machine, Entry { phase: Phase::Lowered, ..Entry::default() });
        let log = world.rule_log().with(left.iter().filter_map(entry));
        let version = small::version(0, 0, &log);
        let mut era = Era::new(&version);
        self.core().see(&mut era, &version);
        era
    }

    /// Returns true if a write of the group has made caches out of date that haven't come so far.
    pub(crate) fn outdates_caches(&self, before: &World, after: &World) -> bool {
        if (before.replicas, before.log) == (after.replicas, after.log) {
            return false;
        }
        let mut era = self.era(before);
        let log = after.rule_log();
        let generation = i64::from(before.replicas != after.replicas);
        self.core().see(&mut era, &small::version(1, generation, &log));
        era.since() == Some(1)
    }

    /// The decision about the mark of a Machine that hasn't the mark of its entry.
    pub(crate) fn marking(&self, world: &World, machine: usize) -> Marking {
        let is_wanted = world.log[machine].phase == Phase::Wanted;
        let entry = small::entry(machine, world.log[machine]).filter(|_| is_wanted && !world.is_marked(machine));
        let life = match world.machines[machine].life {
            Life::Alive => delete_rule::Life::Alive,
            Life::Deleting => delete_rule::Life::Deleting,
            Life::Gone | Life::Unborn => delete_rule::Life::Gone,
        };
        entry.map_or(Marking::Mark, |entry| self.core().marking(&entry, life, world.machines[machine].has_node))
    }

    /// The Machines for which a write lowers the size, and those whose places are filled, which leave the log with it. `marked`
    /// are those that were marked, and `going` those that go by themselves.
    pub(crate) fn lowering(
        &self,
        world: &World,
        marked: Set,
        going: Set,
    ) -> Result<(Set, Set), delete_rule::SizeError> {
        let log = world.rule_log();
        let going: Vec<_> = (going & marked).iter().filter_map(|machine| log.get(&small::uid(machine))).collect();
        let filled = if going.is_empty() {
            Uids::default()
        } else {
            let listed = Listed { alive: small::uids(world.living()), ..Listed::default() };
            self.core().filled(&log, world.replicas.into(), &listed, &going)
        };
        let tickets = world.tickets_of(marked);
        let lowering = self.core().lower(&log, world.replicas.into(), self.size_bounds(), &tickets, &filled)?;
        let Some(lowering) = lowering else { return Ok((Set(0), Set(0))) };
        let lowered = small::set(lowering.names);
        debug_assert_eq!(i32::from(world.replicas - lowered.len()), lowering.to, "each lowers it by one");
        Ok((lowered, small::set(filled)))
    }
}
