//! The actions of other clients and of the infrastructure: Machines that are deleted, join and vanish, sizes that
//! change, and copies that are killed.

use crate::{
    model::DeleteModel,
    saved::SavedCommand,
    step::Step,
    world::{Life, Machine, Phase, SLOTS, Set, World},
};

impl DeleteModel {
    /// Finds all steps that others may take.
    pub(crate) fn environment(&self, world: &World, found: &mut dyn FnMut(Step, World)) {
        for copy in 0..world.copies.len() {
            if world.budget.crashes > 0 && !world.copies[copy].is_idle() {
                let mut then = *world;
                then.budget.crashes -= 1;
                then.let_go(copy);
                found(Step::Crash(copy), then);
            }
        }
        for copy in (0..world.copies.len())
            .filter(|copy| world.budget.leaves > 0 && SavedCommand::has_caller(world.copies[*copy].held))
        {
            let memory = world.copies[copy];
            let callers = 1 + usize::from(!memory.joined.is_empty());
            for caller in (0..callers).filter(|caller| !memory.left.has(*caller)) {
                let mut then = *world;
                then.budget.leaves -= 1;
                then.copies[copy].left = memory.left | Set::one(caller);
                found(Step::Leave(copy), then);
            }
        }
        for machine in 0..SLOTS {
            if world.machines[machine].life != Life::Alive {
                continue;
            }
            if world.budget.foreign_deletes > 0 {
                let mut then = *world;
                then.budget.foreign_deletes -= 1;
                then.tally.end(self.bounds.is_new(machine));
                then.touch(machine);
                then.machines[machine].life = Life::Deleting;
                then.ledger.foreign = then.ledger.foreign | Set::one(machine);
                then.ledger.excused = then.ledger.excused | Set::one(machine);
                // The old MachineSet replaces the Machine, and the rollout deletes the replacement.
                then.ledger.others += i8::from(world.machines[machine].is_old);
                then.machines_changed(self.bounds.lag);
                found(Step::ForeignDelete(machine), then);
            }
            if world.budget.joins > 0 && !world.machines[machine].has_node {
                let mut then = *world;
                then.budget.joins -= 1;
                then.machines[machine].has_node = true;
                then.tally.join(self.bounds.is_new(machine));
                if !self.bounds.lags_node_refs {
                    then.touch(machine);
                    then.machines[machine].has_ref = true;
                    then.machines_changed(self.bounds.lag);
                }
                found(Step::Join(machine), then);
            }
        }
        let hanging = Set::of(|machine| world.machines[machine].life == Life::Deleting);
        for machine in hanging.iter().filter(|machine| self.bounds.loses_nodes && world.machines[*machine].has_node) {
            let mut then = *world;
            then.touch(machine);
            (then.machines[machine].has_node, then.machines[machine].has_ref) = (false, false);
            found(Step::LoseNode(machine), then);
        }
        for delta in [1, -1] {
            if world.budget.foreign_sizes > 0 && world.replicas + delta >= 0 {
                let mut then = *world;
                then.budget.foreign_sizes -= 1;
                (then.replicas, then.sized_by) = (world.replicas + delta, 0);
                then.ledger.size += delta;
                then.tally.resize(delta);
                then.ledger.others += i8::from(delta < 0);
                then.deployment_changed(self.bounds.lag);
                found(Step::ForeignSize(then.replicas), then);
            }
        }
    }

    pub(crate) fn vanishing(&self, world: &World, found: &mut dyn FnMut(Step, World)) {
        for machine in 0..SLOTS {
            let is_early = self.bounds.is_prompt && world.is_awaited(machine);
            if world.machines[machine].life == Life::Deleting && !is_early {
                let mut then = *world;
                // A provider doesn't report which size it has seen.
                let is_pool = self.bounds.is_pool;
                let seen = if is_pool { world.sets[0].all()[0].copied.lowered } else { world.followed };
                let is_settled = world.logged().without(seen).is_empty();
                if world.log[machine].phase == Phase::Lowered && !is_settled {
                    self.program().note_replaced(&mut then, machine);
                }
                then.touch(machine);
                let is_old = world.machines[machine].is_old;
                then.machines[machine] = Machine { life: Life::Gone, is_old, ..Machine::default() };
                then.machines_changed(self.bounds.lag);
                found(Step::Vanish(machine), then);
            }
        }
    }

    /// Finds the steps in which a Machine gets its `nodeRef`, and those in which the copies' watches show its Node.
    /// They occur independently.
    pub(crate) fn lagging_refs(&self, world: &World, found: &mut dyn FnMut(Step, World)) {
        if !self.bounds.lags_node_refs {
            return;
        }
        for machine in (0..SLOTS).filter(|machine| world.machines[*machine].has_node) {
            if !world.machines[machine].has_ref && world.machines[machine].life == Life::Alive {
                let mut then = *world;
                then.touch(machine);
                then.machines[machine].has_ref = true;
                then.machines_changed(self.bounds.lag);
                found(Step::Refer(machine), then);
            }
            for copy in (0..self.bounds.copies).filter(|copy| !world.shown_nodes[*copy].has(machine)) {
                let mut then = *world;
                then.shown_nodes[copy] = then.shown_nodes[copy] | Set::one(machine);
                found(Step::ShowNode(copy, machine), then);
            }
        }
    }
}
