//! The finisher of every copy in the model, which completes the deletions that it finds in the log, whoever wrote them.
//! [`delete_rule::Rule::finish`] decides, and a [`delete_rule::Reconcile`] makes the calls. Each action is a pass of
//! its own here, whose reads and single write happen at one moment: the reads stay true, so that an older read only
//! delays.

use delete_rule::{Entry, Forgets, Kind, LeftSince, ReconcileCall};

use crate::{
    controllers::victims,
    program::Program,
    small::{self, Log, Member, Shown, Small},
    step::{Finish, Step},
    variant::Variant,
    world::{Set, World},
};

type Followed = delete_rule::Followed<Small, Variant>;
type Todo = delete_rule::Finish<Small, Member>;

impl Program<'_> {
    pub(crate) fn steps_of_finisher(&self, world: &World, found: &mut dyn FnMut(Step, World)) {
        self.late_unmark(world, found);
        let log = world.rule_log();
        let (followed, steps) = self.todo(world, &log);
        for step in steps {
            self.pass(world, (&log, &followed), step, found);
        }
    }

    /// Returns true if there are wanted entries that any copy carries on with.
    pub(crate) fn is_to_carry_on(&self, world: &World) -> bool {
        world.rule_log().wanted() > 0 && self.core().0.carries_on
    }

    fn todo(&self, world: &World, log: &Log) -> (Followed, Vec<Todo>) {
        let entries = world.followed.iter().filter_map(|machine| small::entry(machine, world.log[machine]));
        let followed = self.followed_by_name(world).and(entries);
        // The cache hasn't received the newest Machine yet.
        let is_shown =
            |member: &Member| self.rule.forgets != Forgets::Absent || world.machines[member.machine()].has_node;
        let members: Vec<_> = world.members().filter(is_shown).collect();
        let steps = self.core().finish(log, &members, &followed, &self.left_in_time(world, log), 1);
        (followed, steps)
    }

    /// Returns the followed entries with the rule for deletion by name. The status of a MachinePool may lag behind
    /// without limit.
    fn followed_by_name(&self, world: &World) -> Followed {
        if !self.bounds.is_pool {
            return self.core().followed::<Small, Shown>(Kind::MachineDeployment, &[]);
        }
        let replicas = i32::from(world.replicas);
        let status = world.seen.all().iter().map(|view| i32::from(view.existing.len())).min().unwrap_or_default();
        let log = Log::default();
        let pool = Shown { replicas, desired: replicas, status, generation: 0, seen_generation: 0, log };
        self.core().followed(Kind::MachinePool, &[pool])
    }

    /// Returns the entries whose Machines have been left to their provider for long enough: the provider has acted on a
    /// size that was lowered for them, unless it is slow.
    fn left_in_time(&self, world: &World, log: &Log) -> LeftSince<Small> {
        let pool = world.sets[0].all()[0];
        let seen = world.seen.last();
        let is_busy = !(victims(seen, seen.existing.len() - pool.size) & world.living()).is_empty() || world.is_unacted;
        let is_in_time =
            |entry: &&Entry<Small>| self.bounds.is_slow || (pool.copied.lowered.has(entry.uid.into()) && !is_busy);
        log.entries().iter().filter(is_in_time).map(|entry| ((entry.uid, entry.ticket), 0)).collect()
    }

    /// Runs a pass for one action.
    fn pass(&self, world: &World, now: (&Log, &Followed), step: Todo, found: &mut dyn FnMut(Step, World)) {
        let (log, followed) = now;
        let seems_gone = matches!(step, delete_rule::Finish::ForgetGone(_));
        let mut reconcile = self.core().reconcile([step]);
        let mut read = None;
        loop {
            let calls = reconcile.next(read);
            if calls.is_empty() {
                break;
            }
            for call in calls {
                match call {
                    ReconcileCall::Read(entry) => {
                        // These variants trust their cache.
                        let is_read = matches!(self.rule.forgets, Forgets::GoneAndFollowed | Forgets::Gone);
                        let is_believed_gone = seems_gone && !is_read;
                        let life = world.life(entry.uid.into());
                        reconcile.took_life(entry, if is_believed_gone { delete_rule::Life::Gone } else { life });
                    }
                    ReconcileCall::ReadGroup => {
                        reconcile.took_group();
                        read = Some(now);
                    }
                    ReconcileCall::List => {
                        let size: i8 = world.sets.iter().map(|set| set.last().size).sum();
                        reconcile.took_list(&small::uids(world.living()), size.into());
                    }
                    ReconcileCall::Delete(entry) => {
                        if reconcile.permits(&entry, now) {
                            let mut then = *world;
                            then.begin_deleting(entry.uid.into());
                            self.note_by_name(&mut then, entry.uid.into());
                            then.machines_changed(self.bounds.lag);
                            found(Step::Finish(Finish::Delete, entry.uid.into()), then);
                        }
                    }
                    ReconcileCall::Mark(entry) => {
                        let (machine, mut then) = (usize::from(entry.uid), *world);
                        self.mark(&mut then, machine, world.log[machine].ticket);
                        found(Step::Mark(None, machine), then);
                    }
                    ReconcileCall::Unmark(member) => self.unmark(world, member.machine(), found),
                }
            }
        }
        if let Some(left) = reconcile.left_of(log, |log| followed.has_all(log)) {
            self.forget(world, &left, found);
        }
    }

    /// Removes the entries that are over from the log.
    fn forget(&self, world: &World, left: &Log, found: &mut dyn FnMut(Step, World)) {
        let stays = small::set(left.entries().iter().map(|entry| &entry.uid));
        let mut then = *world;
        for machine in world.logged().without(stays).iter() {
            then.leave_log(machine);
            if world.log[machine].is_soft {
                then.ledger.left_softly = then.ledger.left_softly | Set::one(machine);
            }
            then.followed = then.followed.without(Set::one(machine));
            then.deployment_changed(self.bounds.lag);
            found(Step::Finish(Finish::Forget, machine), then);
        }
    }

    /// Removes a mark, at once or in two steps.
    fn unmark(&self, world: &World, machine: usize, found: &mut dyn FnMut(Step, World)) {
        // Without the log, only the age of a mark shows if a command still needs it; in the model a needed mark always
        // stays.
        let is_needed = |named: Set| !self.rule.logs_first && named.has(machine);
        if world.copies.iter().any(|memory| is_needed(memory.named | memory.joined)) {
            return;
        }
        let mut then = *world;
        if !self.bounds.splits_unmarks {
            self.mark(&mut then, machine, 0);
            found(Step::Finish(Finish::Unmark, machine), then);
        } else if world.in_flight.unmark.is_none() {
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
}
