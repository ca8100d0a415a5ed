//! The whole model within its bounds: the program, the controllers, Cluster Autoscaler and other people, and the
//! invariants that are checked.

use crate::{
    bounds::Bounds,
    explore::{Model, Next},
    program::Program,
    step::Step,
    variant::{Counts, Existence, Variant},
    world::{Fault, Life, Memory, Past, Set, Tally, World, name},
};

/// The model of a rule within bounds.
#[derive(Clone, Copy, Debug)]
pub struct DeleteModel {
    /// The rule.
    pub rule: Variant,
    /// The bounds.
    pub bounds: Bounds,
}

impl DeleteModel {
    pub(crate) fn program(&self) -> Program<'_> {
        Program { rule: &self.rule, bounds: &self.bounds }
    }

    fn next(&self, before: &World, step: Step, mut world: World, is_certain: bool) -> Next<Self> {
        // A negative size means that the MachineSet controller would need more Machines than the model has.
        let is_within = world.replicas >= 0;
        if self.program().outdates_caches(before, &world) {
            world.outdate_caches();
        }
        self.program().settle(&mut world);
        if self.bounds.is_bare || self.bounds.is_pool {
            Program::show_at_once(&mut world, self.bounds.lag);
        }
        self.program().note_followed(&mut world);
        world.note_past(self.bounds.lag);
        world.forget_idle_facts(self.bounds.is_pool);
        if self.bounds.lags_node_refs {
            world.show_known_nodes();
        }
        let counts_all = self.rule.existence != Existence::CacheThatIsFarEnough || self.rule.counts == Counts::ByCache;
        world.forget_pasts(counts_all);
        if self.bounds.merges_copies {
            world.sort_copies();
        }
        world.number_tickets();
        Next { step, state: is_within.then_some(world), is_certain }
    }

    /// Finds all requests that Cluster Autoscaler may make.
    fn commands(&self, world: &World, found: &mut dyn FnMut(Step, World)) {
        let program = self.program();
        if self.bounds.joins_batches && world.budget.deletes > 0 {
            for named in self.nameable(world) {
                let mut then = *world;
                then.budget.deletes -= 1;
                self.name(&mut then, named);
                (0..self.bounds.copies).for_each(|copy| program.join(&then, copy, named, found));
            }
        }
        // The copies are interchangeable: the second gets a request when the first is busy.
        let Some(copy) = self.idle(world) else { return };
        if world.budget.deletes > 0 {
            for named in self.nameable(world) {
                let mut then = *world;
                then.budget.deletes -= 1;
                self.name(&mut then, named);
                program.ask(&then, copy, named, found);
            }
        }
        let has_pending = |past: &Past| !past.alive.without(past.with_node | world.logged()).is_empty();
        if world.budget.decreases > 0 && world.pasts.all().iter().any(has_pending) {
            program.ask_less(world, copy, found);
        }
        if world.budget.placeholders > 0 {
            for count in 1..=self.bounds.batch {
                program.ask_places(world, copy, count, found);
            }
        }
        if world.budget.mixed > 0 {
            for named in self.nameable(world) {
                let mut then = *world;
                then.budget.mixed -= 1;
                self.name(&mut then, named);
                (1..=self.bounds.batch).for_each(|count| program.ask_both(&then, copy, (named, count), found));
            }
        }
        if world.budget.increases > 0 {
            program.ask_more(world, copy, found);
        }
    }

    /// Notes that a command names Machines.
    pub(crate) fn name(&self, world: &mut World, named: Set) {
        named.iter().for_each(|machine| world.tally.end(self.bounds.is_new(machine)));
        world.name(named);
    }

    pub(crate) fn idle(&self, world: &World) -> Option<usize> {
        world.copies.iter().take(self.bounds.copies).position(Memory::is_idle)
    }

    /// Returns the sets of Machines that Cluster Autoscaler may name together: those that it knows, and those it named
    /// before even if they are gone.
    pub(crate) fn nameable(&self, world: &World) -> Vec<Set> {
        let known = Set::of(|machine| {
            let is_known = world.machines[machine].exists()
                || world.pasts.all().iter().any(|past| (past.alive | past.deleting).has(machine))
                || (world.ledger.named.has(machine) && world.machines[machine].life == Life::Gone);
            is_known && self.bounds.may_be_named.is_none_or(|allowed| allowed.has(machine))
        });
        (1..=known.0).map(Set).filter(|set| set.without(known).is_empty() && set.len() <= self.bounds.batch).collect()
    }

    /// Finds the steps of Cluster API's controllers, and of Machines that go.
    pub(crate) fn world_steps(&self, world: &World, found: &mut dyn FnMut(Step, World)) {
        let program = self.program();
        if self.bounds.old == 0 {
            program.deployment_steps(world, found);
        } else {
            program.rollout_steps(world, found);
        }
        program.set_steps(world, found);
        self.vanishing(world, found);
        self.lagging_refs(world, found);
    }

    fn check_at_rest(world: &World) -> Result<(), String> {
        let gone = Set::of(|machine| world.machines[machine].life == Life::Gone);
        let promised = (world.ledger.accepted | world.ledger.paid).without(gone);
        if !promised.is_empty() {
            return Err(format!("the deletion of {promised} was accepted, and at rest it is still there"));
        }
        if !world.logged().is_empty() {
            return Err(format!("at rest {} is still in the log", world.logged()));
        }
        let marked = Set::of(|machine| world.machines[machine].exists() && world.machines[machine].mark != 0);
        if !marked.is_empty() {
            return Err(format!("at rest {marked} is still marked"));
        }
        let alive = Set::of(|machine| world.machines[machine].exists()).len();
        if (alive, world.replicas) != (world.ledger.size, world.ledger.size) {
            return Err(format!(
                "the accepted commands add up to a size of {}; at rest the size is {}, with {alive} Machines",
                world.ledger.size, world.replicas
            ));
        }
        Ok(())
    }
}

impl Model for DeleteModel {
    type State = World;
    type Step = Step;

    fn initial(&self) -> World {
        let Bounds { nodes, pending, missing, old, budget, .. } = self.bounds;
        let mut world = World::of((nodes, pending, missing, old), budget);
        if self.bounds.tallies {
            world.tally = Tally { is_kept: true, due: world.replicas, ..Tally::default() };
        }
        world
    }

    fn steps(&self, state: &World, found: &mut dyn FnMut(Next<Self>)) {
        let program = self.program();
        let mut certain = |step, world| found(self.next(state, step, world, true));
        program.steps(state, &mut certain);
        if program.is_to_carry_on(state)
            && let Some(copy) = self.idle(state)
        {
            program.carry_on(state, copy, &mut certain);
        }
        self.world_steps(state, &mut certain);
        let mut free = |step, world| found(self.next(state, step, world, false));
        self.commands(state, &mut free);
        self.environment(state, &mut free);
        program.failing_steps(state, &mut free);
        program.straying_steps(state, &mut free);
        program.late_steps(state, &mut free);
    }

    fn check(&self, state: &World, at_rest: bool) -> Result<(), String> {
        match state.ledger.fault {
            Some(Fault::PaidTwice(machine)) => Err(format!("the size was lowered twice for {}", name(machine.into()))),
            Some(Fault::TookAnother(machine)) => {
                Err(format!("{} was taken, whose deletion nobody was promised", name(machine.into())))
            }
            Some(Fault::NotCounted(machine)) => {
                let machine = name(machine.into());
                Err(format!("the deletion of {machine} was accepted, it is gone, and the size wasn't lowered for it"))
            }
            Some(Fault::TooManyPlaces) => Err("the size was lowered for more placeholders than were named".to_owned()),
            Some(Fault::BelowMin) => Err("the size was lowered below min".to_owned()),
            Some(Fault::TookJoined(machine)) => Err(format!(
                "{} goes as a Machine that never joined, and had its Node before it was marked",
                name(machine.into())
            )),
            None if at_rest => Self::check_at_rest(state),
            None => Ok(()),
        }
    }
}
