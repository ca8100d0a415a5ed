//! The state that a copy knows without a call: the group, the Machines as a cache shows them, and the identities that
//! it draws itself.

use std::{
    cell::{Cell, RefCell},
    convert::Infallible,
};

use delete_rule::{
    Bounds, Era, Followed, Kind, Life, Named, Policy, Request, Rule,
    steps::{CallerId, Now, Replaceable, UnloggedMachines, View},
};

use crate::{
    program::Program,
    small::{self, Log, Shown, Small},
    variant::Variant,
    world::{self, Entry, Memory, Past, Phase, Set, World},
};

/// The state that a copy knows at a moment; its cache shows the Machines as of a moment that may be earlier.
pub(crate) struct Known<'a> {
    pub(crate) program: &'a Program<'a>,
    pub(crate) world: &'a World,
    pub(crate) copy: usize,
    pub(crate) past: Past,
    /// The memory of the copy, including what it has learned from this state.
    pub(crate) memory: RefCell<Memory>,
    /// True once the cache of Machines was read.
    pub(crate) was_asked: Cell<bool>,
}

impl<'a> Known<'a> {
    pub(crate) fn new(program: &'a Program<'a>, world: &'a World, copy: usize, past: Past) -> Self {
        let memory = RefCell::new(world.copies[copy]);
        Self { program, world, copy, past, memory, was_asked: Cell::new(false) }
    }
}

impl Memory {
    /// Returns the group as the command knows it.
    pub(crate) fn view(&mut self, world: &World) -> small::View {
        self.generation += self.behind;
        self.behind = 0;
        let entries = world.log.iter().enumerate();
        let known = |(machine, logged): (usize, &Entry)| {
            let entry = small::entry(machine, *logged)?;
            Some(delete_rule::Entry { ticket: self.knows(logged.ticket), ..entry })
        };
        let log = Log::default().with(entries.filter_map(known));
        small::View { generation: self.generation, replicas: world.replicas, log }
    }
}

impl Now<Small> for Known<'_> {
    fn view(&self) -> Result<View<Small>, Infallible> {
        let version = self.memory.borrow_mut().view(self.world);
        Ok(View { version, bounds: self.program.size_bounds(), rollout: None })
    }

    fn lives(&self, group: &small::View, named: &[Named<Small>]) -> Vec<Option<Life>> {
        self.was_asked.set(self.was_asked.get() || !named.is_empty());
        let (now, past) = (self.world.pasts.last(), self.past);
        let memory = self.memory.borrow();
        if past == now || group.generation != memory.generation + memory.behind {
            return named.iter().map(|named| Some(self.world.life(named.uid.into()))).collect();
        }
        let era = self.program.era(self.world);
        let life = |named: &Named<Small>| {
            self.program.core().believed_since(&era, &named.uid)?;
            let machine = usize::from(named.uid);
            match self.world.life(machine) {
                _ if past.alive.has(machine) => Some(Life::Alive),
                _ if past.deleting.has(machine) => Some(Life::Deleting),
                // The watch has shown that it is gone.
                Life::Gone => Some(Life::Gone),
                // The Machine is newer than the cache.
                Life::Alive | Life::Deleting => None,
            }
        };
        named.iter().map(life).collect()
    }

    fn has_machine(&self, _: &Named<Small>) -> bool {
        true
    }

    fn is_stranger(&self, _: &delete_rule::Entry<Small>) -> bool {
        false
    }

    fn knows_group_of(&self, _: &delete_rule::Entry<Small>) -> bool {
        true
    }

    fn is_marked_by_another(&self, _: &delete_rule::Entry<Small>) -> bool {
        false
    }

    fn has_node(&self, entry: &delete_rule::Entry<Small>) -> bool {
        self.world.knows_node(self.copy, entry.uid.into())
    }

    fn unlogged_machines(&self, log: &Log) -> UnloggedMachines<Small> {
        self.was_asked.set(true);
        let there = self.past.alive.without(small::set(log.entries().iter().map(|entry| &entry.uid)));
        let with_node = there & (self.past.with_node | self.world.shown_nodes[self.copy]);
        let named = |machine: usize| small::named(machine, Set(u8::MAX));
        let waiting = there.without(with_node).iter().map(named).collect();
        UnloggedMachines { with_node: with_node.len().into(), waiting }
    }

    fn followed<P: Policy>(&self, rule: Rule<P>) -> Option<(small::View, Followed<Small, P>)> {
        let version = self.memory.borrow_mut().view(self.world);
        let is_followed = |entry: &&delete_rule::Entry<Small>| self.world.followed.has(entry.uid.into());
        let entries: Vec<_> = version.log.entries().iter().filter(is_followed).cloned().collect();
        Some((version, rule.followed::<Small, Shown>(Kind::MachineDeployment, &[]).and(entries)))
    }

    fn replaceable(&self, request: &Request<Small>, _: &Log) -> Result<Replaceable<Small>, Infallible> {
        // The model replaces no Machine.
        let named = request.machines.len();
        let (is_allowed, has_joined, first, last, joined, now) = (false, false, None, Ok(None), None, 0);
        Ok(Replaceable { is_allowed, named, has_joined, first, last, joined, now })
    }

    fn counts_deleting(&self) -> bool {
        true
    }

    fn has_left(&self, caller: CallerId) -> bool {
        self.memory.borrow().left.has(caller)
    }

    fn ticket(&self) -> u8 {
        let mut world = *self.world;
        world.copies[self.copy] = *self.memory.borrow();
        self.memory.borrow_mut().knows(world.new_ticket())
    }

    fn writer(&self) -> u8 {
        let others = self.world.copies.iter().enumerate().filter(|(copy, _)| *copy != self.copy);
        let others = others.fold(Set(1), |used, (_, memory)| used | Set::one(memory.writer.into()));
        let writer = u8::try_from(others.0.trailing_ones()).unwrap_or_default();
        self.memory.borrow_mut().writer = writer;
        writer
    }
}

impl World {
    pub(crate) fn life(&self, machine: usize) -> Life {
        match self.machines[machine].life {
            world::Life::Alive => Life::Alive,
            world::Life::Deleting => Life::Deleting,
            world::Life::Gone | world::Life::Unborn => Life::Gone,
        }
    }
}

impl Program<'_> {
    /// Returns the rule under the policy of the variant.
    pub(crate) fn core(&self) -> Rule<Variant> {
        Rule(*self.rule)
    }

    pub(crate) fn size_bounds(&self) -> Bounds {
        Bounds { min: self.bounds.min.into(), max: i32::MAX }
    }

    /// Returns the era of the group, at the earliest moment that caches may show.
    fn era(&self, world: &World) -> Era<Small> {
        let left = world.left_log.without(world.logged());
        let entry = |machine: usize| small::entry(machine, Entry { phase: Phase::Lowered, ..Entry::default() });
        let log = world.rule_log().with(left.iter().filter_map(entry));
        let version = small::version(0, 0, &log);
        let mut era = Era::new(&version);
        self.core().see(&mut era, &version);
        era
    }

    /// Returns true if a write of the group makes caches that haven't reached it out of date.
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
}
