//! The copies of the program in the model: one API call at a time, each with all that may have changed since the last
//! one. What a call should be is decided by [`delete_rule`]; here it is only carried out on the world.

use delete_rule::Marking;

use crate::{
    model::{Bounds, Step},
    small,
    variant::{Existence, Precondition, UnmarkTests, Variant},
    world::{At, Entry, Fault, Life, Memory, Past, Phase, Set, World},
};

/// Carries out steps of the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program<'a> {
    /// The rule, with or without some of its steps.
    pub(crate) rule: &'a Variant,
    /// The bounds of the search.
    pub(crate) bounds: &'a Bounds,
}

/// The Machines that a command names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) named: Set,
    /// Of these, those that are named as Machines that never joined.
    pub(crate) never_joined: Set,
    /// True if it is DecreaseTargetSize.
    pub(crate) is_soft: bool,
}

impl Asked {
    fn of(memory: Memory) -> Self {
        Self { named: memory.named, never_joined: memory.never_joined, is_soft: memory.is_soft }
    }
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
                At::Counting | At::HalfCounted | At::Counted => self.steps_of_places(world, copy, found),
            }
        }
        self.steps_of_finisher(world, found);
    }

    /// A command arrives, or is decided again: the MachineDeployment is viewed, and each named Machine as a cache has it.
    pub(crate) fn view(&self, world: &mut World, copy: usize, asked: Asked, past: Past) {
        let Asked { named, never_joined, is_soft } = asked;
        let accepted = if is_soft { self.accept_soft(world, asked, past) } else { self.accept(world, asked, past) };
        world.copies[copy] = Memory::default();
        let Some((new, counted)) = accepted else { return };
        if new.is_empty() && (named & world.in_phase(Phase::Wanted)).is_empty() {
            if !is_soft {
                world.ledger.accepted = world.ledger.accepted | named;
            }
            return;
        }
        // It went for someone else's smaller size after it was seen alive.
        world.ledger.early = world.ledger.early | (new & past.alive & world.ledger.taken);
        let compares = self.rule.precondition != Precondition::Generation;
        world.copies[copy] = Memory {
            at: At::Viewed,
            named,
            done: new,
            never_joined,
            is_soft,
            counted,
            is_fresh: true,
            viewed_log: if compares { world.logged().0.into() } else { world.log_print() },
            viewed_replicas: compares.then_some(world.replicas),
            ..Memory::default()
        };
        if !self.rule.logs_first {
            new.iter().for_each(|machine| world.tickets[machine] += 1);
        }
    }

    /// The moments in which a command may see these Machines: as a cache shows them where that is enough, else the
    /// present.
    pub(crate) fn views_of(&self, world: &World, named: Set) -> impl Iterator<Item = Past> {
        let now = world.pasts.last();
        let existing = now.alive | now.deleting;
        let unlogged = named.without(world.logged());
        let era = (world.pasts.all().len() > 1).then(|| self.era(world));
        let is_believed = |machine| self.core().believed_since(era.as_ref()?, &small::uid(machine));
        let are_believed = unlogged.iter().all(|machine| is_believed(machine).is_some());
        let is_seen = move |past: &&Past| {
            let is_known = (named & existing).without(past.alive | past.deleting).is_empty();
            let is_counted = !(unlogged & past.deleting).is_empty();
            **past == now || (is_known && are_believed && !is_counted)
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
        if !self.passes(world, memory) && memory.places.asked > 0 {
            self.count_again(world, copy, found);
            return;
        }
        if !self.passes(world, memory) {
            for past in self.views_of(world, memory.named) {
                let mut then = *world;
                self.view(&mut then, copy, Asked::of(memory), past);
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
            let never_joined = memory.never_joined.has(machine);
            let (is_soft, is_counted) = (memory.is_soft, memory.counted.has(machine));
            world.log[machine] = Entry { phase: Phase::Wanted, ticket, is_soft, never_joined, is_counted };
            if world.machines[machine].life != Life::Alive {
                world.ledger.foreign = world.ledger.foreign | Set::one(machine);
            }
            world.followed = world.followed.without(Set::one(machine));
        }
        // What was copied of an earlier entry isn't about this one.
        let deployments = world.deployments.all_mut().iter_mut();
        let sets = world.sets.all_mut().iter_mut().map(|set| &mut set.copied);
        deployments.chain(sets).for_each(|copied| {
            copied.stale = copied.stale | (copied.lowered & memory.done);
            copied.lowered = copied.lowered.without(memory.done);
        });
        if self.rule.has_tickets {
            // Nor is what other copies remember of it.
            for other in world.copies.iter_mut().filter(|other| other.at == At::Logged) {
                other.done = other.done.without(memory.done);
            }
        }
        if self.rule.logs_first {
            let Memory { named, is_soft, mut places, .. } = memory;
            if places.asked > 0 {
                (places.first_size, places.is_accepted) = (world.replicas, true);
            }
            // Those that it carries on with may be of this kind too.
            let never_joined = named & Set::of(|machine| world.log[machine].never_joined);
            world.copies[copy] = Memory { at: At::Logged, named, never_joined, is_soft, places, ..Memory::default() };
            world.deployment_changed(self.bounds.lag);
        } else {
            self.lower(world, memory.done);
            Self::answer(world, copy, memory.done);
        }
    }

    fn steps_of_logged(&self, world: &World, copy: usize, found: &mut dyn FnMut(Step, World)) {
        let memory = world.copies[copy];
        let unmarked = self.unmarked_of(world, memory);
        // A copy doesn't read the log again before it marks: another one may have taken the entry back.
        for machine in unmarked.iter() {
            let mut then = *world;
            if matches!(self.marking(world, machine), Marking::Joined | Marking::Going) {
                self.take_back_joined(&mut then, machine);
                found(Step::TakeBackJoined(Some(copy), machine), then);
                continue;
            }
            self.mark(&mut then, machine, world.tickets[machine]);
            then.copies[copy].done = then.copies[copy].done | Set::one(machine);
            found(Step::Mark(Some(copy), machine), then);
        }
        if !unmarked.is_empty() {
            return;
        }
        let wanted = memory.named & world.in_phase(Phase::Wanted);
        let mut then = *world;
        let left = self.drop_unseen(&mut then, wanted, memory.done);
        let lowering = self.lowering(&then, left, then.going_by_itself());
        if !wanted.is_empty() && (lowering.is_err() || world.budget.refusals > 0) {
            let mut then = *world;
            self.refuse(&mut then, copy, wanted, lowering.is_ok());
            found(Step::Refused(Some(copy), wanted), then);
        }
        if let Ok((lowered, filled)) = lowering {
            self.drop_filled(&mut then, filled);
            self.lower(&mut then, lowered);
            Self::answer(&mut then, copy, lowered);
            found(Step::Lower(Some(copy), lowered), then);
        }
    }

    /// Those that a command has to mark yet. The mark of a Machine that is to have no Node tests a version that was read
    /// before the log: as long as that holds, the entry is wanted, since nobody lowers it without a mark.
    fn unmarked_of(&self, world: &World, memory: Memory) -> Set {
        let is_over = |machine: usize| {
            let is_wanted = world.log[machine].phase == Phase::Wanted;
            !is_wanted && memory.never_joined.has(machine) && self.rule.marks_only_unjoined
        };
        memory.named.without(memory.done)
            & Set::of(|machine| {
                let is_soft = world.log[machine].phase == Phase::Wanted && world.log[machine].is_soft;
                let is_there = (world.machines[machine].exists() || is_soft) && !world.is_marked(machine);
                self.rule.marks && is_there && !is_over(machine)
            })
    }

    /// A Machine that was to have no Node has one before it is marked: its entry leaves the log.
    pub(crate) fn take_back_joined(&self, world: &mut World, machine: usize) {
        world.leave_log(machine);
        if world.ledger.chosen.has(machine) {
            // It has gone for another smaller size.
            world.ledger.excused = world.ledger.excused | Set::one(machine);
            world.ledger.foreign = world.ledger.foreign | Set::one(machine);
            if world.machines[machine].has_node {
                self.took_another(world, machine);
            }
        }
        world.deployment_changed(self.bounds.lag);
    }

    /// Marks that are sent, have no answer, and land at any later time; and their landing.
    pub(crate) fn late_steps(&self, world: &World, found: &mut dyn FnMut(Step, World)) {
        if let Some((machine, ticket)) = world.in_flight.mark {
            let mut then = *world;
            then.in_flight.mark = None;
            self.mark(&mut then, machine.into(), ticket);
            found(Step::LateMark(machine.into()), then);
        }
        if world.budget.late_marks == 0 || world.in_flight.mark.is_some() {
            return;
        }
        let by_commands = world.copies.iter().filter(|memory| memory.at == At::Logged);
        // The mark of a Machine that is to have no Node tests the version in which it has none, and can't come after
        // another mark.
        let tested = |never_joined| if self.rule.marks_only_unjoined { never_joined } else { Set(0) };
        let by_commands = by_commands
            .fold(Set(0), |set, memory| set | self.unmarked_of(world, *memory).without(tested(memory.never_joined)));
        let by_finishers = world.in_phase(Phase::Wanted)
            & Set::of(|machine| world.machines[machine].exists() && !world.is_marked(machine));
        let by_finishers = by_finishers.without(tested(Set::of(|machine| world.log[machine].never_joined)));
        for machine in (by_commands | by_finishers).iter() {
            let mut then = *world;
            then.budget.late_marks -= 1;
            let index = u8::try_from(machine).unwrap_or_default();
            then.in_flight.mark = Some((index, world.tickets[machine]));
            found(Step::SendMark(machine), then);
        }
    }

    pub(crate) fn mark(&self, world: &mut World, machine: usize, ticket: u8) {
        let is_changed = world.machines[machine].mark != ticket;
        if is_changed && self.rule.unmark_tests == UnmarkTests::Version {
            // The mark that was to be taken off is there no more.
            world.in_flight.unmark = world.in_flight.unmark.filter(|unmark| usize::from(unmark.0) != machine);
        }
        let entry = world.log[machine];
        let is_first = entry.phase == Phase::Wanted && entry.ticket == ticket && is_changed;
        let is_alive = world.machines[machine].life == Life::Alive;
        if is_first && entry.never_joined && is_alive && world.machines[machine].has_node {
            world.ledger.joined_before = world.ledger.joined_before | Set::one(machine);
        }
        world.machines[machine].mark = ticket;
        world.machines_changed(self.bounds.lag);
    }

    /// For the variant whose marks are its reads: what this copy found gone and hasn't marked leaves the log, in the
    /// same patch. What lowers the size is left.
    pub(crate) fn drop_unseen(&self, world: &mut World, wanted: Set, marked: Set) -> Set {
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

    /// Machines that go by themselves and have their places filled leave the log, in the same patch.
    pub(crate) fn drop_filled(&self, world: &mut World, filled: Set) {
        for machine in filled.iter() {
            world.leave_log(machine);
            // The size counts all that are there: it went for another's smaller size, or was made good before.
            world.ledger.excused = world.ledger.excused | Set::one(machine);
        }
        if !filled.is_empty() {
            world.deployment_changed(self.bounds.lag);
        }
    }

    /// One patch: the size is lowered by as many, and the log says so.
    pub(crate) fn lower(&self, world: &mut World, set: Set) {
        if set.is_empty() {
            return;
        }
        let filled = world.filled(set);
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
            // One whose place is filled lowers the size for another Machine.
            if world.machines[machine].life == Life::Gone && !filled.has(machine) {
                self.note_replaced(world, machine);
            }
        }
        self.check_min(world);
        world.deployment_changed(self.bounds.lag);
        self.note_followed(world);
    }

    pub(crate) fn check_min(&self, world: &mut World) {
        if world.replicas < self.bounds.min {
            world.ledger.fault = Some(Fault::BelowMin);
        }
    }

    /// A command ends that has lowered the size for these. Its Machines are in the log or gone, or another copy has taken
    /// them back.
    fn answer(world: &mut World, copy: usize, lowered: Set) {
        let Memory { named, is_soft, mut places, .. } = world.copies[copy];
        if places.asked > 0 {
            // The entries have been lowered, or another copy has taken them back; the rest has no Machine.
            let is_ok = named.iter().all(|machine| world.log[machine].phase != Phase::None);
            places.asked = places.rest;
            places.first_size -= lowered.len();
            let goes_on = is_ok && places.asked > 0;
            world.copies[copy] =
                if goes_on { Memory { at: At::Counting, places, ..Memory::default() } } else { Memory::default() };
            return;
        }
        let is_ok = named.iter().all(|machine| {
            matches!(world.log[machine].phase, Phase::Wanted | Phase::Lowered)
                || world.machines[machine].life == Life::Gone
        });
        if is_ok && !is_soft {
            world.ledger.accepted = world.ledger.accepted | named;
        }
        world.copies[copy] = Memory::default();
    }

    /// The size write is refused for good, by the API server or as one below min.
    pub(crate) fn refuse(&self, world: &mut World, copy: usize, refused: Set, is_by_server: bool) {
        world.budget.refusals -= u8::from(is_by_server);
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
                self.took_another(world, machine);
            }
        }
        world.copies[copy] = Memory::default();
        world.deployment_changed(self.bounds.lag);
    }

    /// True if a Machine has come into the place of a placeholder whose smaller size is on its way.
    pub(crate) fn may_miss_places(&self, world: &World) -> bool {
        let came = world.ledger.places.min(world.ledger.came.len());
        self.bounds.admits_known && came > world.ledger.places_missed
    }

    /// A Machine was taken that nobody named, or whose command was refused.
    pub(crate) fn took_another(&self, world: &mut World, machine: usize) {
        // A Machine may have come into a placeholder's place since it was counted. The smaller size takes that one as
        // long as it is seen to have no Node, and isn't named or deleted itself.
        if self.may_miss_places(world) {
            world.ledger.places_missed += 1;
            return;
        }
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
}
