//! The whole model: the program, the controllers, the Cluster Autoscaler and other people, with bounds; and what must
//! hold.

use std::fmt::{self, Display};

use crate::{
    explore::{Model, Next},
    program::{Asked, Program},
    variant::{Counts, Existence, Variant},
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
    /// Set the mark, uid as precondition.
    Mark,
    /// Delete the Machine, uid as precondition.
    Delete,
    /// Take the entry out of the log.
    Forget,
    /// Take the mark off, if it is still the one seen.
    Unmark,
    /// Take an entry out of the log whose Machine was to have no Node and has one.
    TakeBack,
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
    /// DeleteNodes of so many placeholders comes to a copy, which views the group and lists the Machines.
    AskPlaces(usize, i8),
    /// A copy counts the placeholders, or counts them again.
    Count(usize),
    /// A copy lowers the size for so many placeholders; whether the answer is lost.
    LowerPlaces(usize, i8, bool),
    /// A copy finds what became of its write whose answer was lost.
    ClearUp(usize),
    /// The Node of a Machine that is being deleted is gone.
    LoseNode(usize),
    /// An entry is taken back whose Machine was to have no Node and has one.
    TakeBackJoined(Option<usize>, usize),
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
            Self::AskPlaces(copy, count) => write!(
                formatter,
                "DeleteNodes of {count} placeholders to copy {}, which views the group and lists the Machines",
                copy + 1
            ),
            Self::Count(copy) => write!(formatter, "copy {} counts the placeholders", copy + 1),
            Self::LowerPlaces(copy, count, is_lost) => {
                let answer = if *is_lost { ", and the answer is lost" } else { "" };
                write!(formatter, "copy {} lowers the size by {count} for placeholders{answer}", copy + 1)
            }
            Self::ClearUp(copy) => write!(formatter, "copy {} looks at what became of its write", copy + 1),
            Self::LoseNode(machine) => write!(formatter, "the Node of {} is gone", one(machine)),
            Self::TakeBackJoined(copy, machine) => {
                write!(formatter, "{} finds that {} has joined, and takes it out of the log", who(copy), one(machine))
            }
            Self::SendMark(machine) => write!(formatter, "a mark of {} is sent and has no answer", one(machine)),
            Self::LateMark(machine) => write!(formatter, "that mark of {} lands", one(machine)),
            Self::SendUnmark(machine) => {
                let machine = one(machine);
                write!(formatter, "a finisher finds no entry for the mark of {machine}, and sends its taking off")
            }
            Self::Finish(call, machine) => {
                let machine = one(machine);
                match call {
                    Finish::Mark => write!(formatter, "a finisher marks {machine}"),
                    Finish::Delete => write!(formatter, "a finisher deletes {machine}"),
                    Finish::Forget => write!(formatter, "a finisher takes {machine} out of the log"),
                    Finish::TakeBack => {
                        write!(formatter, "a finisher finds that {machine} has joined, and takes it out of the log")
                    }
                    Finish::Unmark => write!(formatter, "a finisher takes the mark off {machine}"),
                }
            }
            Self::Crash(copy) => write!(formatter, "copy {} is killed and starts again", copy + 1),
            Self::Sync(size) => write!(formatter, "the MachineDeployment controller sets the MachineSet to {size}"),
            Self::Reconcile { size, deleted, created, is_without_error } => {
                let end = if *is_without_error { "" } else { ", and ends with an error" };
                write!(
                    formatter,
                    "the MachineSet controller sees size {size}, deletes [{deleted}], creates [{created}]{end}"
                )
            }
            Self::StopDeleting => formatter.write_str("the MachineSet controller ends with an error"),
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

    fn next(&self, before: &World, step: Step, mut world: World, is_certain: bool) -> Next<Self> {
        // The MachineSet controller says so when it would need more Machines than the model has.
        let is_within = world.replicas >= 0;
        if self.program().outdates_caches(before, &world) {
            world.outdate_caches();
        }
        if self.bounds.is_bare {
            Program::show_at_once(&mut world, self.bounds.lag);
        }
        self.program().note_followed(&mut world);
        world.note_past(self.bounds.lag);
        world.forget_idle_facts();
        let counts_all = self.rule.existence != Existence::CacheThatIsFarEnough || self.rule.counts == Counts::ByCache;
        world.forget_pasts(counts_all);
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
                    for past in self.program().views_of(world, named) {
                        let mut then = *world;
                        then.budget.deletes -= 1;
                        then.ledger.named = then.ledger.named | named;
                        let never_joined = named & world.living() & Set::of(|one| !world.machines[one].has_node);
                        self.program().view(&mut then, copy, Asked { named, never_joined, is_soft: false }, past);
                        found(Step::Ask(copy, named, past != world.pasts.last()), then);
                    }
                }
            }
            if world.budget.decreases > 0 {
                self.decreases(world, copy, found);
            }
            if world.budget.placeholders > 0 {
                for count in 1..=self.bounds.batch {
                    self.program().ask_places(world, copy, count, found);
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

    /// DecreaseTargetSize chooses the first Machine that the cache has alive and without a Node.
    fn decreases(&self, world: &World, copy: usize, found: &mut dyn FnMut(Step, World)) {
        let has_joined = Set::of(|machine| world.machines[machine].has_node);
        for seen in world.pasts.all() {
            let pending = seen.alive.without(seen.with_node | has_joined | world.logged());
            let Some(machine) = pending.iter().next() else { continue };
            // What it chose is read where the cache isn't enough.
            for past in self.program().views_of(world, Set::one(machine)) {
                let mut then = *world;
                then.budget.decreases -= 1;
                let named = Set::one(machine);
                self.program().view(&mut then, copy, Asked { named, never_joined: named, is_soft: true }, past);
                found(Step::AskLess(copy, machine, past != world.pasts.last()), then);
            }
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
        let hanging = Set::of(|machine| world.machines[machine].life == Life::Deleting);
        for machine in hanging.iter().filter(|machine| self.bounds.loses_nodes && world.machines[*machine].has_node) {
            let mut then = *world;
            then.machines[machine].has_node = false;
            found(Step::LoseNode(machine), then);
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
        World::of(self.bounds.nodes, self.bounds.pending, self.bounds.missing, self.bounds.budget)
    }

    fn steps(&self, state: &World, found: &mut dyn FnMut(Next<Self>)) {
        let program = self.program();
        let mut certain = |step, world| found(self.next(state, step, world, true));
        program.steps(state, &mut certain);
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
