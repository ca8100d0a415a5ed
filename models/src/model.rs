//! The whole model: the program, the controllers, the Cluster Autoscaler and other people, with bounds; and what must
//! hold.

use std::fmt::{self, Display};

use crate::{
    copies::Program,
    explore::{Model, Next},
    variant::{Counts, Existence, Variant},
    world::{Budget, Fault, Life, Memory, Past, Phase, SLOTS, Set, World, name},
};

/// How far the search goes.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each widens or narrows the search by itself")]
pub struct Bounds {
    /// How many copies of the program there are, 1 or 2.
    pub copies: usize,
    /// Machines that have a Node.
    pub nodes: usize,
    /// Machines that have none yet.
    pub pending: usize,
    /// Replicas that have no Machine yet.
    pub missing: usize,
    /// The group's min.
    pub min: i8,
    /// How many Machines one DeleteNodes names at most.
    pub batch: i8,
    /// How many versions a controller's view keeps, the one that it acted on last included.
    pub lag: usize,
    /// Whether the MachineSet controller sees the marks that were set before the smaller size that it sees.
    pub sees_marks: bool,
    /// Whether the MachineSet controller deletes one by one, while all else goes on.
    pub deletes_one_by_one: bool,
    /// Whether what no rule can prevent is put up with: that another Machine goes where someone else's deletion of a
    /// named Machine was made good by a new one before the MachineSet controller saw the smaller size; and that a
    /// marked Machine goes for another smaller size while its own is refused for good.
    pub admits_known: bool,
    /// True if the group is a MachineSet without a MachineDeployment, whose own log and size its controller sees.
    pub is_bare: bool,
    /// True if a Machine that is being deleted loses its Node before it is gone.
    pub loses_nodes: bool,
    /// True if every reconcile of the MachineSet controller ends with an error after all of its work.
    pub always_errs: bool,
    /// True if the MachineSet controller, after an error, doesn't wait until its cache shows what it has written.
    pub forgets_own_writes: bool,
    /// True if a copy's taking off of a mark is on its way while all else goes on.
    pub splits_unmarks: bool,
    /// Which Machines the Cluster Autoscaler may name; nothing for all.
    pub may_be_named: Option<Set>,
    /// True if a DeleteNodes may join one that is under way.
    pub joins_batches: bool,
    /// Whether the copies count as alike, so that one order of them stands for both. Traces then call them 1 and 2
    /// as they come.
    pub merges_copies: bool,
    /// What may happen.
    pub budget: Budget,
}

/// A rule within bounds.
#[derive(Clone, Copy, Debug)]
pub struct DeleteModel {
    /// The rule.
    pub rule: Variant,
    /// The bounds.
    pub bounds: Bounds,
}

/// One API call of the finisher, about one Machine.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Finish {
    /// Delete the Machine, uid as precondition.
    Delete,
    /// Take the entry out of the log.
    Forget,
    /// Take the mark off, if it is still the one seen.
    Unmark,
}

/// A step from one moment to another. A copy then looks at what it needs for the next call.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// DeleteNodes comes to a copy, which views the group and the Machines.
    Ask(usize, Set),
    /// DeleteNodes comes to a copy and joins one that it carries out.
    JoinBatch(usize, Set),
    /// DecreaseTargetSize by one comes to a copy.
    AskLess(usize),
    /// IncreaseSize by one comes to a copy.
    AskMore(usize),
    /// DeleteNodes of so many placeholders comes to a copy, which views the group and lists the Machines.
    AskPlaces(usize, i8),
    /// A copy carries on with what is wanted.
    CarryOn(usize),
    /// A write of a copy fails its test.
    Fails(usize),
    /// A copy reads the group.
    ReadGroup(usize),
    /// A copy lists the Machines.
    Count(usize),
    /// Machines are logged.
    Log(usize, Set),
    /// A Machine is marked, by a copy or a finisher.
    Mark(Option<usize>, usize),
    /// A copy takes a mark off.
    Unmark(usize, usize),
    /// A copy lowers the size.
    Lower(usize, Set),
    /// A size write is refused for good.
    Refused(usize, Set),
    /// A copy takes entries out of the log.
    TakeBack(usize, Set),
    /// A copy raises the size by one.
    Increase(usize),
    /// A copy lowers the size for so many placeholders.
    LowerPlaces(usize, i8),
    /// A write of a copy has no answer; true if it was done.
    Unanswered(usize, bool),
    /// The step of a copy before, but its cache of Machines lags behind.
    OfOldCache(usize),
    /// The Node of a Machine that is being deleted is gone.
    LoseNode(usize),
    /// A mark is sent, has no answer, and will land late or never.
    SendMark(usize),
    /// It lands.
    LateMark(usize),
    /// A finisher has found a mark without an entry, and sends the patch that takes it off.
    SendUnmark(usize),
    /// A finisher acts on a Machine.
    Finish(Finish, usize),
    /// A copy is killed and starts again.
    Crash(usize),
    /// The MachineDeployment controller writes the MachineSet.
    Sync(i8),
    /// The MachineSet controller acts.
    Reconcile {
        /// The size that it sees.
        size: i8,
        /// Machines that it deletes.
        deleted: Set,
        /// Machines that it creates.
        created: Set,
        /// True if it ends without an error; else the rest of its work is left.
        is_without_error: bool,
    },
    /// The MachineSet controller, which deletes one by one, ends with an error.
    StopDeleting,
    /// The MachineSet controller sees this size and decides which Machines go.
    Decide(i8, Set),
    /// The MachineSet controller deletes one of them.
    DeleteNext(usize),
    /// A Machine that was being deleted is gone.
    Vanish(usize),
    /// A Machine gets its Node.
    Join(usize),
    /// Someone else deletes a Machine.
    ForeignDelete(usize),
    /// Someone else changes the size to this.
    ForeignSize(i8),
}

impl Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = |machine: &usize| name(*machine);
        let who = |copy: &usize| format!("copy {}", copy + 1);
        match self {
            Self::Ask(copy, set) => write!(f, "DeleteNodes({set}) to {}, which views the group", who(copy)),
            Self::JoinBatch(copy, set) => write!(f, "DeleteNodes({set}) to {}, and joins", who(copy)),
            Self::AskLess(copy) => write!(f, "DecreaseTargetSize(-1) to {}, which views the group", who(copy)),
            Self::AskMore(copy) => write!(f, "IncreaseSize(1) to {}, which views the group", who(copy)),
            Self::AskPlaces(copy, count) => write!(
                f,
                "DeleteNodes of {count} placeholders to {}, which views the group and lists the Machines",
                who(copy)
            ),
            Self::CarryOn(copy) => write!(f, "{} carries on with what is wanted", who(copy)),
            Self::Fails(copy) => write!(f, "{}: the write fails its test", who(copy)),
            Self::ReadGroup(copy) => write!(f, "{} reads the group", who(copy)),
            Self::Count(copy) => write!(f, "{} views the group or lists the Machines", who(copy)),
            Self::Log(copy, set) => write!(f, "{} logs [{set}]", who(copy)),
            Self::Mark(Some(copy), machine) => write!(f, "{} marks {}", who(copy), one(machine)),
            Self::Mark(None, machine) => write!(f, "a finisher marks {}", one(machine)),
            Self::Unmark(copy, machine) => write!(f, "{} takes the mark off {}", who(copy), one(machine)),
            Self::Lower(copy, set) => write!(f, "{} lowers the size for [{set}]", who(copy)),
            Self::Refused(copy, set) => write!(f, "{}: the size write for [{set}] is refused for good", who(copy)),
            Self::TakeBack(copy, set) => write!(f, "{} takes [{set}] out of the log", who(copy)),
            Self::Increase(copy) => write!(f, "{} raises the size by 1", who(copy)),
            Self::LowerPlaces(copy, count) => write!(f, "{} lowers the size by {count} for placeholders", who(copy)),
            Self::Unanswered(copy, true) => write!(f, "the write of {} is done, and the answer is lost", who(copy)),
            Self::Unanswered(copy, false) => write!(f, "the write of {} is lost", who(copy)),
            Self::OfOldCache(copy) => {
                write!(f, "{} goes on, with the Machines in a cache that lags behind", who(copy))
            }
            Self::LoseNode(machine) => write!(f, "the Node of {} is gone", one(machine)),
            Self::SendMark(machine) => write!(f, "a mark of {} is sent and has no answer", one(machine)),
            Self::LateMark(machine) => write!(f, "that mark of {} lands", one(machine)),
            Self::SendUnmark(machine) => {
                let machine = one(machine);
                write!(f, "a finisher finds no entry for the mark of {machine}, and sends its taking off")
            }
            Self::Finish(call, machine) => {
                let machine = one(machine);
                match call {
                    Finish::Delete => write!(f, "a finisher deletes {machine}"),
                    Finish::Forget => write!(f, "a finisher takes {machine} out of the log"),
                    Finish::Unmark => write!(f, "a finisher takes the mark off {machine}"),
                }
            }
            Self::Crash(copy) => write!(f, "{} is killed and starts again", who(copy)),
            Self::Sync(size) => write!(f, "the MachineDeployment controller sets the MachineSet to {size}"),
            Self::Reconcile { size, deleted, created, is_without_error } => {
                let end = if *is_without_error { "" } else { ", and ends with an error" };
                write!(f, "the MachineSet controller sees size {size}, deletes [{deleted}], creates [{created}]{end}")
            }
            Self::StopDeleting => f.write_str("the MachineSet controller ends with an error"),
            Self::Decide(size, set) => {
                write!(f, "the MachineSet controller sees size {size} and decides that [{set}] go")
            }
            Self::DeleteNext(machine) => write!(f, "the MachineSet controller deletes {}", one(machine)),
            Self::Vanish(machine) => write!(f, "{} is gone", one(machine)),
            Self::Join(machine) => write!(f, "{} gets its Node", one(machine)),
            Self::ForeignDelete(machine) => write!(f, "someone else deletes {}", one(machine)),
            Self::ForeignSize(size) => write!(f, "someone else sets the size to {size}"),
        }
    }
}

impl Step {
    /// The same, of a copy whose cache of Machines lags behind.
    pub(crate) fn of_old_cache(self) -> Self {
        match self {
            Self::AskLess(copy) | Self::ReadGroup(copy) | Self::Ask(copy, _) => Self::OfOldCache(copy),
            step => step,
        }
    }

    /// The same, of a write whose answer is lost; true if it was done.
    pub(crate) fn without_answer(self, is_done: bool) -> Self {
        match self {
            Self::Log(copy, _)
            | Self::Lower(copy, _)
            | Self::TakeBack(copy, _)
            | Self::LowerPlaces(copy, _)
            | Self::Increase(copy) => Self::Unanswered(copy, is_done),
            step => step,
        }
    }
}

impl DeleteModel {
    fn program(&self) -> Program<'_> {
        Program { rule: &self.rule, bounds: &self.bounds }
    }

    fn next(&self, before: &World, step: Step, mut world: World, is_certain: bool) -> Next<Self> {
        // The MachineSet controller says so when it would need more Machines than the model has.
        let is_within = world.replicas >= 0;
        if self.program().outdates_caches(before, &world) {
            world.outdate_caches();
        }
        self.program().settle(&mut world);
        if self.bounds.is_bare {
            Program::show_at_once(&mut world, self.bounds.lag);
        }
        self.program().note_followed(&mut world);
        world.note_past(self.bounds.lag);
        world.forget_idle_facts();
        let counts_all = self.rule.existence != Existence::CacheThatIsFarEnough || self.rule.counts == Counts::ByCache;
        world.forget_pasts(counts_all);
        if self.bounds.merges_copies {
            world.copies.sort_unstable_by_key(|memory| (memory.is_idle(), memory.held));
        }
        world.number_tickets();
        Next { step, state: is_within.then_some(world), is_certain }
    }

    /// What the Cluster Autoscaler may ask.
    fn commands(&self, world: &World, found: &mut dyn FnMut(Step, World)) {
        let program = self.program();
        if self.bounds.joins_batches && world.budget.deletes > 0 {
            for named in self.nameable(world) {
                let mut then = *world;
                then.budget.deletes -= 1;
                then.ledger.named = then.ledger.named | named;
                (0..self.bounds.copies).for_each(|copy| program.join(&then, copy, named, found));
            }
        }
        // The copies are alike: the second is asked when the first is busy.
        let Some(copy) = self.idle(world) else { return };
        if world.budget.deletes > 0 {
            for named in self.nameable(world) {
                let mut then = *world;
                then.budget.deletes -= 1;
                then.ledger.named = then.ledger.named | named;
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
        if world.budget.increases > 0 {
            program.ask_more(world, copy, found);
        }
    }

    fn idle(&self, world: &World) -> Option<usize> {
        world.copies.iter().take(self.bounds.copies).position(Memory::is_idle)
    }

    /// Machines that the Cluster Autoscaler may name together: those that it knows, and those it named before even
    /// when they are gone.
    fn nameable(&self, world: &World) -> Vec<Set> {
        let known = Set::of(|machine| {
            let is_known = world.machines[machine].exists()
                || world.pasts.all().iter().any(|past| (past.alive | past.deleting).has(machine))
                || (world.ledger.named.has(machine) && world.machines[machine].life == Life::Gone);
            is_known && self.bounds.may_be_named.is_none_or(|allowed| allowed.has(machine))
        });
        (1..=known.0).map(Set).filter(|set| set.without(known).is_empty() && set.len() <= self.bounds.batch).collect()
    }

    /// What others may do.
    fn environment(&self, world: &World, found: &mut dyn FnMut(Step, World)) {
        for copy in 0..world.copies.len() {
            if world.budget.crashes > 0 && !world.copies[copy].is_idle() {
                let mut then = *world;
                then.budget.crashes -= 1;
                then.let_go(copy);
                found(Step::Crash(copy), then);
            }
        }
        for machine in 0..SLOTS {
            if world.machines[machine].life != Life::Alive {
                continue;
            }
            if world.budget.foreign_deletes > 0 {
                let mut then = *world;
                then.budget.foreign_deletes -= 1;
                then.touch(machine);
                then.machines[machine].life = Life::Deleting;
                then.ledger.foreign = then.ledger.foreign | Set::one(machine);
                then.ledger.excused = then.ledger.excused | Set::one(machine);
                then.machines_changed(self.bounds.lag);
                found(Step::ForeignDelete(machine), then);
            }
            if world.budget.joins > 0 && !world.machines[machine].has_node {
                let mut then = *world;
                then.budget.joins -= 1;
                then.touch(machine);
                then.machines[machine].has_node = true;
                then.machines_changed(self.bounds.lag);
                found(Step::Join(machine), then);
            }
        }
        let hanging = Set::of(|machine| world.machines[machine].life == Life::Deleting);
        for machine in hanging.iter().filter(|machine| self.bounds.loses_nodes && world.machines[*machine].has_node) {
            let mut then = *world;
            then.touch(machine);
            then.machines[machine].has_node = false;
            found(Step::LoseNode(machine), then);
        }
        for delta in [1, -1] {
            if world.budget.foreign_sizes > 0 && world.replicas + delta >= 0 {
                let mut then = *world;
                then.budget.foreign_sizes -= 1;
                (then.replicas, then.sized_by) = (world.replicas + delta, 0);
                then.ledger.size += delta;
                then.ledger.others += i8::from(delta < 0);
                then.deployment_changed(self.bounds.lag);
                found(Step::ForeignSize(then.replicas), then);
            }
        }
    }

    fn vanishing(&self, world: &World, found: &mut dyn FnMut(Step, World)) {
        for machine in 0..SLOTS {
            if world.machines[machine].life == Life::Deleting {
                let mut then = *world;
                let is_settled = world.logged().without(world.followed).is_empty();
                if world.log[machine].phase == Phase::Lowered && !is_settled {
                    self.program().note_replaced(&mut then, machine);
                }
                then.touch(machine);
                then.machines[machine].life = Life::Gone;
                then.machines[machine].mark = 0;
                then.machines[machine].has_node = false;
                then.machines_changed(self.bounds.lag);
                found(Step::Vanish(machine), then);
            }
        }
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
        World::of(self.bounds.nodes, self.bounds.pending, self.bounds.missing, self.bounds.budget)
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
        program.deployment_steps(state, &mut certain);
        program.set_steps(state, &mut certain);
        self.vanishing(state, &mut certain);
        let mut free = |step, world| found(self.next(state, step, world, false));
        self.commands(state, &mut free);
        self.environment(state, &mut free);
        program.failing_steps(state, &mut free);
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
