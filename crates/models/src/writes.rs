//! The writes of copies as the API server executes them, and the ledger's record of them. This file must know no rule:
//! it compares the objects before and after a write.

use delete_rule::{
    Life,
    steps::{Details, Failure, MarkCall, MarkOutcome, Outcome},
};

use crate::{
    program::Program,
    saved::{Call, SavedCommand},
    small::{self, Failed, Log, Small, View},
    step::Step,
    variant::{Existence, Precondition, UnmarkTests},
    world::{self, Fault, Phase, Ring, SLOTS, Set, World},
};

/// A write of the group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write<'a> {
    seen: &'a View,
    log: Option<&'a Log>,
    to: Option<i32>,
    /// The writer of a size without a log, and true if the writer counted Machines for that size.
    alone: Option<(u8, bool)>,
}

impl<'a> Write<'a> {
    pub(crate) fn of(call: &'a Call) -> Option<Self> {
        match call {
            Call::WriteLog { seen, log } => Some(Self { seen, log: Some(log), to: None, alone: None }),
            Call::Lower { seen, lowering } => {
                let to = (!lowering.names.is_empty()).then_some(lowering.to);
                Some(Self { seen, log: Some(&lowering.log), to, alone: None })
            }
            Call::Resize { seen, to, writer, counted } => {
                Some(Self { seen, log: None, to: Some(*to), alone: Some((*writer, *counted)) })
            }
            _ => None,
        }
    }
}

impl Program<'_> {
    /// Returns true if the API server accepts a write.
    pub(crate) fn passes(&self, world: &World, copy: usize, write: &Write<'_>) -> bool {
        let memory = &world.copies[copy];
        let is_same_size = world.replicas == write.seen.replicas;
        let is_same_generation = write.seen.generation == memory.generation + memory.behind;
        if write.alone.is_some_and(|(_, counted)| !counted) {
            return is_same_size;
        }
        match self.rule.precondition {
            _ if memory.pretends_at.is_some() => is_same_generation && memory.pretends_at == Some(world.log_print()),
            Precondition::Generation => is_same_generation && memory.log(&write.seen.log) == world.log,
            Precondition::Values => {
                let seen = write.seen.log.entries().iter().map(|entry| &entry.uid);
                is_same_size && small::set(seen) == world.logged()
            }
            Precondition::Nothing => true,
        }
    }

    /// Finds all outcomes of a copy's write and of its response.
    pub(crate) fn write(
        &self,
        world: &World,
        copy: usize,
        rest: &SavedCommand,
        write: &Write<'_>,
        found: &mut dyn FnMut(Step, World),
    ) {
        let mut fail = |then: &World, failure, step| {
            let outcome = Outcome::Written(Err(Failed(failure)));
            self.go_on(then, copy, rest, Some(&outcome), step, found);
        };
        if !self.passes(world, copy, write) {
            fail(world, Failure::Rejected, Step::Fails(copy));
            return;
        }
        let lowers = write.to.is_some() && write.alone.is_none();
        let mut done = *world;
        let (step, set) = self.done(&mut done, copy, write);
        if lowers && world.budget.refusals > 0 {
            let mut then = *world;
            then.budget.refusals -= 1;
            fail(&then, Failure::Final, Step::Refused(copy, set));
        }
        if world.budget.lost_answers > 0 {
            for (mut then, step) in [(done, step.without_answer(true)), (*world, step.without_answer(false))] {
                then.budget.lost_answers -= 1;
                fail(&then, Failure::Unknown, step);
            }
        }
        let view = if world.copies[copy].pretends_at.is_none() && done.copies[copy].pretends_at.is_some() {
            let mut view = done.view_of(copy);
            view.log = write.log.cloned().unwrap_or_default();
            view
        } else {
            done.view_of(copy)
        };
        self.go_on(&done, copy, rest, Some(&Outcome::Written(Ok(view))), step, found);
    }

    /// Applies a write.
    fn done(&self, world: &mut World, copy: usize, write: &Write<'_>) -> (Step, Set) {
        let before = *world;
        let (step, set) = match (write.log, write.to) {
            (Some(log), to) => self.write_log(world, copy, log, to),
            (None, to) => {
                let to = to.and_then(|to| i8::try_from(to).ok()).unwrap_or(world.replicas);
                (self.write_size(world, copy, to, write.alone.map_or(0, |(writer, _)| writer)), Set(0))
            }
        };
        world.deployment_changed(self.bounds.lag);
        if self.outdates_caches(&before, world) {
            world.outdate_caches();
        }
        (step, set)
    }

    fn write_size(&self, world: &mut World, copy: usize, to: i8, writer: u8) -> Step {
        let fewer = world.replicas - to;
        (world.replicas, world.sized_by) = (to, writer);
        world.ledger.size -= fewer;
        if fewer < 0 {
            world.tally.resize(-fewer);
            return Step::Increase(copy);
        }
        world.ledger.places += fewer;
        Self::lower_places(world, copy, fewer);
        self.check_min(world);
        Step::LowerPlaces(copy, fewer)
    }

    fn lower_places(world: &mut World, copy: usize, fewer: i8) {
        let memory = &mut world.copies[copy];
        memory.lowered += fewer;
        if memory.asked > 0 && memory.lowered > memory.asked {
            world.ledger.fault = Some(Fault::TooManyPlaces);
        }
    }

    /// Writes the log, together with the size `to` if there is one.
    fn write_log(&self, world: &mut World, copy: usize, log: &Log, to: Option<i32>) -> (Step, Set) {
        let new = world.copies[copy].log(log);
        let old = world.log;
        let is_in = |one: usize| new[one].phase != Phase::None;
        let logged = Set::of(|one| is_in(one) && (old[one].phase == Phase::None || old[one].ticket != new[one].ticket));
        if !self.rule.logs_first && to.is_none() && !logged.is_empty() {
            // This variant writes the log only together with the size.
            world.copies[copy].pretends_at = Some(world.log_print());
            return (Step::Log(copy, logged), logged);
        }
        let left = Set::of(|one| !is_in(one) && old[one].phase != Phase::None);
        let is_lowered = |one: usize| {
            let was_lowered = old[one].phase == Phase::Lowered && !logged.has(one);
            new[one].phase == Phase::Lowered && !was_lowered
        };
        let lowered = Set::of(is_lowered);
        let is_filled = left & world.deleted_elsewhere();
        for machine in left.iter() {
            world.leave_log(machine);
            if to.is_some() || (is_filled.has(machine) && matches!(world.copies[copy].refused, Set(0))) {
                // The size counts all existing Machines. This Machine was deleted for another client's smaller size, or
                // was replaced before.
                world.ledger.excused = world.ledger.excused | Set::one(machine);
            } else if old[machine].phase == Phase::Wanted && !self.takes_for_over(world, machine) {
                self.take_back(world, machine, old[machine].never_joined);
            }
        }
        Self::log(world, logged, &new);
        if lowered.is_empty() {
            let step = if logged.is_empty() { Step::TakeBack(copy, left) } else { Step::Log(copy, logged) };
            return (step, logged | left);
        }
        if let Some(to) = to {
            world.copies[copy].pretends_at = None;
            self.lower(world, copy, lowered, i8::try_from(to).unwrap_or_default());
        }
        (Step::Lower(copy, lowered), lowered)
    }

    /// Returns true if the variant considers a Machine's deletion done because the Machine was gone at the call for its
    /// mark.
    fn takes_for_over(&self, world: &World, machine: usize) -> bool {
        self.rule.existence == Existence::Mark && world.life(machine) == Life::Gone
    }

    /// Adds Machines to the log.
    fn log(world: &mut World, logged: Set, new: &[world::Entry; SLOTS]) {
        for machine in logged.iter() {
            world.log[machine] = world::Entry { phase: Phase::Wanted, ..new[machine] };
            if world.machines[machine].life != world::Life::Alive {
                world.ledger.foreign = world.ledger.foreign | Set::one(machine);
            }
            world.followed = world.followed.without(Set::one(machine));
        }
        // The copied log may still have an earlier entry of the Machine, which differs from this one.
        let deployments = world.deployments.all_mut().iter_mut();
        let sets = world.sets.iter_mut().flat_map(Ring::all_mut).map(|set| {
            set.given = set.given.without(logged);
            &mut set.copied
        });
        deployments.chain(sets).for_each(|copied| {
            copied.stale = copied.stale | (copied.lowered & logged);
            copied.lowered = copied.lowered.without(logged);
        });
    }

    /// Handles a wanted entry that has left the log: its size write was refused, or it was for a Machine without a
    /// Node.
    fn take_back(&self, world: &mut World, machine: usize, never_joined: bool) {
        if !world.ledger.chosen.has(machine) {
            return;
        }
        // The Machine was deleted for another smaller size.
        world.ledger.excused = world.ledger.excused | Set::one(machine);
        if !never_joined {
            self.took_another(world, machine);
            return;
        }
        world.ledger.foreign = world.ledger.foreign | Set::one(machine);
        if world.machines[machine].has_node {
            self.took_another(world, machine);
        }
    }

    /// Lowers the size for these Machines.
    fn lower(&self, world: &mut World, copy: usize, set: Set, to: i8) {
        let filled = world.filled(set);
        if world.copies[copy].asked > 0 {
            let named = world.copies[copy].named;
            Self::lower_places(world, copy, set.without(named).len());
        }
        (world.replicas, world.sized_by) = (to, 0);
        world.ledger.size -= set.len();
        if self.bounds.old > 0 {
            world.ledger.owed = world.ledger.owed | set;
        }
        for machine in set.iter() {
            world.log[machine].phase = Phase::Lowered;
            if world.log[machine].is_soft {
                world.ledger.excused = world.ledger.excused | Set::one(machine);
            } else {
                if world.ledger.paid.has(machine) {
                    world.ledger.fault = Some(Fault::PaidTwice(small::uid(machine)));
                }
                world.ledger.paid = world.ledger.paid | Set::one(machine);
                // Another client's smaller size removed the Machine during the command. It may count as removed before
                // or after the command.
                world.ledger.others += i8::from(world.ledger.early.has(machine));
            }
            // A copy that knows of a filled place lowers the size for the Machine in it; one that saw this Machine
            // alive can't know.
            let may_be_replaced = !filled.has(machine) || world.copies[copy].seen_alive.has(machine);
            if world.machines[machine].life == world::Life::Gone && may_be_replaced {
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

    /// Returns true if a Machine has taken the place of a placeholder whose smaller size is in flight.
    pub(crate) fn may_miss_places(&self, world: &World) -> bool {
        let came = world.ledger.places.min(world.ledger.came.len());
        self.bounds.admits_known && came > world.ledger.places_missed
    }

    /// Handles a Machine that was deleted although no command named it, or although its command was refused.
    pub(crate) fn took_another(&self, world: &mut World, machine: usize) {
        // The copy that marked the Machine couldn't know of its Node, and will remove the mark; or a MachinePool's
        // provider ignored the marks.
        if (world.ledger.unseen | world.ledger.strayed).has(machine) {
            return;
        }
        // A new Machine may have replaced a placeholder since the count. The smaller size removes that Machine as long
        // as no Node of it is seen, and it isn't named or deleted itself.
        if self.may_miss_places(world) {
            world.ledger.places_missed += 1;
            return;
        }
        world.ledger.others -= 1;
        if world.ledger.others < 0 {
            world.ledger.fault = Some(Fault::TookAnother(small::uid(machine)));
        }
    }

    /// Records a Machine that somebody else deleted and that was gone before the MachineSet controller saw all smaller
    /// sizes, so that it may have been replaced.
    pub(crate) fn note_replaced(&self, world: &mut World, machine: usize) {
        if self.bounds.admits_known && world.ledger.foreign.has(machine) {
            world.ledger.others += 1;
        }
    }

    /// Finds all outcomes of a copy's call for a mark.
    pub(crate) fn perform_mark(
        &self,
        world: &World,
        copy: usize,
        rest: &SavedCommand,
        (entry, call): (&delete_rule::Entry<Small>, &MarkCall<Small>),
        found: &mut dyn FnMut(Step, World),
    ) {
        let machine = usize::from(entry.uid);
        let mut then = *world;
        let outcome = Outcome::Mark(entry.clone(), self.set_mark(&mut then, copy, entry, call));
        self.go_on(&then, copy, rest, Some(&outcome), Step::Mark(Some(copy), machine), found);
        // A mark that tests a version can't be applied after another one.
        let is_late = matches!(call, MarkCall::Set(None));
        let ticket = world.copies[copy].ticket(entry.ticket);
        let is_news = world.machines[machine].exists() && world.machines[machine].mark != ticket;
        if world.budget.late_marks > 0 && world.in_flight.mark.is_none() && is_late && is_news {
            let mut then = *world;
            then.budget.late_marks -= 1;
            then.in_flight.mark = Some((entry.uid, ticket));
            let outcome = Outcome::Mark(entry.clone(), MarkOutcome::Set(Err(Failed(Failure::Unknown))));
            self.go_on(&then, copy, rest, Some(&outcome), Step::SendMark(machine), found);
        }
    }

    /// Makes a call for a mark.
    pub(crate) fn set_mark(
        &self,
        world: &mut World,
        copy: usize,
        entry: &delete_rule::Entry<Small>,
        call: &MarkCall<Small>,
    ) -> MarkOutcome<Small> {
        let machine = usize::from(entry.uid);
        let (life, mut memory) = (world.life(machine), world.copies[copy]);
        let ticket = memory.ticket(entry.ticket);
        let alive = if life == Life::Alive { Set::one(machine) } else { Set(0) };
        world.copies[copy].seen_alive = memory.seen_alive.without(Set::one(machine)) | alive;
        match call {
            MarkCall::ReadOwner => MarkOutcome::IsOfGroup(Ok((life != Life::Gone).then_some(true))),
            MarkCall::Read => MarkOutcome::Life(Ok(life)),
            MarkCall::ReadDetails => {
                let has_joined = life == Life::Alive && world.knows_node(copy, machine);
                let version = (life == Life::Alive).then_some(memory.versions[machine]);
                let has_mark = life != Life::Gone && world.machines[machine].mark == ticket;
                let ticket = has_mark.then_some(entry.ticket);
                MarkOutcome::Details(Ok(Details { life, has_joined, version, ticket }))
            }
            MarkCall::ReadGroup => MarkOutcome::Group(Ok(memory.view(world))),
            MarkCall::Set(version) => {
                let is_another = version.is_some_and(|version| version != memory.versions[machine]);
                // The check of the Node watch and the call are one step.
                let has_node = version.is_some() && self.rule.marks_look_again && world.knows_node(copy, machine);
                if life != Life::Gone && (is_another || has_node) {
                    return MarkOutcome::Set(Err(Failed(Failure::Conflict)));
                }
                if life != Life::Gone && self.rule.marks && world.machines[machine].mark != ticket {
                    // A copy can't know a Node that no watch or read has shown to it.
                    let is_unseen = world.machines[machine].has_node && !world.knows_node(copy, machine);
                    if entry.gives_up() && is_unseen && self.bounds.admits_known {
                        world.ledger.unseen = world.ledger.unseen | Set::one(machine);
                    }
                    self.mark(world, machine, ticket);
                }
                MarkOutcome::Set(Ok(life))
            }
        }
    }

    /// Sets the mark of a Machine; 0 removes it.
    pub(crate) fn mark(&self, world: &mut World, machine: usize, ticket: u8) {
        let is_changed = world.machines[machine].mark != ticket;
        if is_changed && self.rule.unmark_tests == UnmarkTests::Version {
            // The mark that was to be removed no longer exists.
            world.in_flight.unmark = world.in_flight.unmark.filter(|unmark| usize::from(unmark.0) != machine);
        }
        let entry = world.log[machine];
        let is_first = entry.phase == Phase::Wanted && entry.ticket == ticket && is_changed;
        let is_alive = world.machines[machine].life == world::Life::Alive;
        let is_excused = world.ledger.unseen.has(machine);
        if is_first && entry.never_joined && is_alive && world.machines[machine].has_node && !is_excused {
            world.ledger.joined_before = world.ledger.joined_before | Set::one(machine);
        }
        if is_changed {
            world.touch(machine);
        }
        world.machines[machine].mark = ticket;
        world.machines_changed(self.bounds.lag);
    }

    /// Applies a mark that was sent and got no response.
    pub(crate) fn late_steps(&self, world: &World, found: &mut dyn FnMut(Step, World)) {
        if let Some((machine, ticket)) = world.in_flight.mark {
            let mut then = *world;
            then.in_flight.mark = None;
            self.mark(&mut then, machine.into(), ticket);
            found(Step::LateMark(machine.into()), then);
        }
    }
}

impl World {
    /// Returns true if the Machine of an entry may be marked although it was given up as one that never joined.
    pub(crate) fn may_be_marked(&self, copy: usize, machine: usize) -> bool {
        self.machines[machine].life == world::Life::Alive && !self.knows_node(copy, machine)
    }
}
