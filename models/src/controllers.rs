//! Cluster API's controllers in the model, with views that lag behind: the MachineDeployment controller copies the
//! size to the MachineSet, and the MachineSet controller creates and deletes Machines.

use crate::{
    model::Step,
    program::Program,
    rule::Follows,
    world::{At, Few, Life, Machine, MachineSet, Phase, Picture, SLOTS, Set, World},
};

impl Program<'_> {
    /// Whether what the MachineSet shows now is taken as a sign that its controller acts on the size it has.
    pub(crate) fn has_followed(&self, world: &World) -> bool {
        let is_observed = world.sets.last().generation == world.sets.all()[0].generation;
        match self.rule.follows {
            Follows::CopiedLogAndObserved => is_observed,
            Follows::CopiedLog => true,
            // The log isn't looked at: see `all_followed_by_size`.
            Follows::EqualSizes | Follows::AtOnce => false,
        }
    }

    /// For the variant that compares sizes: if they are equal, all lowered entries count as followed.
    fn all_followed_by_size(&self, world: &mut World) {
        let set = world.sets.last();
        let is_observed = set.generation == world.sets.all()[0].generation;
        if self.rule.follows == Follows::EqualSizes && is_observed && set.copied.replicas == world.replicas {
            world.followed = world.followed | world.in_phase(Phase::Lowered);
        }
    }

    /// After any step: what a copy may see of the MachineSet now, and use whenever it likes.
    pub(crate) fn note_followed(&self, world: &mut World) {
        world.note_followed(self.has_followed(world));
        self.all_followed_by_size(world);
    }

    /// The MachineDeployment controller, which may have missed any number of versions.
    pub(crate) fn deployment_steps(&self, world: &World, found: &mut dyn FnMut(Step, World)) {
        // How far the MachineSet controller may lag behind is bounded.
        if world.sets.all().len() >= self.bounds.lag {
            return;
        }
        for index in 1..world.deployments.all().len() {
            let mut then = *world;
            then.deployments.drop_oldest(index);
            let copied = then.deployments.all()[0];
            let last = then.sets.last();
            if (last.copied.replicas, last.copied.lowered) != (copied.replicas, copied.lowered) {
                let generation = last.generation + u8::from(last.copied.replicas != copied.replicas);
                then.sets.push(MachineSet { copied, generation }, self.bounds.lag);
            }
            found(Step::Sync(copied.replicas), then);
        }
    }

    /// The MachineSet controller. Its views of the MachineSet and of the Machines lag behind independently; where
    /// `sees_marks`, not so far that it sees a smaller size and not the marks that were set before it.
    pub(crate) fn set_steps(&self, world: &World, found: &mut dyn FnMut(Step, World)) {
        for set in 0..world.sets.all().len() {
            for picture in 0..world.seen.all().len() {
                let seen = world.sets.all()[set];
                let is_too_old = picture < usize::from(seen.copied.since);
                if self.bounds.sees_marks && is_too_old {
                    continue;
                }
                Self::reconcile(world, set, picture, found);
            }
        }
    }

    fn reconcile(world: &World, set: usize, picture: usize, found: &mut dyn FnMut(Step, World)) {
        let seen = world.seen.all()[picture];
        let size = world.sets.all()[set].copied.replicas;
        let mut then = *world;
        then.sets.drop_oldest(set);
        let base = then.sets.all()[0].generation;
        then.sets.all_mut().iter_mut().for_each(|set| set.generation -= base);
        let excess = seen.existing.len() - size;
        let victims = victims(seen, excess);
        for victim in victims.iter() {
            Self::delete_victim(&mut then, victim);
        }
        let mut created = Set(0);
        for _ in excess..0 {
            let Some(machine) = (0..SLOTS).find(|machine| then.machines[*machine].life == Life::Unborn) else {
                found(Step::Reconcile { size, deleted: victims, created }, World { replicas: i8::MIN, ..*world });
                return;
            };
            then.machines[machine] = Machine { life: Life::Alive, mark: 0, has_node: false };
            created = created | Set::one(machine);
        }
        let has_changed = then.machines != world.machines;
        if has_changed {
            // It waits until its cache shows what it has written itself.
            let count = u8::try_from(then.seen.all().len()).unwrap_or_default();
            then.seen = Few::of(Picture::of(&then.machines));
            then.forget_pictures(count);
        }
        // Where nothing changes but what it has seen last, it has only fewer choices than before.
        if has_changed || set > 0 {
            if !has_changed {
                then.seen.drop_oldest(picture);
                then.forget_pictures(u8::try_from(picture).unwrap_or_default());
            }
            let deleted = Set::of(|machine| victims.has(machine) && world.machines[machine].life == Life::Alive);
            found(Step::Reconcile { size, deleted, created }, then);
        }
    }

    fn delete_victim(world: &mut World, victim: usize) {
        if world.machines[victim].life != Life::Alive {
            return;
        }
        world.machines[victim].life = Life::Deleting;
        let was_named = world.log[victim].phase != Phase::None || world.ledger.paid.has(victim);
        let why = if was_named { &mut world.ledger.chosen } else { &mut world.ledger.foreign };
        *why = *why | Set::one(victim);
        if !was_named && world.machines[victim].has_node {
            let is_early = world.copies.iter().any(|memory| memory.at == At::Viewed && memory.done.has(victim));
            if is_early {
                world.ledger.early = world.ledger.early | Set::one(victim);
            }
            Self::took_another(world, victim);
        }
    }
}

/// Which Machines a MachineSet gives up: those being deleted, then marked ones, then those without a Node, then by
/// name (contract 7.23).
fn victims(seen: Picture, count: i8) -> Set {
    let classes = [
        seen.deleting,
        seen.marked.without(seen.deleting),
        seen.existing.without(seen.deleting | seen.marked | seen.with_node),
        seen.existing.without(seen.deleting | seen.marked) & seen.with_node,
    ];
    let order = classes.into_iter().flat_map(Set::iter);
    order.take(usize::try_from(count).unwrap_or_default()).fold(Set(0), |set, machine| set | Set::one(machine))
}
