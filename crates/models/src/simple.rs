//! The simple rule: delete first, then lower the size. Each call of a command is a step, and everything else may happen
//! between two of them. The controllers, the other clients and the bounds are those of the rule with a log.
//!
//! A command views the group, then deletes each named Machine with its uid and resourceVersion as preconditions, then
//! lowers the size by those that it has deleted itself. The size is tested by each write. It is read after a test that
//! fails, and after an answer that is lost.

use crate::{
    explore::{Model, Next},
    model::DeleteModel,
    program::Program,
    step::Step,
    world::{Ledger, Life, Memory, Past, Ring, Running, Set, Stage, World},
};

/// What a copy makes of a Machine that is being deleted when it is read after a DELETE without an answer.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum)]
pub enum Unanswered {
    /// It isn't counted, since somebody else may have deleted it.
    #[default]
    Drop,
    /// It is counted.
    Count,
    /// It is counted if it carries this command's mark.
    CountMarked,
}

/// The simple rule, in its variants.
#[derive(Clone, Copy, Debug, Default)]
pub struct Simple {
    /// True if each Machine is marked before it is deleted.
    pub marks: bool,
    /// What is made of a DELETE without an answer.
    pub unanswered: Unanswered,
    /// True if a Machine that hangs in deletion is a placeholder only after the longest command: its deleter has ended.
    pub waits: bool,
    /// True if a size that one other write has changed since shows that a write without an answer wasn't done.
    pub counts_writes: bool,
}

/// The model of the simple rule within bounds.
#[derive(Clone, Copy, Debug)]
pub struct SimpleModel {
    /// The rule.
    pub simple: Simple,
    /// The bounds, with everything else that acts.
    pub rest: DeleteModel,
}

type Find<'a> = &'a mut dyn FnMut(Step, World);

impl SimpleModel {
    fn next(&self, step: Step, mut world: World, is_certain: bool) -> Next<Self> {
        let bounds = &self.rest.bounds;
        let is_within = world.replicas >= 0;
        if bounds.is_bare {
            Program::show_at_once(&mut world, bounds.lag);
        }
        world.note_past(bounds.lag);
        if bounds.lags_node_refs {
            world.show_known_nodes();
        }
        let budget = world.budget;
        let may_view = budget.deletes + budget.mixed + budget.decreases > 0;
        if !may_view {
            world.pasts = Ring::of(world.pasts.last());
        }
        // The ledger judges the rule with a log. Only the Machines that may be named again matter here.
        let named = if may_view { world.tally.named } else { Set(0) };
        world.ledger = Ledger { named, ..Ledger::default() };
        if bounds.merges_copies {
            world.sort_copies();
        }
        Next { step, state: is_within.then_some(world), is_certain }
    }

    fn commands(&self, world: &World, found: Find<'_>) {
        let bounds = &self.rest.bounds;
        let budget = world.budget;
        if bounds.joins_batches && budget.deletes > 0 {
            for copy in (0..bounds.copies).filter(|copy| world.copies[*copy].running.stage == Stage::Delete) {
                for named in self.rest.nameable(world) {
                    let mut then = *world;
                    then.budget.deletes -= 1;
                    self.ask(then, copy, (named, 0), Step::JoinBatch(copy, named), found);
                }
            }
        }
        let Some(copy) = self.rest.idle(world) else { return };
        let mut fresh = *world;
        fresh.copies[copy] = Memory::default();
        if budget.deletes > 0 {
            for named in self.rest.nameable(world) {
                let mut then = fresh;
                then.budget.deletes -= 1;
                self.ask(then, copy, (named, 0), Step::Ask(copy, named), found);
            }
        }
        if budget.mixed > 0 {
            for named in self.rest.nameable(world) {
                for count in 1..=bounds.batch {
                    let mut then = fresh;
                    then.budget.mixed -= 1;
                    self.ask(then, copy, (named, count), Step::AskBoth(copy, named, count), found);
                }
            }
        }
        for count in 1..=if budget.placeholders > 0 { bounds.batch } else { 0 } {
            let mut then = fresh;
            then.budget.placeholders -= 1;
            self.ask(then, copy, (Set(0), count), Step::AskPlaces(copy, count), found);
        }
        if budget.decreases > 0 {
            self.ask_less(fresh, copy, found);
        }
        if budget.increases > 0 {
            let mut then = fresh;
            then.budget.increases -= 1;
            then.copies[copy].running = Running { stage: Stage::Raise, size: then.replicas, ..Running::default() };
            then.copies[copy].writer = then.new_writer(copy);
            found(Step::AskMore(copy), then);
        }
    }

    /// A DeleteNodes arrives: it views the Machines in a cache, which may lag behind, and tries the smaller size by a
    /// dry run, which tests the size.
    fn ask(&self, mut world: World, copy: usize, (named, places): (Set, i8), step: Step, found: Find<'_>) {
        self.rest.name(&mut world, named);
        let now = world.pasts.last();
        for (index, past) in world.pasts.all().iter().enumerate().rev() {
            let is_new = |one: usize| !(past.alive | past.deleting).has(one) && world.machines[one].exists();
            // The cache doesn't have a Machine that is newer: it is read.
            let view = |one: usize| if is_new(one) { now } else { *past };
            let alive = named & Set::of(|one| view(one).alive.has(one));
            let current = alive & Set::of(|one| is_same(view(one), now, one));
            let bare = alive & Set::of(|one| !view(one).with_node.has(one) && !world.shown_nodes[copy].has(one));
            let mut then = world;
            let running = &mut then.copies[copy].running;
            let going = (running.left | running.ours | running.unsure).len();
            let new = alive.without(running.left | running.ours | running.unsure);
            if world.replicas - going - new.len() - places < self.rest.bounds.min {
                // It is refused. One that joins lets the command go on.
                if running.stage == Stage::Idle {
                    then.copies[copy] = Memory::default();
                }
                found(step, then);
                continue;
            }
            running.stage = Stage::Delete;
            running.named = running.named | named;
            running.bare = running.bare | (bare & new);
            running.left = running.left | new;
            running.unmarked = if self.simple.marks { running.unmarked | new } else { Set(0) };
            running.current = running.current.without(new) | (current & new);
            (running.places, running.size) = (running.places + places, world.replicas);
            then.copies[copy].behind = 0;
            then.copies[copy].writer = then.new_writer(copy);
            Self::go_on(&mut then, copy);
            let is_last = index + 1 == world.pasts.all().len();
            found(if is_last { step } else { step.of_old_cache() }, then);
        }
    }

    /// A DecreaseTargetSize by one arrives: it takes a placeholder, or else a Machine without a Node.
    fn ask_less(&self, mut world: World, copy: usize, found: Find<'_>) {
        world.budget.decreases -= 1;
        let size = world.replicas;
        let now = world.pasts.last();
        if size <= self.rest.bounds.min {
            return;
        }
        for past in world.pasts.all() {
            let pending = past.alive.without(past.with_node | world.shown_nodes[copy]);
            let is_short = size > (past.alive | (past.deleting & past.with_node)).len();
            let mut then = world;
            let left = if is_short { Set(0) } else { pending.first(1) };
            if !is_short && left.is_empty() {
                continue;
            }
            let current = left & Set::of(|one| is_same(*past, now, one));
            let unmarked = if self.simple.marks { left } else { Set(0) };
            let places = i8::from(is_short);
            let stage = Stage::Delete;
            then.copies[copy].running =
                Running { stage, left, bare: left, current, unmarked, places, size, ..Running::default() };
            then.copies[copy].writer = then.new_writer(copy);
            Self::go_on(&mut then, copy);
            found(Step::AskLess(copy), then);
        }
    }

    /// Chooses the next call of a command that has no Machines to delete any more.
    fn go_on(world: &mut World, copy: usize) {
        let running = &mut world.copies[copy].running;
        if running.stage == Stage::Idle || !(running.left | running.unsure).is_empty() {
            return;
        }
        (running.bare, running.current) = (Set(0), Set(0));
        if running.places > 0 {
            running.stage = Stage::Count;
        } else if running.ours.is_empty() {
            Self::end(world, copy, true);
        } else {
            running.stage = Stage::Lower;
        }
    }

    /// Ends a command.
    fn end(world: &mut World, copy: usize, is_done: bool) {
        let running = world.copies[copy].running;
        if is_done && !running.has_failed {
            world.tally.answer(running.named);
        }
        world.let_go(copy);
    }

    fn calls(&self, world: &World, copy: usize, found: Find<'_>) {
        let running = world.copies[copy].running;
        match running.stage {
            Stage::Idle => {}
            Stage::Delete => {
                for machine in running.left.iter() {
                    self.delete(world, copy, machine, found);
                }
                for machine in running.unsure.iter() {
                    self.read(world, copy, machine, found);
                }
            }
            Stage::Count => self.count(world, copy, found),
            Stage::Lower | Stage::Raise => self.resize(world, copy, found),
            Stage::Settle | Stage::SettleRaise => self.settle(world, copy, found),
        }
    }

    /// Deletes a Machine, or marks it first. Where its version is another one, it is read.
    fn delete(&self, world: &World, copy: usize, machine: usize, found: Find<'_>) {
        let (one, lag) = (Set::one(machine), self.rest.bounds.lag);
        let mut then = *world;
        if !world.copies[copy].running.current.has(machine) {
            self.took(&mut then, copy, machine, false);
            found(Step::Calls(copy, "finds another version and reads", machine), then);
            return;
        }
        if world.copies[copy].running.unmarked.has(machine) {
            then.touch(machine);
            then.machines[machine].mark = u8::try_from(copy + 1).unwrap_or_default();
            then.copies.iter_mut().for_each(|memory| memory.marked = memory.marked.without(one));
            then.copies[copy].marked = then.copies[copy].marked | one;
            let running = &mut then.copies[copy].running;
            (running.unmarked, running.current) = (running.unmarked.without(one), running.current | one);
            then.machines_changed(lag);
            found(Step::Calls(copy, "marks", machine), then);
            return;
        }
        then.begin_deleting(machine);
        then.machines_changed(lag);
        let running = &mut then.copies[copy].running;
        running.left = running.left.without(one);
        if world.budget.lost_answers > 0 {
            let mut done = then;
            let unsure = &mut done.copies[copy].running.unsure;
            *unsure = *unsure | one;
            let mut lost = *world;
            let running = &mut lost.copies[copy].running;
            (running.left, running.unsure) = (running.left.without(one), running.unsure | one);
            for (mut then, what) in [(done, "has no answer, and deletes"), (lost, "has no answer, and doesn't delete")]
            {
                then.budget.lost_answers -= 1;
                found(Step::Calls(copy, what, machine), then);
            }
        }
        let running = &mut then.copies[copy].running;
        running.ours = running.ours | one;
        Self::go_on(&mut then, copy);
        found(Step::Calls(copy, "deletes", machine), then);
    }

    /// Reads a Machine whose DELETE had no answer.
    fn read(&self, world: &World, copy: usize, machine: usize, found: Find<'_>) {
        let mut then = *world;
        self.took(&mut then, copy, machine, true);
        found(Step::Calls(copy, "reads", machine), then);
    }

    /// Decides by a read of a Machine.
    fn took(&self, world: &mut World, copy: usize, machine: usize, is_unsure: bool) {
        let (one, life) = (Set::one(machine), world.machines[machine].life);
        let has_joined = world.knows_node(copy, machine);
        let is_marked = world.copies[copy].marked.has(machine);
        let running = &mut world.copies[copy].running;
        (running.left, running.unsure) = (running.left.without(one), running.unsure.without(one));
        if life == Life::Alive {
            if running.bare.has(machine) && has_joined {
                running.has_failed = true;
            } else {
                (running.left, running.current) = (running.left | one, running.current | one);
            }
        } else if life == Life::Deleting {
            let counts = match self.simple.unanswered {
                Unanswered::Drop => false,
                Unanswered::Count => is_unsure,
                Unanswered::CountMarked => is_marked,
            };
            running.ours = running.ours | if counts { one } else { Set(0) };
        }
        Self::go_on(world, copy);
    }

    /// Lists the Machines, to count placeholders: replicas without a Machine, and Machines that hang in deletion
    /// without a Node.
    fn count(&self, world: &World, copy: usize, found: Find<'_>) {
        let mut then = *world;
        let deleting = Set::of(|one| world.machines[one].life == Life::Deleting && world.knows_node(copy, one));
        let of_others = world.copies.iter().enumerate().filter(|(other, _)| self.simple.waits && *other != copy);
        let recent = of_others.fold(Set(0), |set, (_, memory)| set | memory.running.ours | memory.running.unsure);
        let recent = recent & world.leaving();
        let running = &mut then.copies[copy].running;
        let staying = (world.living() | deleting | recent).without(running.ours).len();
        running.counted = running.places.min(running.size - running.ours.len() - staying).max(0);
        running.stage = Stage::Lower;
        if running.counted == 0 && running.ours.is_empty() {
            Self::end(&mut then, copy, true);
        }
        found(Step::Count(copy), then);
    }

    /// Writes the size, which it tests. Where the test fails, the size is read.
    fn resize(&self, world: &World, copy: usize, found: Find<'_>) {
        let running = world.copies[copy].running;
        let is_raise = running.stage == Stage::Raise;
        let mut then = *world;
        if world.replicas != running.size {
            let running = &mut then.copies[copy].running;
            running.size = world.replicas;
            running.stage = if running.places > 0 { Stage::Count } else { running.stage };
            then.copies[copy].behind = 0;
            found(Step::Fails(copy), then);
            return;
        }
        let wanted = running.ours.len() + running.counted;
        let fewer = if is_raise { -1 } else { wanted.min(running.size - self.rest.bounds.min) };
        if !is_raise && fewer <= 0 {
            Self::end(&mut then, copy, false);
            found(Step::Refused(copy, running.ours), then);
            return;
        }
        (then.replicas, then.sized_by) = (world.replicas - fewer, world.copies[copy].writer);
        if is_raise {
            then.tally.resize(1);
        }
        then.deployment_changed(self.rest.bounds.lag);
        if world.budget.refusals > 0 && !is_raise {
            let mut refused = *world;
            refused.budget.refusals -= 1;
            Self::end(&mut refused, copy, false);
            found(Step::Refused(copy, running.ours), refused);
        }
        then.copies[copy].running.has_failed |= fewer < wanted;
        if world.budget.lost_answers > 0 {
            for (mut then, is_done) in [(then, true), (*world, false)] {
                then.budget.lost_answers -= 1;
                then.copies[copy].running.stage = if is_raise { Stage::SettleRaise } else { Stage::Settle };
                found(Step::Unanswered(copy, is_done), then);
            }
        }
        Self::end(&mut then, copy, true);
        found(Step::Sizes(copy, then.replicas), then);
    }

    /// Reads the size after a write without an answer: its writer's name tells whether it was done.
    fn settle(&self, world: &World, copy: usize, found: Find<'_>) {
        let memory = world.copies[copy];
        let mut then = *world;
        if world.sized_by == memory.writer {
            Self::end(&mut then, copy, true);
        } else if memory.behind == 0 || (memory.behind == 1 && self.simple.counts_writes) {
            let is_raise = memory.running.stage == Stage::SettleRaise;
            then.copies[copy].running.stage = if is_raise { Stage::Raise } else { Stage::Lower };
        } else {
            // Others have written the size since. Whether this write was done can't be known.
            Self::end(&mut then, copy, false);
        }
        found(Step::ReadGroup(copy), then);
    }
}

impl World {
    /// Returns a name under which no other copy writes sizes.
    fn new_writer(&self, copy: usize) -> u8 {
        let other = self.copies.iter().enumerate().find(|(other, memory)| *other != copy && memory.writer == 1);
        1 + u8::from(other.is_some())
    }

    /// Returns the Machines that are being deleted.
    fn leaving(&self) -> Set {
        Set::of(|one| self.machines[one].life == Life::Deleting)
    }
}

/// Returns true if a Machine is in both views as in the other.
fn is_same(past: Past, now: Past, one: usize) -> bool {
    let of = |view: Past| (view.alive.has(one), view.deleting.has(one), view.with_node.has(one));
    of(past) == of(now)
}

impl Model for SimpleModel {
    type State = World;
    type Step = Step;

    fn initial(&self) -> World {
        self.rest.initial()
    }

    fn steps(&self, state: &World, found: &mut dyn FnMut(Next<Self>)) {
        let program = self.rest.program();
        let mut certain = |step, world| found(self.next(step, world, true));
        for copy in 0..self.rest.bounds.copies {
            self.calls(state, copy, &mut certain);
        }
        self.rest.world_steps(state, &mut certain);
        let mut free = |step, world| found(self.next(step, world, false));
        self.commands(state, &mut free);
        self.rest.environment(state, &mut free);
        program.failing_steps(state, &mut free);
    }

    fn check(&self, _: &World, _: bool) -> Result<(), String> {
        Ok(())
    }
}
