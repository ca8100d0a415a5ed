//! The copies of the program in the model: one API call at a time, each with all that may have changed since the last
//! one. What a call should be is decided by [`crate::rule`]; here it is only carried out on the world.

use crate::{
    model::{Bounds, Step},
    rule::{Accept, Existence, Finish, Follows, Precondition, Reached, Rule, Seen},
    world::{At, Entry, Fault, Life, Memory, Past, Phase, Set, World},
};

/// Carries out steps of the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program<'a> {
    /// The rule, with or without some of its steps.
    pub(crate) rule: &'a Rule,
    /// The bounds of the search.
    pub(crate) bounds: &'a Bounds,
}

impl Program<'_> {
    /// All that the copies may do next.
    pub(crate) fn steps(&self, world: &World, found: &mut dyn FnMut(Step, World)) {
        for copy in 0..world.copies.len() {
            match world.copies[copy].at {
                At::Idle => {}
                At::Viewed => self.steps_of_viewed(world, copy, found),
                At::Logged => self.steps_of_logged(world, copy, found),
                At::TakingBack => {
                    let mut then = *world;
                    self.take_back(&mut then, copy);
                    found(Step::TakeBack(copy), then);
                }
            }
        }
        self.steps_of_finisher(world, found);
    }

    /// A command arrives, or is decided again: the MachineDeployment is viewed, and each named Machine as a cache has it.
    pub(crate) fn view(&self, world: &mut World, copy: usize, named: Set, is_soft: bool, past: Past) {
        let machines = &past.show(&world.machines);
        let seen = Seen { replicas: world.replicas, min: self.bounds.min, log: &world.log, machines };
        let in_the_way = Set::of(|machine| named.has(machine) && world.log[machine].phase != Phase::None)
            & Set::of(|machine| world.log[machine].is_soft != is_soft);
        let accept = if in_the_way.is_empty() { self.rule.accept(&seen, named) } else { Accept::BelowMin };
        world.copies[copy] = Memory::default();
        match accept {
            Accept::BelowMin => {}
            Accept::Nothing if is_soft => {}
            Accept::Nothing => world.ledger.accepted = world.ledger.accepted | named,
            Accept::Log(new) => {
                // It went for someone else's smaller size after it was seen alive.
                world.ledger.early = world.ledger.early | (new & past.alive & world.ledger.taken);
                let compares = self.rule.precondition != Precondition::Generation;
                world.copies[copy] = Memory {
                    at: At::Viewed,
                    named,
                    done: new,
                    is_soft,
                    has_counted: !(new & past.deleting).is_empty(),
                    is_fresh: true,
                    viewed_log: if compares { world.logged().0.into() } else { world.log_print() },
                    viewed_replicas: compares.then_some(world.replicas),
                };
                if !self.rule.logs_first {
                    new.iter().for_each(|machine| world.tickets[machine] += 1);
                }
            }
        }
    }

    /// The moments in which a command may see these Machines: as a cache shows them where that is enough, else the
    /// present.
    pub(crate) fn views_of(&self, world: &World, named: Set) -> impl Iterator<Item = Past> {
        let now = world.pasts.last();
        let existing = now.alive | now.deleting;
        let (logged, left, existence) = (world.logged(), world.left_log, self.rule.existence);
        let is_seen = move |past: &&Past| {
            let is_known = (named & existing).without(past.alive | past.deleting).is_empty();
            let is_enough = existence.is_cache_enough(named, left, past.deleting.without(logged));
            **past == now || (is_known && is_enough)
        };
        world.pasts.all().iter().filter(is_seen).copied()
    }

    fn steps_of_viewed(&self, world: &World, copy: usize, found: &mut dyn FnMut(Step, World)) {
        let memory = world.copies[copy];
        if !self.rule.logs_first {
            let unmarked = Set::of(|machine| {
                memory.done.has(machine)
                    && world.machines[machine].exists()
                    && world.machines[machine].mark != world.tickets[machine]
            });
            for machine in unmarked.iter() {
                let mut then = *world;
                self.mark(&mut then, machine, world.tickets[machine]);
                found(Step::Mark(Some(copy), machine), then);
            }
            if !unmarked.is_empty() {
                return;
            }
        }
        if !self.passes(world, memory) {
            for past in self.views_of(world, memory.named) {
                let mut then = *world;
                self.view(&mut then, copy, memory.named, memory.is_soft, past);
                found(Step::ViewAgain(copy, past != world.pasts.last()), then);
            }
            return;
        }
        let mut then = *world;
        self.log(&mut then, copy);
        found(Step::Log(copy, memory.done), then);
        if !self.rule.logs_first && world.budget.refusals > 0 {
            let mut then = *world;
            then.budget.refusals -= 1;
            then.copies[copy] = Memory::default();
            found(Step::Refused(Some(copy), memory.done), then);
        }
    }

    /// Whether the API server lets the write of a command pass that has viewed this.
    fn passes(&self, world: &World, memory: Memory) -> bool {
        match self.rule.precondition {
            Precondition::Generation => memory.is_fresh && memory.viewed_log == world.log_print(),
            Precondition::Values => {
                (memory.viewed_log, memory.viewed_replicas) == (world.logged().0.into(), Some(world.replicas))
            }
            Precondition::Nothing => true,
        }
    }

    /// The command's Machines are added to the log.
    fn log(&self, world: &mut World, copy: usize) {
        let memory = world.copies[copy];
        if self.rule.precondition == Precondition::Nothing {
            let viewed = Set(u8::try_from(memory.viewed_log).unwrap_or_default());
            for machine in world.logged().without(viewed).iter() {
                world.leave_log(machine);
            }
        }
        for machine in memory.done.iter() {
            if self.rule.logs_first {
                world.tickets[machine] += 1;
            }
            let ticket = world.tickets[machine];
            world.log[machine] = Entry { phase: Phase::Wanted, ticket, is_soft: memory.is_soft };
            if world.machines[machine].life != Life::Alive {
                world.ledger.foreign = world.ledger.foreign | Set::one(machine);
            }
            world.followed = world.followed.without(Set::one(machine));
        }
        if self.rule.has_tickets {
            // What was copied of an earlier entry isn't about this one.
            let deployments = world.deployments.all_mut().iter_mut();
            let sets = world.sets.all_mut().iter_mut().map(|set| &mut set.copied);
            deployments.chain(sets).for_each(|copied| copied.lowered = copied.lowered.without(memory.done));
            // Nor is what other copies remember of it.
            for other in world.copies.iter_mut().filter(|other| other.at == At::Logged) {
                other.done = other.done.without(memory.done);
            }
        }
        if memory.has_counted && self.rule.existence.minds_entries() {
            world.outdate_caches();
        }
        if self.rule.logs_first {
            world.copies[copy] =
                Memory { at: At::Logged, named: memory.named, is_soft: memory.is_soft, ..Memory::default() };
            world.deployment_changed(self.bounds.lag);
        } else {
            self.lower(world, memory.done);
            Self::answer(world, copy);
        }
    }

    fn steps_of_logged(&self, world: &World, copy: usize, found: &mut dyn FnMut(Step, World)) {
        let memory = world.copies[copy];
        let unmarked = memory.named.without(memory.done)
            & Set::of(|machine| self.rule.marks && world.machines[machine].exists() && !world.is_marked(machine));
        // A copy doesn't read the log again before it marks: another one may have taken the entry back.
        for machine in unmarked.iter() {
            let mut then = *world;
            self.mark(&mut then, machine, world.tickets[machine]);
            then.copies[copy].done = then.copies[copy].done | Set::one(machine);
            found(Step::Mark(Some(copy), machine), then);
        }
        if !unmarked.is_empty() {
            return;
        }
        let wanted = memory.named & world.in_phase(Phase::Wanted);
        if self.is_refused(world, wanted) {
            let mut then = *world;
            self.refuse(&mut then, copy, wanted);
            found(Step::Refused(Some(copy), wanted), then);
        }
        if self.fits(world, wanted) {
            let mut then = *world;
            let lowered = self.drop_unseen(&mut then, wanted, memory.done);
            self.lower(&mut then, lowered);
            Self::answer(&mut then, copy);
            found(Step::Lower(Some(copy), lowered), then);
        }
    }

    /// Whether the size stays at min or above: it may have been changed since the Machines were logged.
    fn fits(&self, world: &World, wanted: Set) -> bool {
        wanted.is_empty() || world.replicas - wanted.len() >= self.bounds.min
    }

    /// Whether the size write may be refused for good.
    fn is_refused(&self, world: &World, wanted: Set) -> bool {
        !self.fits(world, wanted) || (!wanted.is_empty() && world.budget.refusals > 0)
    }

    fn mark(&self, world: &mut World, machine: usize, ticket: u8) {
        world.machines[machine].mark = ticket;
        world.machines_changed(self.bounds.lag);
    }

    /// For the variant whose marks are its reads: what this copy found gone and hasn't marked leaves the log, in the
    /// same patch. What lowers the size is left.
    fn drop_unseen(&self, world: &mut World, wanted: Set, marked: Set) -> Set {
        if self.rule.existence != Existence::Mark {
            return wanted;
        }
        let unseen = wanted.without(marked) & Set::of(|machine| world.machines[machine].life == Life::Gone);
        unseen.iter().for_each(|machine| world.leave_log(machine));
        if !unseen.is_empty() {
            world.deployment_changed(self.bounds.lag);
        }
        wanted.without(unseen)
    }

    /// One patch: the size is lowered by as many, and the log says so.
    fn lower(&self, world: &mut World, set: Set) {
        if set.is_empty() {
            return;
        }
        for machine in set.iter() {
            world.replicas -= 1;
            world.ledger.size -= 1;
            world.log[machine].phase = Phase::Lowered;
            if world.log[machine].is_soft {
                world.ledger.excused = world.ledger.excused | Set::one(machine);
            } else {
                if world.ledger.paid.has(machine) {
                    world.ledger.fault = Some(Fault::PaidTwice(u8::try_from(machine).unwrap_or_default()));
                }
                world.ledger.paid = world.ledger.paid | Set::one(machine);
                // It went for someone else's smaller size while a command was under way: both orders are right.
                world.ledger.others += i8::from(world.ledger.early.has(machine));
            }
            if world.machines[machine].life == Life::Gone {
                self.note_replaced(world, machine);
            }
        }
        world.deployment_changed(self.bounds.lag);
        world.note_followed(self.has_followed(world));
    }

    /// A command ends. Its Machines are in the log or gone, or another copy has taken them back.
    fn answer(world: &mut World, copy: usize) {
        let Memory { named, is_soft, .. } = world.copies[copy];
        let is_ok = named.iter().all(|machine| {
            matches!(world.log[machine].phase, Phase::Wanted | Phase::Lowered)
                || world.machines[machine].life == Life::Gone
        });
        if is_ok && !is_soft {
            world.ledger.accepted = world.ledger.accepted | named;
        }
        world.copies[copy] = Memory::default();
    }

    /// The size write is refused for good.
    fn refuse(&self, world: &mut World, copy: usize, refused: Set) {
        if self.fits(world, refused) {
            world.budget.refusals -= 1;
        }
        world.copies[copy] = Memory { at: At::TakingBack, named: refused, ..Memory::default() };
        if self.bounds.admits_known {
            world.ledger.others += refused.len();
        }
    }

    /// The entries leave the log; the marks then belong to no entry, and go.
    fn take_back(&self, world: &mut World, copy: usize) {
        let wanted = world.copies[copy].named & world.in_phase(Phase::Wanted);
        for machine in wanted.iter() {
            world.leave_log(machine);
            if world.ledger.chosen.has(machine) {
                world.ledger.excused = world.ledger.excused | Set::one(machine);
                Self::took_another(world, machine);
            }
        }
        world.copies[copy] = Memory::default();
        world.deployment_changed(self.bounds.lag);
    }

    /// A Machine was taken that nobody named, or whose command was refused.
    pub(crate) fn took_another(world: &mut World, machine: usize) {
        world.ledger.others -= 1;
        if world.ledger.others < 0 {
            world.ledger.fault = Some(Fault::TookAnother(u8::try_from(machine).unwrap_or_default()));
        }
    }

    /// A Machine that someone else deleted was gone before the MachineSet controller saw all smaller sizes, and so may
    /// have been made good.
    pub(crate) fn note_replaced(&self, world: &mut World, machine: usize) {
        if self.bounds.admits_known && world.ledger.foreign.has(machine) {
            world.ledger.others += 1;
        }
    }

    fn steps_of_finisher(&self, world: &World, found: &mut dyn FnMut(Step, World)) {
        let mut all_wanted = Set(0);
        for machine in 0..world.machines.len() {
            let others = world.logged().without(world.followed | Set::one(machine));
            let reached = Reached {
                is_followed: world.followed.has(machine) || self.rule.follows == Follows::AtOnce,
                are_others_followed: others.is_empty() || self.rule.follows == Follows::AtOnce,
            };
            let Some(call) = self.rule.finish(world.log[machine], world.machines[machine], reached) else {
                continue;
            };
            // Without the log, only the age of a mark tells whether a command still needs it; here it always does.
            let is_needed = world.copies.iter().any(|memory| memory.at == At::Viewed && memory.done.has(machine));
            if call == Finish::Unmark && !self.rule.logs_first && is_needed {
                continue;
            }
            if call == Finish::Lower {
                all_wanted = all_wanted | Set::one(machine);
                continue;
            }
            let mut then = *world;
            self.finish(&mut then, machine, call);
            found(Step::Finish(call, machine), then);
        }
        // All that is wanted is lowered at once, when all of it is marked.
        if all_wanted.is_empty() || all_wanted != world.in_phase(Phase::Wanted) {
            return;
        }
        if self.fits(world, all_wanted) {
            let mut then = *world;
            let lowered = self.drop_unseen(&mut then, all_wanted, Set(0));
            self.lower(&mut then, lowered);
            found(Step::Lower(None, lowered), then);
        }
        let idle = world.copies.iter().position(|memory| memory.at == At::Idle);
        if let Some(copy) = idle
            && self.is_refused(world, all_wanted)
        {
            let mut then = *world;
            self.refuse(&mut then, copy, all_wanted);
            found(Step::Refused(None, all_wanted), then);
        }
    }

    fn finish(&self, world: &mut World, machine: usize, call: Finish) {
        match call {
            Finish::Mark => self.mark(world, machine, world.log[machine].ticket),
            Finish::Lower => self.lower(world, world.in_phase(Phase::Wanted)),
            Finish::Delete => {
                world.machines[machine].life = Life::Deleting;
                world.machines_changed(self.bounds.lag);
            }
            Finish::Forget => {
                let is_soft = world.log[machine].is_soft;
                world.leave_log(machine);
                if is_soft && self.rule.existence.minds_soft_entries() {
                    world.outdate_caches();
                }
                world.followed = world.followed.without(Set::one(machine));
                world.deployment_changed(self.bounds.lag);
            }
            Finish::Unmark => self.mark(world, machine, 0),
        }
    }
}
