//! The state of the model at one moment: the objects at the API server, the versions that controllers haven't seen yet,
//! the memory of the copies of the program, and that of the checker. No rule may be decided here.

mod ledger;
mod memory;
mod objects;
mod ring;
mod running;
mod set;
mod tally;

use std::hash::BuildHasher;

use foldhash::fast::FixedState;

pub use self::{
    ledger::{Fault, Ledger},
    memory::{Listing, Memory},
    objects::{CacheView, Deployment, Entry, Life, Machine, MachineSet, Past, Phase},
    ring::Ring,
    running::{Running, Stage},
    set::{SLOTS, Set, name},
    tally::Tally,
};

/// The number of times that each event may still happen.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Budget {
    /// DeleteNodes requests, retries included.
    pub deletes: u8,
    /// IncreaseSize requests by one.
    pub increases: u8,
    /// DecreaseTargetSize requests by one.
    pub decreases: u8,
    /// Crashes of a copy, which lose its memory.
    pub crashes: u8,
    /// Machines that somebody else deletes.
    pub foreign_deletes: u8,
    /// Sizes that somebody else raises or lowers by one.
    pub foreign_sizes: u8,
    /// Size writes that are refused for good.
    pub refusals: u8,
    /// Machines that get their Node.
    pub joins: u8,
    /// Reconciles of the MachineSet controller that end with an error, with some of their work done or none.
    pub errors: u8,
    /// Marks that are sent and applied at any later time.
    pub late_marks: u8,
    /// DeleteNodes requests that name placeholders.
    pub placeholders: u8,
    /// Writes of the group whose response is lost, whether applied or not.
    pub lost_answers: u8,
    /// Choices of a MachinePool's provider against the marks.
    pub strays: u8,
    /// DeleteNodes requests that name both Machines and placeholders.
    pub mixed: u8,
    /// Callers that leave while their command is carried out.
    pub leaves: u8,
}

/// The writes that are on their way to the API server, while everything else goes on.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct InFlight {
    /// A mark: the Machine, and the ticket.
    pub mark: Option<(u8, u8)>,
    /// The removal of a mark: the Machine, and the mark that it tests.
    pub unmark: Option<(u8, u8)>,
}

/// The state at one moment.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct World {
    /// The Machines.
    pub machines: [Machine; SLOTS],
    /// The MachineDeployment's `spec.replicas`.
    pub replicas: i8,
    /// The MachineDeployment's log.
    pub log: [Entry; SLOTS],
    /// The writer of the last size if that is a copy whose command goes on, otherwise 0.
    pub sized_by: u8,
    /// The versions of the MachineDeployment, from the one that its controller saw last.
    pub deployments: Ring<Deployment, 4>,
    /// The versions of the MachineSet, and during a rollout of the old one, from the one that its controller saw last.
    pub sets: [Ring<MachineSet, 4>; 2],
    /// The snapshots of the Machines, from the one that the MachineSet controller saw last.
    pub seen: Ring<CacheView, 4>,
    /// The Machines at the moments that the program's caches may show; the last one is the present.
    pub pasts: Ring<Past, 4>,
    /// The Machines that have left the log since the first of these moments.
    pub left_log: Set,
    /// True if no reconcile of the generation that the MachineSet controller saw last has ended without an error. Not
    /// set if the rule doesn't ask for it.
    pub is_unacted: bool,
    /// The writes that may be applied late.
    pub in_flight: InFlight,
    /// The version of the MachineSet for which its controller is deleting Machines one by one, and the Machines left.
    pub deciding: Option<(u8, Set)>,
    /// The logged Machines whose smaller size has reached the MachineSet controller, as a copy may have seen.
    pub followed: Set,
    /// The copies of the program.
    pub copies: [Memory; 2],
    /// The Machines whose Node each copy's watch of the Nodes shows. Not set if nodeRefs don't lag behind.
    pub shown_nodes: [Set; 2],
    /// The events that may still happen.
    pub budget: Budget,
    /// The memory of the checker.
    pub ledger: Ledger,
    /// What has happened so far, if rules are compared.
    pub tally: Tally,
}

impl World {
    /// Creates a group with `nodes` Machines that have a Node, `pending` Machines that have none yet, and `missing`
    /// replicas without a Machine. With `old` Machines of an old MachineSet, there is one Machine more than the size
    /// says.
    #[must_use]
    pub fn of((nodes, pending, missing, old): (usize, usize, usize, usize), budget: Budget) -> Self {
        let mut machines = [Machine::default(); SLOTS];
        for (index, machine) in machines.iter_mut().take(nodes + pending).enumerate() {
            let has_node = index < nodes;
            *machine = Machine { life: Life::Alive, has_node, has_ref: has_node, ..Machine::default() };
        }
        for machine in machines.iter_mut().skip(nodes + pending).take(old) {
            *machine = Machine { life: Life::Alive, has_node: true, has_ref: true, is_old: true, mark: 0 };
        }
        let replicas = i8::try_from(nodes + pending + missing + old.saturating_sub(1)).unwrap_or_default();
        let set = |copied, size: usize| {
            let size = i8::try_from(size).unwrap_or_default();
            MachineSet { copied, size, ..MachineSet::default() }
        };
        let deployment = Deployment { replicas, ..Deployment::default() };
        Self {
            machines,
            replicas,
            log: [Entry::default(); SLOTS],
            sized_by: 0,
            deployments: Ring::of(deployment),
            sets: [
                Ring::of(set(deployment, nodes + pending + missing)),
                if old > 0 { Ring::of(set(deployment, old)) } else { Ring::default() },
            ],
            seen: Ring::of(CacheView::of(&machines)),
            pasts: Ring::of(Past::of(&machines)),
            left_log: Set(0),
            is_unacted: false,
            in_flight: InFlight::default(),
            deciding: None,
            followed: Set(0),
            copies: [Memory::default(); 2],
            shown_nodes: [Set(0); 2],
            budget,
            ledger: Ledger { size: replicas, ..Ledger::default() },
            tally: Tally::default(),
        }
    }

    /// Returns a fingerprint of the whole log.
    #[must_use]
    pub(crate) fn log_print(&self) -> u32 {
        let print = FixedState::with_seed(3).hash_one(self.log);
        u32::try_from(print >> 32).unwrap_or_default()
    }

    /// Returns the Machines in the log.
    #[must_use]
    pub fn logged(&self) -> Set {
        Set::of(|machine| self.log[machine].phase != Phase::None)
    }

    /// Returns true if a command counts placeholders, or is about to lower the size for them.
    #[must_use]
    pub(crate) fn is_counting(&self) -> bool {
        self.copies.iter().any(|memory| memory.is_counting)
    }

    /// Returns true if the MachineSet controller has seen the last size, has no Machine too many, and no smaller size
    /// is decided.
    fn is_settled(&self) -> bool {
        let are_seen = self.sets.iter().all(|set| set.all().len() <= 1);
        let is_seen = self.deployments.all().len() == 1 && are_seen && self.deciding.is_none();
        is_seen && self.seen.last().existing.len() <= self.replicas && self.in_phase(Phase::Wanted).is_empty()
    }

    /// Returns true if a size is on its way that may be meant for a Machine.
    pub(crate) fn is_awaited(&self, machine: usize) -> bool {
        self.deployments.all().len() > 1
            || self.sets.iter().any(|set| set.all().len() > 1)
            || self.copies.iter().any(|memory| memory.running.ours.has(machine))
    }

    /// Returns the Machines that exist and aren't being deleted.
    #[must_use]
    pub fn living(&self) -> Set {
        Set::of(|machine| self.machines[machine].life == Life::Alive)
    }

    /// Returns the Machines of hard wanted entries that were alive when they were logged, and aren't any more.
    #[must_use]
    pub(crate) fn deleted_elsewhere(&self) -> Set {
        let was_alive = |machine: usize| !self.log[machine].is_soft && !self.log[machine].is_counted;
        self.in_phase(Phase::Wanted).without(self.living()) & Set::of(was_alive)
    }

    /// Returns the Machines of wanted entries that go by themselves and whose places are filled: the size, less all
    /// other wanted entries, leaves no place for them beyond the Machines that stay.
    #[must_use]
    pub fn filled(&self, wanted: Set) -> Set {
        let going = wanted & self.deleted_elsewhere();
        let size = self.replicas - self.in_phase(Phase::Wanted).without(going).len();
        going.without(going.first((size - self.staying().len()).max(0)))
    }

    /// Returns the Machines that are alive and aren't in the log.
    #[must_use]
    pub fn staying(&self) -> Set {
        self.living().without(self.logged())
    }

    /// Returns the Machines in the log in this phase.
    #[must_use]
    pub(crate) fn in_phase(&self, phase: Phase) -> Set {
        Set::of(|machine| self.log[machine].phase == phase)
    }

    /// Adds a snapshot for the MachineSet controller, after Machines have changed.
    pub(crate) fn machines_changed(&mut self, lag: usize) {
        let view = CacheView::of(&self.machines);
        if self.seen.last() != view {
            let pushed_out = u8::try_from(self.seen.push(view, lag)).unwrap_or_default();
            self.forget_views(pushed_out);
        }
    }

    /// Adjusts `since` when the oldest snapshots are dropped.
    pub(crate) fn forget_views(&mut self, count: u8) {
        for deployment in self.deployments.all_mut() {
            deployment.since = deployment.since.saturating_sub(count);
        }
        for set in self.sets.iter_mut().flat_map(Ring::all_mut) {
            set.copied.since = set.copied.since.saturating_sub(count);
        }
    }

    /// Adds a version for the MachineDeployment controller after the spec or the log has changed, and outdates the
    /// views of commands.
    pub(crate) fn deployment_changed(&mut self, lag: usize) {
        let lowered = self.in_phase(Phase::Lowered);
        let last = self.deployments.last();
        if last.replicas != self.replicas {
            self.generation_changed();
        }
        if (last.replicas, last.lowered) != (self.replicas, lowered) {
            let since = u8::try_from(self.seen.all().len() - 1).unwrap_or_default();
            self.deployments
                .push_after_first(Deployment { replicas: self.replicas, lowered, stale: Set(0), since }, lag);
        }
    }

    fn generation_changed(&mut self) {
        for copy in self.copies.iter_mut().filter(|copy| !copy.is_idle()) {
            copy.behind = (copy.behind + 1).min(3);
        }
    }

    /// Notes that a Machine changes, so that versions of it that were read are outdated.
    pub fn touch(&mut self, machine: usize) {
        self.copies.iter_mut().for_each(|copy| copy.machine_changed(machine));
    }

    /// Returns a ticket that is unused.
    #[must_use]
    pub(crate) fn new_ticket(&self) -> u8 {
        let logged = self.log.iter().map(|entry| entry.ticket);
        let marks = self.machines.iter().map(|machine| machine.mark);
        let known = self.copies.iter().flat_map(|copy| copy.tickets.all().iter().copied());
        let in_flight = self.in_flight.mark.iter().chain(&self.in_flight.unmark).map(|write| write.1);
        let used = logged.chain(marks).chain(known).chain(in_flight).fold(0_u64, |used, ticket| used | 1 << ticket);
        u8::try_from((used | 1).trailing_ones()).unwrap_or_default()
    }

    /// Numbers the tickets in order of appearance, so that states that differ in nothing else are equal.
    pub(crate) fn number_tickets(&mut self) {
        let (mut numbers, mut last) = ([0_u8; 64], 0);
        let mut number = |ticket: &mut u8| {
            if *ticket == 0 {
                return;
            }
            let number = &mut numbers[usize::from(*ticket)];
            if *number == 0 {
                last += 1;
                *number = last;
            }
            *ticket = *number;
        };
        self.log.iter_mut().for_each(|entry| number(&mut entry.ticket));
        self.machines.iter_mut().for_each(|machine| number(&mut machine.mark));
        self.in_flight.mark.iter_mut().chain(&mut self.in_flight.unmark).for_each(|write| number(&mut write.1));
        self.copies.iter_mut().flat_map(|copy| copy.tickets.all_mut()).for_each(number);
    }

    /// Removes an entry from the log.
    pub(crate) fn leave_log(&mut self, machine: usize) {
        self.log[machine] = Entry::default();
        self.left_log = self.left_log | Set::one(machine);
        self.ledger.joined_before = self.ledger.joined_before.without(Set::one(machine));
    }

    /// Begins to delete a Machine, for its entry if it has one.
    pub(crate) fn begin_deleting(&mut self, machine: usize) {
        self.touch(machine);
        self.note_deletion(machine);
        self.machines[machine].life = Life::Deleting;
        if self.ledger.joined_before.has(machine) {
            self.ledger.fault = Some(Fault::TookJoined(u8::try_from(machine).unwrap_or_default()));
        }
    }

    /// Outdates all caches that haven't reached this moment.
    pub(crate) fn outdate_caches(&mut self) {
        self.pasts = Ring::of(Past::of(&self.machines));
        self.left_log = Set(0);
    }

    /// Adds the present to the moments that a cache may show.
    pub(crate) fn note_past(&mut self, lag: usize) {
        let now = Past::of(&self.machines);
        if self.pasts.last() != now {
            self.pasts.push_after_first(now, lag);
        }
    }

    /// Returns true if a copy knows that a Machine has a Node: by the Machine's `nodeRef`, or by the copy's watch of
    /// the Nodes.
    #[must_use]
    pub(crate) fn knows_node(&self, copy: usize, machine: usize) -> bool {
        self.machines[machine].has_ref || self.shown_nodes[copy].has(machine)
    }

    /// Shows a Machine's Node to each copy's watch of the Nodes if every moment that a cache may show has it already:
    /// the watch adds nothing then.
    pub(crate) fn show_known_nodes(&mut self) {
        let there = Set::of(|machine| self.machines[machine].has_node);
        let known = self.pasts.all().iter().fold(there, |known, past| known & past.with_node);
        self.shown_nodes.iter_mut().for_each(|shown| *shown = (*shown & there) | known);
    }

    /// Sorts the copies, so that one order of them stands for both.
    pub(crate) fn sort_copies(&mut self) {
        let key = |copy: usize| {
            (self.copies[copy].is_idle(), self.copies[copy].held, self.copies[copy].running, self.shown_nodes[copy].0)
        };
        if key(0) > key(1) {
            self.copies.swap(0, 1);
            self.shown_nodes.swap(0, 1);
        }
    }

    /// Forgets past moments that nothing will view any more. Unless `counts_all`, it also forgets the past state of
    /// Machines that are in the log or have left it.
    pub(crate) fn forget_pasts(&mut self, counts_all: bool) {
        let now = self.pasts.last();
        let is_viewed = self.budget.deletes + self.budget.mixed > 0
            || (counts_all && (self.budget.placeholders > 0 || self.is_counting()))
            || self.budget.decreases > 0
            || self.copies.iter().any(|memory| memory.may_view);
        let unasked = if counts_all { Set(0) } else { self.logged() | self.left_log };
        let mut kept = Ring::of(now);
        if is_viewed {
            kept = Ring::of(self.pasts.all()[0].with(unasked, now));
            for past in &self.pasts.all()[1..] {
                let past = past.with(unasked, now);
                if kept.last() != past {
                    kept.push(past, 4);
                }
            }
        }
        self.pasts = kept;
        if kept.all().len() == 1 {
            self.left_log = Set(0);
        }
    }

    /// Forgets facts that can't matter any more, so that states that differ in nothing else are equal. A MachinePool's
    /// provider may see a size after entries for it have left the log.
    pub(crate) fn forget_idle_facts(&mut self, is_pool: bool) {
        let shown_marked = self.seen.all().iter().fold(Set(0), |set, view| set | view.marked);
        let shown_marked = if is_pool { Set(u8::MAX) } else { shown_marked };
        self.ledger.left_softly = self.ledger.left_softly & shown_marked & self.living();
        if !self.is_counting() && self.is_settled() {
            (self.ledger.came, self.ledger.places, self.ledger.places_missed) = (Set(0), 0, 0);
        }
        // A write to a Machine that is gone has no effect.
        let is_over = |write: &(u8, u8)| !self.machines[usize::from(write.0)].exists();
        let InFlight { mark, unmark } = self.in_flight;
        self.in_flight =
            InFlight { mark: mark.filter(|mark| !is_over(mark)), unmark: unmark.filter(|unmark| !is_over(unmark)) };
        let held = self.copies.iter().fold(self.logged(), |held, memory| held | memory.named | memory.joined);
        let over = Set::of(|machine| self.machines[machine].life == Life::Gone).without(held);
        let uncounted = (over & self.ledger.accepted).without(self.ledger.paid | self.ledger.excused);
        if let Some(machine) = uncounted.iter().next() {
            self.ledger.fault = Some(Fault::NotCounted(u8::try_from(machine).unwrap_or_default()));
        }
        self.ledger.chosen = self.ledger.chosen.without(over);
        self.ledger.unseen = self.ledger.unseen.without(over);
        self.ledger.strayed = self.ledger.strayed.without(over);
        self.ledger.taken = self.ledger.taken.without(over);
        self.ledger.foreign = self.ledger.foreign.without(over);
        self.ledger.early = self.ledger.early.without(over);
        // Their deletion was promised, and they are gone.
        self.ledger.accepted = self.ledger.accepted.without(over);
        if self.budget.deletes + self.budget.mixed == 0 {
            self.ledger.named = Set(0);
            self.ledger.paid = self.ledger.paid.without(over);
            self.ledger.excused = self.ledger.excused.without(over);
        }
    }
}
