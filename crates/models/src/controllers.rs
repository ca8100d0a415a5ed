//! Cluster API's controllers in the model, with views that lag behind: the MachineDeployment controller copies the size
//! to the MachineSet, and the MachineSet controller creates and deletes Machines.

use crate::{
    program::Program,
    step::Step,
    variant::Follows,
    world::{CacheView, Deployment, Life, Machine, MachineSet, Phase, Ring, SLOTS, Set, World},
};

/// A reconcile of the MachineSet controller.
#[derive(Clone, Copy, Debug)]
struct Act {
    /// The index of the MachineSet.
    of: usize,
    /// The version of the MachineSet that the controller sees.
    set: usize,
    /// The snapshot of the Machines that the controller sees.
    view: usize,
    victims: Set,
    /// The number of Machines that the controller creates.
    missing: i8,
    is_without_error: bool,
}

impl World {
    /// Returns the indexes of the MachineSets: the newest, and during a rollout the old one.
    pub(crate) fn machine_sets(&self) -> impl Iterator<Item = usize> + use<> {
        0..if self.sets[1].all().is_empty() { 1 } else { 2 }
    }

    /// Returns the Machines of a MachineSet.
    pub(crate) fn members_of(&self, of: usize) -> Set {
        Set::of(|machine| self.machines[machine].is_old == (of == 1))
    }
}

impl Program<'_> {
    /// Makes each write to a MachineSet that is the group itself visible at once.
    pub(crate) fn show_at_once(world: &mut World, lag: usize) {
        let written = world.deployments.last();
        for copied in world.deployments.all()[1..].iter().copied() {
            let last = world.sets[0].last();
            let generation = last.generation + u8::from(last.copied.replicas != copied.replicas);
            let size = copied.replicas;
            world.sets[0].push_after_first(MachineSet { copied, size, generation, given: Set(0) }, lag);
        }
        world.deployments = Ring::of(written);
    }

    /// Finds the steps of the MachineDeployment controller, which may skip any number of versions.
    pub(crate) fn deployment_steps(&self, world: &World, found: &mut dyn FnMut(Step, World)) {
        // The MachineSet controller already lags behind by the maximum.
        if world.sets[0].all().len() >= self.bounds.lag {
            return;
        }
        for index in 1..world.deployments.all().len() {
            let mut then = *world;
            then.deployments.drop_oldest(index);
            let copied = then.deployments.all()[0];
            let last = then.sets[0].last();
            let of = |copied: Deployment| (copied.replicas, copied.lowered, copied.stale);
            if of(last.copied) != of(copied) {
                let generation = last.generation + u8::from(last.copied.replicas != copied.replicas);
                then.sets[0]
                    .push(MachineSet { copied, size: copied.replicas, generation, given: Set(0) }, self.bounds.lag);
            }
            found(Step::Sync(copied.replicas), then);
        }
    }

    /// Finds the steps of the MachineSet controller. Its views of the MachineSet and of the Machines lag behind
    /// independently. With `sees_marks` the controller sees all marks that precede the smaller size it sees.
    pub(crate) fn set_steps(&self, world: &World, found: &mut dyn FnMut(Step, World)) {
        if let Some((set, left)) = world.deciding {
            self.delete_next(world, usize::from(set), left, found);
            return;
        }
        for of in world.machine_sets() {
            for (set, view) in self.views_of_set_controller(world, of) {
                let (machines, excess) = Self::excess(world, of, set, view);
                let alive = victims(machines, excess) & world.living();
                if self.bounds.deletes_one_by_one && alive.len() > 1 {
                    let deciding = Some((u8::try_from(set).unwrap_or_default(), alive));
                    let size = world.sets[of].all()[set].size;
                    found(Step::Decide(size, alive), World { deciding, ..*world });
                } else {
                    self.reconcile(world, (of, set, view), found);
                }
            }
        }
    }

    /// Returns the versions of the MachineSet and the snapshots of the Machines that its controller may see.
    fn views_of_set_controller(&self, world: &World, of: usize) -> impl Iterator<Item = (usize, usize)> {
        let (sets, views) = (world.sets[of], world.seen.all().len());
        let sees_marks = self.bounds.sees_marks;
        (0..sets.all().len()).flat_map(move |set| {
            let since = usize::from(sets.all()[set].copied.since);
            (0..views).filter(move |view| !sees_marks || *view >= since).map(move |view| (set, view))
        })
    }

    /// Returns the Machines of a MachineSet in this snapshot, and the number by which they exceed the size in this
    /// version.
    fn excess(world: &World, of: usize, set: usize, view: usize) -> (CacheView, i8) {
        let view = world.seen.all()[view].only(world.members_of(of));
        (view, view.existing.len() - world.sets[of].all()[set].size)
    }

    /// Deletes one of the Machines that the controller decided to delete, while everything else goes on. After the last
    /// one the controller reports that it has acted on this version of the MachineSet.
    fn delete_next(&self, world: &World, set: usize, left: Set, found: &mut dyn FnMut(Step, World)) {
        for victim in left.iter() {
            let mut then = *world;
            self.delete_victim(&mut then, victim);
            let left = left.without(Set::one(victim));
            then.deciding = if left.is_empty() { None } else { Some((u8::try_from(set).unwrap_or_default(), left)) };
            if left.is_empty() {
                self.seen_to(&mut then, 0, set, true);
                Self::sees_own_writes(&mut then);
            } else {
                then.machines_changed(self.bounds.lag);
            }
            found(Step::DeleteNext(victim), then);
        }
    }

    /// Ends a reconcile of this version of the MachineSet.
    fn seen_to(&self, world: &mut World, of: usize, set: usize, is_without_error: bool) {
        world.sets[of].drop_oldest(set);
        let base = world.sets[of].all()[0].generation;
        world.sets[of].all_mut().iter_mut().for_each(|set| set.generation -= base);
        let is_asked = self.rule.follows == Follows::CopiedLogAndActed || self.bounds.is_pool;
        world.is_unacted = is_asked && !is_without_error && (world.is_unacted || base > 0);
    }

    /// Waits until the controller's cache shows its own writes.
    fn sees_own_writes(world: &mut World) {
        let count = u8::try_from(world.seen.all().len()).unwrap_or_default();
        world.seen = Ring::of(CacheView::of(&world.machines));
        world.forget_views(count);
    }

    fn reconcile(&self, world: &World, (of, set, view): (usize, usize, usize), found: &mut dyn FnMut(Step, World)) {
        let (machines, excess) = Self::excess(world, of, set, view);
        let is_without_error = !self.bounds.always_errs;
        let victims = victims(machines, excess);
        self.act(world, Act { of, set, view, victims, missing: -excess, is_without_error }, found);
    }

    /// Finds the reconciles that end with an error, before their work or after any part of it.
    pub(crate) fn failing_steps(&self, world: &World, found: &mut dyn FnMut(Step, World)) {
        if world.budget.errors == 0 {
            return;
        }
        let mut world = *world;
        world.budget.errors -= 1;
        if let Some((set, _)) = world.deciding {
            let mut then = World { deciding: None, ..world };
            self.seen_to(&mut then, 0, set.into(), false);
            if !self.bounds.forgets_own_writes {
                Self::sees_own_writes(&mut then);
            }
            found(Step::StopDeleting, then);
            return;
        }
        for of in world.machine_sets() {
            for (set, view) in self.views_of_set_controller(&world, of) {
                let (machines, excess) = Self::excess(&world, of, set, view);
                let all = victims(machines, excess) & world.living();
                if self.bounds.deletes_one_by_one && all.len() > 1 {
                    continue;
                }
                for victims in (0..=all.0).map(Set).filter(|victims| victims.without(all).is_empty()) {
                    for missing in 0..=(-excess).max(0) {
                        let act = Act { of, set, view, victims, missing, is_without_error: false };
                        self.act(&world, act, found);
                    }
                }
            }
        }
    }

    /// Finds the steps in which a MachinePool's provider deletes Machines other than the marked ones.
    pub(crate) fn straying_steps(&self, world: &World, found: &mut dyn FnMut(Step, World)) {
        if world.budget.strays == 0 || !self.bounds.is_pool {
            return;
        }
        for (set, view) in self.views_of_set_controller(world, 0) {
            let (machines, excess) = Self::excess(world, 0, set, view);
            let marked = victims(machines, excess);
            let is_other = |other: &Set| {
                let is_of_size = other.len() == excess && other.without(machines.existing).is_empty();
                let has_deleting = (marked & machines.deleting).without(*other).is_empty();
                is_of_size && has_deleting && *other != marked && !(*other & world.living()).is_empty()
            };
            for victims in (1..=machines.existing.0).map(Set).filter(is_other) {
                let mut then = *world;
                then.budget.strays -= 1;
                then.ledger.strayed = then.ledger.strayed | victims.without(marked);
                let act = Act { of: 0, set, view, victims, missing: 0, is_without_error: true };
                self.act(&then, act, found);
            }
        }
    }

    fn act(&self, world: &World, act: Act, found: &mut dyn FnMut(Step, World)) {
        let Act { of, set, view, victims, missing, is_without_error } = act;
        let (is_old, size) = (of == 1, world.sets[of].all()[set].size);
        let mut then = *world;
        self.seen_to(&mut then, of, set, is_without_error);
        for victim in victims.iter() {
            self.delete_victim(&mut then, victim);
        }
        let mut created = Set(0);
        for _ in 0..missing {
            let Some(machine) = (0..SLOTS).find(|machine| then.machines[*machine].life == Life::Unborn) else {
                let step = Step::Reconcile { is_old, size, deleted: victims, created, is_without_error };
                found(step, World { replicas: i8::MIN, ..*world });
                return;
            };
            then.machines[machine] = Machine { life: Life::Alive, is_old, ..Machine::default() };
            created = created | Set::one(machine);
            if then.is_counting() || then.ledger.places > 0 {
                then.ledger.came = then.ledger.came | Set::one(machine);
            }
        }
        let has_changed = then.machines != world.machines;
        let waits = is_without_error || !self.bounds.forgets_own_writes;
        if has_changed && waits {
            Self::sees_own_writes(&mut then);
        }
        // A step that changes only the controller's snapshot is left out, since it leaves fewer choices than before.
        if has_changed || set > 0 || then.is_unacted != world.is_unacted {
            if !has_changed || !waits {
                then.seen.drop_oldest(view);
                then.forget_views(u8::try_from(view).unwrap_or_default());
                then.machines_changed(self.bounds.lag);
            }
            let deleted = victims & world.living();
            found(Step::Reconcile { is_old, size, deleted, created, is_without_error }, then);
        }
    }

    fn delete_victim(&self, world: &mut World, victim: usize) {
        if world.machines[victim].life != Life::Alive {
            return;
        }
        world.begin_deleting(victim);
        let was_named = world.log[victim].phase != Phase::None || world.ledger.paid.has(victim);
        let why = if was_named { &mut world.ledger.chosen } else { &mut world.ledger.foreign };
        *why = *why | Set::one(victim);
        if world.log[victim].phase == Phase::Wanted && self.may_miss_places(world) {
            // This deletion counts for a placeholder that another Machine has replaced. The Machine's own smaller size
            // takes one more.
            world.ledger.places_missed += 1;
            world.ledger.others += 1;
        }
        if !was_named {
            world.ledger.excused = world.ledger.excused | Set::one(victim);
            world.ledger.taken = world.ledger.taken | Set::one(victim);
        }
        if !was_named && world.machines[victim].has_node {
            let is_early = world.copies.iter().any(|memory| memory.to_log.has(victim));
            if is_early {
                world.ledger.early = world.ledger.early | Set::one(victim);
            }
            // The controller may delete a Machine that joins after DecreaseTargetSize marked it, and the first Machines
            // of an old MachineSet.
            if !world.ledger.left_softly.has(victim) && !self.is_to_roll(world, victim) {
                self.took_another(world, victim);
            }
        }
    }
}

/// Returns the Machines that a MachineSet deletes: first those already being deleted, then marked ones, then those
/// without a Node, then by name.
pub(crate) fn victims(seen: CacheView, count: i8) -> Set {
    let classes = [
        seen.deleting,
        seen.marked.without(seen.deleting),
        seen.existing.without(seen.deleting | seen.marked | seen.with_node),
        seen.existing.without(seen.deleting | seen.marked) & seen.with_node,
    ];
    let order = classes.into_iter().flat_map(Set::iter);
    order.take(usize::try_from(count).unwrap_or_default()).fold(Set(0), |set, machine| set | Set::one(machine))
}
