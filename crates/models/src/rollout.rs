//! A rollout of a MachineDeployment whose group has opted to scale down during rollouts: a new MachineSet grows and an
//! old one shrinks, with at most one Machine above the size. As in Cluster API 1.11, annotations are copied to the new
//! MachineSet before its size is written; since 1.12 together with it, and to the old one too. The number of old
//! Machines that may go at a time depends on which Machines are available: here it is any number, as long as both
//! MachineSets together have the whole size.

use crate::{
    program::Program,
    step::Step,
    world::{Deployment, MachineSet, Set, World},
};

/// The number of Machines that may exist above the size.
const SURGE: i8 = 1;
const NEW: usize = 0;
const OLD: usize = 1;

impl Program<'_> {
    /// The steps of the MachineDeployment controller during a rollout. A write of each MachineSet is a step.
    pub(crate) fn rollout_steps(&self, world: &World, found: &mut dyn FnMut(Step, World)) {
        let (new, old) = (world.sets[NEW].last(), world.sets[OLD].last());
        if !self.is_far_behind(world, NEW) {
            for index in 1..world.deployments.all().len() {
                self.copy_to_new(world, index, found);
            }
        }
        let seen = world.deployments.all()[0];
        if !self.is_far_behind(world, NEW) && new.size > seen.replicas {
            found(
                Step::Scale(NEW, seen.replicas),
                self.scale_new_down(world, MachineSet { size: seen.replicas, ..new }),
            );
        }
        let headroom = seen.replicas + SURGE - Self::total(world);
        let size = (new.size + headroom).min(seen.replicas);
        if !self.is_far_behind(world, NEW) && size > new.size {
            found(Step::Scale(NEW, size), self.write_set(world, NEW, MachineSet { size, ..new }));
        }
        // The new MachineSet is handled first.
        if self.is_far_behind(world, OLD) || new.size > seen.replicas {
            return;
        }
        let copied = if self.bounds.copies_to_old {
            seen
        } else {
            Deployment { replicas: seen.replicas, since: seen.since, ..old.copied }
        };
        for size in (seen.replicas - new.size).max(0)..old.size {
            found(
                Step::Scale(OLD, size),
                self.write_set(world, OLD, MachineSet { copied, size, given: seen.lowered, ..old }),
            );
        }
        let of = |set: MachineSet| (set.copied.replicas, set.copied.lowered, set.copied.stale);
        let copy = MachineSet { copied, given: seen.lowered, ..old };
        if self.bounds.copies_to_old && of(copy) != of(old) {
            found(Step::Copy(OLD, seen.replicas), self.write_set(world, OLD, copy));
        }
    }

    /// Returns true if a MachineSet's controller lags behind as far as it may.
    fn is_far_behind(&self, world: &World, of: usize) -> bool {
        world.sets[of].all().len() >= self.bounds.lag
    }

    /// Returns the Machines of both MachineSets, each counted by the greater of its desired and its actual number.
    fn total(world: &World) -> i8 {
        let there = Set::of(|machine| world.machines[machine].exists());
        let of = |of: usize| world.sets[of].last().size.max((there & world.members_of(of)).len());
        of(NEW) + of(OLD)
    }

    /// The controller sees a version of the MachineDeployment, and copies its annotations to the new MachineSet.
    fn copy_to_new(&self, world: &World, index: usize, found: &mut dyn FnMut(Step, World)) {
        let mut then = *world;
        then.deployments.drop_oldest(index);
        let copied = then.deployments.all()[0];
        let last = then.sets[NEW].last();
        if last.size <= copied.replicas {
            then.ledger.owed = then.ledger.owed.without(copied.lowered);
        }
        let copy = MachineSet { copied, ..last };
        let then = if self.bounds.copies_to_old && last.size > copied.replicas {
            self.scale_new_down(&then, MachineSet { size: copied.replicas, ..copy })
        } else {
            self.write_set(&then, NEW, copy)
        };
        found(Step::Copy(NEW, copied.replicas), then);
    }

    /// Scales the new MachineSet down to the whole size: it loses as many other Machines as were named of the old one.
    fn scale_new_down(&self, world: &World, set: MachineSet) -> World {
        let mut then = self.write_set(world, NEW, set);
        // This covers Machines whose entries this version has, or have left the log.
        let is_said = set.copied.lowered | Set(u8::MAX).without(world.logged());
        let covered = world.ledger.owed & world.members_of(NEW) & is_said;
        let fewer = world.sets[NEW].last().size - set.size;
        then.ledger.others += (fewer - covered.len()).max(0);
        then.ledger.owed = then.ledger.owed.without(covered.first(fewer));
        then
    }

    fn write_set(&self, world: &World, of: usize, set: MachineSet) -> World {
        let mut then = *world;
        let last = then.sets[of].last();
        let generation = last.generation + u8::from(last.size != set.size);
        then.sets[of].push(MachineSet { generation, ..set }, self.bounds.lag);
        then
    }

    /// Returns true if a Machine belonged to the old MachineSet from the beginning.
    pub(crate) fn is_to_roll(&self, world: &World, machine: usize) -> bool {
        world.machines[machine].is_old && machine < self.bounds.nodes + self.bounds.pending + self.bounds.old
    }

    /// Notes that a Machine is deleted by name. If the old MachineSet has been given its size for that Machine, it
    /// creates a new one, which goes during the rollout like all others of it.
    pub(crate) fn note_by_name(&self, world: &mut World, machine: usize) {
        let is_given = world.machines[machine].is_old && world.sets[OLD].last().given.has(machine);
        world.ledger.others += i8::from(is_given && self.bounds.admits_known);
    }
}
