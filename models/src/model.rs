//! The whole model: the program, the controllers, the Cluster Autoscaler and other people, with bounds; and what must
//! hold.

use std::fmt::{self, Display};

use crate::{
    explore::{Model, Next},
    program::Program,
    rule::{Existence, Finish, Rule},
    world::{At, Budget, Fault, Life, Memory, Phase, SLOTS, Set, World, name},
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
    /// Which Machines the Cluster Autoscaler may name; nothing for all.
    pub may_be_named: Option<Set>,
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
    pub rule: Rule,
    /// The bounds.
    pub bounds: Bounds,
}

/// What happens between two moments.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// DeleteNodes comes to a copy, which views the MachineDeployment and the Machines; the latter perhaps as they were
    /// a while ago.
    Ask(usize, Set, bool),
    /// DecreaseTargetSize by one comes to a copy, which chose this Machine.
    AskLess(usize, usize, bool),
    /// IncreaseSize by one.
    Increase,
    /// The write failed its test; all is viewed again.
    ViewAgain(usize, bool),
    /// Machines are logged.
    Log(usize, Set),
    /// A Machine is marked by a command.
    Mark(Option<usize>, usize),
    /// A command lowers the size.
    Lower(Option<usize>, Set),
    /// A size write is refused for good.
    Refused(Option<usize>, Set),
    /// A copy takes refused entries out of the log.
    TakeBack(usize),
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
    },
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
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = |copy: &Option<usize>| copy.map_or("a finisher".to_owned(), |copy| format!("copy {}", copy + 1));
        let one = |machine: &usize| name(*machine);
        let cache = |lags: &bool| if *lags { ", the Machines in a cache that lags behind" } else { "" };
        match self {
            Self::Ask(copy, set, lags) => {
                write!(formatter, "DeleteNodes({set}) to copy {}, which views the group{}", copy + 1, cache(lags))
            }
            Self::AskLess(copy, machine, lags) => {
                let (copy, machine) = (copy + 1, one(machine));
                write!(formatter, "DecreaseTargetSize(-1) to copy {copy}, which chooses {machine}{}", cache(lags))
            }
            Self::Increase => formatter.write_str("IncreaseSize(1) is written"),
            Self::ViewAgain(copy, lags) => {
                let cache = cache(lags);
                write!(formatter, "copy {}: the write fails its test; it views the group again{cache}", copy + 1)
            }
            Self::Log(copy, set) => write!(formatter, "copy {} logs [{set}]", copy + 1),
            Self::Mark(copy, machine) => write!(formatter, "{} marks {}", who(copy), one(machine)),
            Self::Lower(copy, set) => write!(formatter, "{} lowers the size for [{set}]", who(copy)),
            Self::Refused(copy, set) => {
                write!(formatter, "{}: the size write for [{set}] is refused for good", who(copy))
            }
            Self::TakeBack(copy) => write!(formatter, "copy {} takes these out of the log", copy + 1),
            Self::Finish(call, machine) => {
                let machine = one(machine);
                match call {
                    Finish::Mark => write!(formatter, "a finisher marks {machine}"),
                    Finish::Lower => write!(formatter, "a finisher lowers the size for all that is wanted"),
                    Finish::Delete => write!(formatter, "a finisher deletes {machine}"),
                    Finish::Forget => write!(formatter, "a finisher takes {machine} out of the log"),
                    Finish::Unmark => write!(formatter, "a finisher takes the mark off {machine}"),
                }
            }
            Self::Crash(copy) => write!(formatter, "copy {} is killed and starts again", copy + 1),
            Self::Sync(size) => write!(formatter, "the MachineDeployment controller sets the MachineSet to {size}"),
            Self::Reconcile { size, deleted, created } => {
                write!(
                    formatter,
                    "the MachineSet controller sees size {size}, deletes [{deleted}], creates [{created}]"
                )
            }
            Self::Decide(size, set) => {
                write!(formatter, "the MachineSet controller sees size {size} and decides that [{set}] go")
            }
            Self::DeleteNext(machine) => write!(formatter, "the MachineSet controller deletes {}", one(machine)),
            Self::Vanish(machine) => write!(formatter, "{} is gone", one(machine)),
            Self::Join(machine) => write!(formatter, "{} gets its Node", one(machine)),
            Self::ForeignDelete(machine) => write!(formatter, "someone else deletes {}", one(machine)),
            Self::ForeignSize(size) => write!(formatter, "someone else sets the size to {size}"),
        }
    }
}

impl DeleteModel {
    fn program(&self) -> Program<'_> {
        Program { rule: &self.rule, bounds: &self.bounds }
    }

    fn next(&self, step: Step, mut world: World, is_certain: bool) -> Next<Self> {
        // The MachineSet controller says so when it would need more Machines than the model has.
        let is_within = world.replicas >= 0;
        self.program().note_followed(&mut world);
        world.forget_idle_facts();
        world.note_past(self.bounds.lag, self.rule.existence == Existence::AsOfTheGenerationAlone);
        if self.bounds.merges_copies {
            world.copies.sort_unstable_by_key(|memory| (memory.at == At::Idle, memory.named.0, memory.done.0));
        }
        Next { step, state: is_within.then_some(world), is_certain }
    }

    /// What the Cluster Autoscaler may ask.
    fn commands(&self, world: &World, found: &mut dyn FnMut(Step, World)) {
        // The copies are alike: the second is asked when the first is busy.
        let copies = world.copies.iter().take(self.bounds.copies);
        if let Some(copy) = copies.into_iter().position(|memory| memory.at == At::Idle) {
            if world.budget.deletes > 0 {
                for named in self.nameable(world) {
                    for past in world.views_of(named) {
                        let mut then = *world;
                        then.budget.deletes -= 1;
                        then.ledger.named = then.ledger.named | named;
                        self.program().view(&mut then, copy, named, false, past);
                        found(Step::Ask(copy, named, past != world.pasts.last()), then);
                    }
                }
            }
            for past in world.pasts.all() {
                let has_joined = Set::of(|machine| world.machines[machine].has_node);
                let pending = past.alive.without(past.with_node | has_joined | world.logged());
                if world.budget.decreases > 0
                    && let Some(machine) = pending.iter().next()
                {
                    let mut then = *world;
                    then.budget.decreases -= 1;
                    self.program().view(&mut then, copy, Set::one(machine), true, *past);
                    found(Step::AskLess(copy, machine, *past != world.pasts.last()), then);
                }
            }
        }
        if world.budget.increases > 0 {
            let mut then = *world;
            then.budget.increases -= 1;
            then.replicas += 1;
            then.ledger.size += 1;
            then.deployment_changed(self.bounds.lag);
            found(Step::Increase, then);
        }
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
            if world.budget.crashes > 0 && world.copies[copy].at != At::Idle {
                let mut then = *world;
                then.budget.crashes -= 1;
                then.copies[copy] = Memory::default();
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
                then.machines[machine].life = Life::Deleting;
                then.ledger.foreign = then.ledger.foreign | Set::one(machine);
                then.ledger.excused = then.ledger.excused | Set::one(machine);
                then.machines_changed(self.bounds.lag);
                found(Step::ForeignDelete(machine), then);
            }
            if world.budget.joins > 0 && !world.machines[machine].has_node {
                let mut then = *world;
                then.budget.joins -= 1;
                then.machines[machine].has_node = true;
                then.machines_changed(self.bounds.lag);
                found(Step::Join(machine), then);
            }
        }
        for delta in [1, -1] {
            if world.budget.foreign_sizes > 0 && world.replicas + delta >= 0 {
                let mut then = *world;
                then.budget.foreign_sizes -= 1;
                then.replicas += delta;
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
        World::at_rest(self.bounds.nodes, self.bounds.pending, self.bounds.budget)
    }

    fn steps(&self, state: &World, found: &mut dyn FnMut(Next<Self>)) {
        let program = self.program();
        let mut certain = |step, world| found(self.next(step, world, true));
        program.steps(state, &mut certain);
        program.deployment_steps(state, &mut certain);
        program.set_steps(state, &mut certain);
        self.vanishing(state, &mut certain);
        let mut free = |step, world| found(self.next(step, world, false));
        self.commands(state, &mut free);
        self.environment(state, &mut free);
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
            None if at_rest => Self::check_at_rest(state),
            None => Ok(()),
        }
    }
}
