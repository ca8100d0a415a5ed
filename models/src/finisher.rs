//! The finisher of every copy in the model, which carries on what it finds in the log, whoever wrote it.
//! [`delete_rule::Rule::finish`] decides; here it is carried out on the world.

use delete_rule::{Forgets, Kind, LeftSince, Marking};

use crate::{
    model::{Finish, Step},
    program::Program,
    small::{self, Member, Shown, Small},
    world::{At, Life, Phase, Set, World},
};

impl Program<'_> {
    pub(crate) fn steps_of_finisher(&self, world: &World, found: &mut dyn FnMut(Step, World)) {
        self.late_unmark(world, found);
        let log = world.rule_log();
        let is_marked = world.machines.iter().any(|machine| machine.exists() && machine.mark != 0);
        if log.is_empty() && !is_marked {
            return;
        }
        let entries = world.followed.iter().filter_map(|machine| small::entry(machine, world.log[machine]));
        let followed = self.core().followed::<Small, Shown>(Kind::MachineDeployment, &[]).and(entries);
        // A cache that hasn't heard yet of the newest.
        let is_shown =
            |member: &Member| self.rule.forgets != Forgets::Absent || world.machines[member.machine()].has_node;
        let members: Vec<_> = world.members().filter(is_shown).collect();
        for step in self.core().finish(&log, &members, &followed, &LeftSince::<Small>::default(), 0) {
            match step {
                delete_rule::Finish::CarryOn => self.carry_on(world, found),
                delete_rule::Finish::ForgetGone(entry) => {
                    let machine = usize::from(entry.uid);
                    // The Machine is read before, but by variants that believe their cache.
                    let is_read = matches!(self.rule.forgets, Forgets::GoneAndFollowed | Forgets::Gone);
                    if !is_read || world.machines[machine].life == Life::Gone {
                        self.finish_one(world, machine, Finish::Forget, found);
                    }
                }
                delete_rule::Finish::ForgetSoft(entry) => {
                    let (machine, alive) = (usize::from(entry.uid), world.living());
                    let size = i64::from(world.sets.last().copied.replicas);
                    if self.core().is_soft_over(alive.has(machine), small::count(alive), size) {
                        self.finish_one(world, machine, Finish::Forget, found);
                    }
                }
                delete_rule::Finish::Delete(entry) => {
                    let machine = usize::from(entry.uid);
                    if world.machines[machine].life == Life::Alive && followed.permits_by_name(&log, &entry) {
                        self.finish_one(world, machine, Finish::Delete, found);
                    }
                }
                delete_rule::Finish::MarkAgain(entry) => self.finish_one(world, entry.uid.into(), Finish::Mark, found),
                delete_rule::Finish::Unmark(member) => self.unmark(world, member.machine(), found),
                // No MachinePool is in the model.
                delete_rule::Finish::Leave(..) => {}
            }
        }
    }

    /// Marks what is wanted, and lowers the size when all of it is marked.
    fn carry_on(&self, world: &World, found: &mut dyn FnMut(Step, World)) {
        let wanted = world.in_phase(Phase::Wanted);
        let mut is_ready = true;
        for machine in wanted.iter().filter(|machine| !world.is_marked(*machine)) {
            let step = match self.marking(world, machine) {
                Marking::Joined | Marking::Going => Finish::TakeBack,
                Marking::Mark if self.rule.marks => Finish::Mark,
                Marking::Mark | Marking::NotNeeded => continue,
            };
            is_ready = false;
            self.finish_one(world, machine, step, found);
        }
        if !is_ready {
            return;
        }
        let mut then = *world;
        let left = self.drop_unseen(&mut then, wanted, Set(0));
        let lowering = self.lowering(&then, left, then.going_by_itself());
        if let Ok((lowered, filled)) = lowering {
            self.drop_filled(&mut then, filled);
            self.lower(&mut then, lowered);
            found(Step::Lower(None, lowered), then);
        }
        let idle = world.copies.iter().position(|memory| memory.at == At::Idle);
        if let Some(copy) = idle
            && (lowering.is_err() || world.budget.refusals > 0)
        {
            let mut then = *world;
            self.refuse(&mut then, copy, wanted, lowering.is_ok());
            found(Step::Refused(None, wanted), then);
        }
    }

    /// Takes a mark off, at once or in two steps.
    fn unmark(&self, world: &World, machine: usize, found: &mut dyn FnMut(Step, World)) {
        // Without the log, only the age of a mark tells whether a command still needs it; here it always does.
        let is_needed = world.copies.iter().any(|memory| memory.at == At::Viewed && memory.done.has(machine));
        if !self.rule.logs_first && is_needed {
            return;
        }
        if !self.bounds.splits_unmarks {
            self.finish_one(world, machine, Finish::Unmark, found);
        } else if world.in_flight.unmark.is_none() {
            let mut then = *world;
            then.in_flight.unmark = Some((small::uid(machine), world.machines[machine].mark));
            found(Step::SendUnmark(machine), then);
        }
    }

    fn late_unmark(&self, world: &World, found: &mut dyn FnMut(Step, World)) {
        if let Some((machine, mark)) = world.in_flight.unmark {
            let mut then = *world;
            then.in_flight.unmark = None;
            if world.machines[usize::from(machine)].mark == mark {
                self.mark(&mut then, machine.into(), 0);
            }
            found(Step::Finish(Finish::Unmark, machine.into()), then);
        }
    }

    fn finish_one(&self, world: &World, machine: usize, call: Finish, found: &mut dyn FnMut(Step, World)) {
        let mut then = *world;
        match call {
            Finish::Mark => self.mark(&mut then, machine, world.log[machine].ticket),
            Finish::Delete => {
                then.begin_deleting(machine);
                then.machines_changed(self.bounds.lag);
            }
            Finish::TakeBack => self.take_back_joined(&mut then, machine),
            Finish::Forget => {
                then.leave_log(machine);
                if world.log[machine].is_soft {
                    then.ledger.left_softly = then.ledger.left_softly | Set::one(machine);
                }
                then.followed = then.followed.without(Set::one(machine));
                then.deployment_changed(self.bounds.lag);
            }
            Finish::Unmark => self.mark(&mut then, machine, 0),
        }
        found(Step::Finish(call, machine), then);
    }
}
