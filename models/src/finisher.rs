//! The finisher of every copy in the model, which carries on what it finds in the log, whoever wrote it.
//! [`Rule::finish`](crate::rule::Rule::finish) decides; here it is carried out on the world.

use crate::{
    model::Step,
    program::Program,
    rule::{Finish, Follows, Reached},
    world::{At, Phase, Set, World},
};

impl Program<'_> {
    pub(crate) fn steps_of_finisher(&self, world: &World, found: &mut dyn FnMut(Step, World)) {
        let mut all_wanted = Set(0);
        for machine in 0..world.machines.len() {
            let others = world.logged().without(world.followed | Set::one(machine));
            let reached = Reached {
                is_followed: world.followed.has(machine) || self.rule.follows == Follows::AtOnce,
                are_others_followed: others.is_empty() || self.rule.follows == Follows::AtOnce,
                is_down: Self::is_down(world),
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
            if call == Finish::Unmark && self.bounds.splits_unmarks {
                if world.in_flight.unmark.is_none() {
                    let index = u8::try_from(machine).unwrap_or_default();
                    then.in_flight.unmark = Some((index, world.machines[machine].mark));
                    found(Step::SendUnmark(machine), then);
                }
                continue;
            }
            self.finish(&mut then, machine, call);
            found(Step::Finish(call, machine), then);
        }
        if let Some((machine, mark)) = world.in_flight.unmark {
            let mut then = *world;
            then.in_flight.unmark = None;
            if world.machines[usize::from(machine)].mark == mark {
                self.mark(&mut then, machine.into(), 0);
            }
            found(Step::Finish(Finish::Unmark, machine.into()), then);
        }
        // All that is wanted is lowered at once, when all of it is marked.
        if all_wanted.is_empty() || all_wanted != world.in_phase(Phase::Wanted) {
            return;
        }
        let all_wanted = self.first_that_fit(world, all_wanted);
        if self.fits(world, all_wanted) {
            let mut then = *world;
            let lowered = self.drop_unseen(&mut then, all_wanted, Set(0));
            let lowered = self.drop_filled(&mut then, lowered);
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

    /// Where min doesn't let all go, hard entries go first, and soft ones are taken back.
    fn first_that_fit(&self, world: &World, wanted: Set) -> Set {
        let soft = wanted & Set::of(|machine| world.log[machine].is_soft);
        let hard = wanted.without(soft);
        match (self.fits(world, wanted), hard.is_empty() || soft.is_empty()) {
            (true, _) | (_, true) => wanted,
            (false, false) if self.fits(world, hard) => hard,
            (false, false) => soft,
        }
    }

    /// True if the MachineSet controller, which has seen the MachineSet's size, has no Machine to take for it that isn't
    /// being deleted.
    fn is_down(world: &World) -> bool {
        let set = world.sets.last();
        let is_seen = set.generation == world.sets.all()[0].generation;
        is_seen && world.living().len() <= set.copied.replicas
    }

    fn finish(&self, world: &mut World, machine: usize, call: Finish) {
        match call {
            Finish::Mark => self.mark(world, machine, world.log[machine].ticket),
            Finish::Lower => self.lower(world, world.in_phase(Phase::Wanted)),
            Finish::Delete => {
                world.begin_deleting(machine);
                world.machines_changed(self.bounds.lag);
            }
            Finish::TakeBack => self.take_back_joined(world, machine),
            Finish::Forget => {
                let is_soft = world.log[machine].is_soft;
                world.leave_log(machine);
                if is_soft {
                    world.ledger.left_softly = world.ledger.left_softly | Set::one(machine);
                }
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
