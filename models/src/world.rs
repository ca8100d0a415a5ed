//! One moment of the model: the objects at the API server, what the controllers have not seen of them yet, what the
//! copies of the program keep in memory, and what a checker must remember. No rule is decided here.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;

/// The number of Machines there can ever be, replacements included.
pub const SLOTS: usize = 7;

/// A set of Machines, one bit each.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Set(pub u8);

impl Set {
    /// The set of one Machine.
    #[must_use]
    pub fn one(machine: usize) -> Self {
        Self(1 << machine)
    }
    /// Those for which `is_in` holds.
    pub fn of(is_in: impl Fn(usize) -> bool) -> Self {
        (0..SLOTS).filter(|machine| is_in(*machine)).fold(Self(0), |set, machine| set | Self::one(machine))
    }
    /// Returns true if it holds the Machine.
    #[must_use]
    pub fn has(self, machine: usize) -> bool {
        self.0 & (1 << machine) != 0
    }
    /// Returns true if it is empty.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
    /// The first `count` of it.
    #[must_use]
    pub fn first(self, count: i8) -> Self {
        let count = usize::try_from(count).unwrap_or_default();
        self.iter().take(count).fold(Self(0), |set, machine| set | Self::one(machine))
    }
    /// The number of Machines it holds.
    #[must_use]
    pub fn len(self) -> i8 {
        i8::try_from(self.0.count_ones()).unwrap_or(i8::MAX)
    }
    /// Those that `other` lacks.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
    /// Each Machine in it.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..SLOTS).filter(move |machine| self.has(*machine))
    }
}

impl std::ops::BitOr for Set {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl std::ops::BitAnd for Set {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl std::fmt::Display for Set {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.iter().map(name).collect();
        formatter.write_str(&names.join(", "))
    }
}

/// The name of a Machine in traces: a, b, c.
#[must_use]
pub fn name(machine: usize) -> String {
    char::from_digit(u32::try_from(machine).unwrap_or_default() + 10, 36).map(String::from).unwrap_or_default()
}

/// A list of at most `N` values; a further one pushes the oldest out, which bounds how far a view lags behind.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Few<T, const N: usize> {
    len: u8,
    items: [T; N],
}

impl<T: Copy + Default, const N: usize> Few<T, N> {
    /// A list of one value.
    #[must_use]
    pub fn of(first: T) -> Self {
        let mut items = [T::default(); N];
        items[0] = first;
        Self { len: 1, items }
    }
    /// The values, oldest first.
    #[must_use]
    pub fn all(&self) -> &[T] {
        &self.items[..usize::from(self.len)]
    }
    /// The values, to change them.
    pub fn all_mut(&mut self) -> &mut [T] {
        &mut self.items[..usize::from(self.len)]
    }
    /// The newest value.
    #[must_use]
    pub fn last(&self) -> T {
        self.all().last().copied().unwrap_or_default()
    }
    /// Takes the `count` oldest away.
    pub fn drop_oldest(&mut self, count: usize) {
        let kept = usize::from(self.len).saturating_sub(count);
        self.items.copy_within(count..count + kept, 0);
        self.items[kept..].fill(T::default());
        self.len = u8::try_from(kept).unwrap_or_default();
    }
    /// Adds a value. To keep to `limit`, the oldest but the first goes.
    pub fn push_after_first(&mut self, value: T, limit: usize) {
        let first = self.items[0];
        if self.push(value, limit) > 0 {
            self.items[0] = first;
        }
    }
    /// Adds a value; says how many were pushed out to keep to `limit`.
    pub fn push(&mut self, value: T, limit: usize) -> usize {
        let pushed_out = (usize::from(self.len) + 1).saturating_sub(limit.clamp(1, N));
        self.drop_oldest(pushed_out);
        self.items[usize::from(self.len)] = value;
        self.len += 1;
        pushed_out
    }
}

/// The life of a Machine.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq, PartialOrd)]
pub enum Life {
    /// Not created yet.
    #[default]
    Unborn,
    /// There.
    Alive,
    /// Its deletionTimestamp is set; a MachineSet still counts it.
    Deleting,
    /// No longer there.
    Gone,
}

/// A Machine. Its name is never used again, so that it stands for the uid as well.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Machine {
    /// Its life.
    pub life: Life,
    /// The ticket in its delete-machine annotation, or 0.
    pub mark: u8,
    /// True if it has a Node.
    pub has_node: bool,
}

impl Machine {
    /// Returns true if the API server still has it.
    #[must_use]
    pub fn exists(&self) -> bool {
        matches!(self.life, Life::Alive | Life::Deleting)
    }
}

/// The progress of a logged Machine's deletion.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Phase {
    /// It isn't in the log.
    #[default]
    None,
    /// Its deletion is decided; the size doesn't say so yet.
    Wanted,
    /// The size is lowered by it.
    Lowered,
}

/// A Machine's entry in the log.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Entry {
    /// The progress of the deletion.
    pub phase: Phase,
    /// The number of its acceptance; the mark carries the same.
    pub ticket: u8,
    /// True if it only steers which Machine a smaller target size takes, and need not go.
    pub is_soft: bool,
    /// The Machine was given up as one that never joined: it must have no Node when it is marked. Soft entries are so.
    pub never_joined: bool,
    /// The Machine was being deleted without a Node, and was named as a placeholder.
    pub is_placeholder: bool,
}

/// A MachineDeployment as its controller sees it.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Deployment {
    /// spec.replicas.
    pub replicas: i8,
    /// The log's entries whose size is lowered.
    pub lowered: Set,
    /// The Machine picture in `seen` that was the newest when it was written, by its place.
    pub since: u8,
}

/// A MachineSet, with what was copied from its MachineDeployment.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct MachineSet {
    /// The values that were copied.
    pub copied: Deployment,
    /// metadata.generation, counted from the oldest version that is kept.
    pub generation: u8,
}

/// A picture of all Machines, as the MachineSet controller's cache has it.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Picture {
    /// Those that are there, deleting ones included.
    pub existing: Set,
    /// Those that are being deleted.
    pub deleting: Set,
    /// Those with the delete-machine annotation.
    pub marked: Set,
    /// Those with a Node.
    pub with_node: Set,
}

impl Picture {
    /// Of these Machines.
    #[must_use]
    pub fn of(machines: &[Machine; SLOTS]) -> Self {
        let existing = Set::of(|machine| machines[machine].exists());
        Self {
            existing,
            deleting: Set::of(|machine| machines[machine].life == Life::Deleting),
            marked: existing & Set::of(|machine| machines[machine].mark != 0),
            with_node: Set::of(|machine| machines[machine].life == Life::Alive && machines[machine].has_node),
        }
    }
}

/// All Machines at one moment, as the program's cache may have them.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Past {
    /// Those that are there and not being deleted.
    pub alive: Set,
    /// Those that are being deleted.
    pub deleting: Set,
    /// Those of them with a Node.
    pub with_node: Set,
}

impl Past {
    /// The present.
    #[must_use]
    pub fn of(machines: &[Machine; SLOTS]) -> Self {
        Self {
            alive: Set::of(|machine| machines[machine].life == Life::Alive),
            deleting: Set::of(|machine| machines[machine].life == Life::Deleting),
            with_node: Set::of(|machine| machines[machine].has_node),
        }
    }

    /// These Machines as it shows them.
    #[must_use]
    pub fn show(self, machines: &[Machine; SLOTS]) -> [Machine; SLOTS] {
        let mut shown = *machines;
        for (index, machine) in shown.iter_mut().enumerate() {
            machine.life = match machine.life {
                _ if self.alive.has(index) => Life::Alive,
                _ if self.deleting.has(index) => Life::Deleting,
                Life::Gone => Life::Gone,
                Life::Unborn | Life::Alive | Life::Deleting => Life::Unborn,
            };
        }
        shown
    }

    /// The same, with these Machines as they are in `now`.
    fn with(self, machines: Set, now: Self) -> Self {
        let mix = |then: Set, now: Set| then.without(machines) | (now & machines);
        Self {
            alive: mix(self.alive, now.alive),
            deleting: mix(self.deleting, now.deleting),
            with_node: mix(self.with_node, now.with_node),
        }
    }
}

/// The state of a copy of the program.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum At {
    /// No command.
    #[default]
    Idle,
    /// It has seen the MachineDeployment, and then each named Machine.
    Viewed,
    /// Its named Machines are in the log.
    Logged,
    /// The size write was refused for good.
    TakingBack,
    /// It is to count which replicas have no Machine.
    Counting,
    /// It has one half of what it counts by: the Machines, or the MachineDeployment.
    HalfCounted,
    /// It is to lower the size for replicas that have no Machine.
    Counted,
}

/// The memory of one copy of the program, which a crash takes away.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Memory {
    /// Its state.
    pub at: At,
    /// The Machines that its command names.
    pub named: Set,
    /// Of these, those it is going to log (when viewed), or has marked (afterwards).
    pub done: Set,
    /// Of the named ones, those that it gives up as Machines that never joined.
    pub never_joined: Set,
    /// True if its command only lowers the target size.
    pub is_soft: bool,
    /// True if one of those it is going to log is being deleted, and lowers the size by what was counted.
    pub has_counted: bool,
    /// True if the MachineDeployment's generation is still the one viewed.
    pub is_fresh: bool,
    /// The log as viewed: a fingerprint of its entries, or for variants that compare values who is in it.
    pub viewed_log: u32,
    /// For variants that compare values: the size as viewed.
    pub viewed_replicas: Option<i8>,
    /// The placeholders that its command names.
    pub places: Places,
}

/// The memory of a command that names placeholders.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Places {
    /// The number it names, but for those that have entries by now.
    pub asked: i8,
    /// The size that it saw first, less those that have entries by now.
    pub first_size: i8,
    /// The number its next write lowers, or its last write may have lowered.
    pub to_lower: i8,
    /// The number by which it has lowered the size indeed.
    pub lowered: i8,
    /// True if its answer to the last write was lost.
    pub is_unknown: bool,
    /// True if a write has failed.
    pub has_failed: bool,
    /// The half that it has counted by.
    pub half: Count,
}

/// By what placeholders are counted.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Count {
    /// Machines that are alive, or are being deleted and have their Node.
    pub there: Set,
    /// Machines that are being deleted and have no Node.
    pub hanging: Set,
    /// Machines in the log.
    pub logged: Set,
    /// Of these, soft ones that are lowered: their Machines need not go.
    pub soft: Set,
    /// The number of wanted entries in the log.
    pub wanted: i8,
    /// The size.
    pub size: i8,
    /// A fingerprint of the log.
    pub log: u32,
}

/// The events that may still happen.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Budget {
    /// DeleteNodes, repeats included.
    pub deletes: u8,
    /// IncreaseSize by one.
    pub increases: u8,
    /// DecreaseTargetSize by one.
    pub decreases: u8,
    /// Crashes of a copy, in which its memory is lost.
    pub crashes: u8,
    /// Machines that someone else deletes.
    pub foreign_deletes: u8,
    /// Sizes that someone else raises or lowers by one.
    pub foreign_sizes: u8,
    /// Size writes that are refused for good.
    pub refusals: u8,
    /// Machines that get their Node.
    pub joins: u8,
    /// Reconciles of the MachineSet controller that end with an error, with some of their work done or none.
    pub errors: u8,
    /// Marks that are sent and land at any later time.
    pub late_marks: u8,
    /// DeleteNodes that name placeholders.
    pub placeholders: u8,
    /// Size writes for placeholders whose answer is lost.
    pub lost_answers: u8,
}

/// Writes of a copy that are on their way to the API server, while all else goes on.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct InFlight {
    /// A mark: of which Machine, with which ticket.
    pub mark: Option<(u8, u8)>,
    /// The taking off of a mark: of which Machine, and the mark that it tests.
    pub unmark: Option<(u8, u8)>,
}

/// The memory of the checker.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Ledger {
    /// Named by a command.
    pub named: Set,
    /// The command that named it was answered OK.
    pub accepted: Set,
    /// The size was lowered for it.
    pub paid: Set,
    /// The MachineSet controller chose it.
    pub chosen: Set,
    /// Someone else deleted it, or it went for someone else's smaller size.
    pub foreign: Set,
    /// Of these, those that a command had viewed and not logged yet.
    pub early: Set,
    /// Of these, those that went for someone else's smaller size.
    pub taken: Set,
    /// Those that need not have lowered the size, although their deletion is accepted: they went for another reason.
    pub excused: Set,
    /// The size as it should be.
    pub size: i8,
    /// Those that had a Node when they were marked, for an entry that gives up a Machine without one.
    pub joined_before: Set,
    /// Those that are alive and have left the log as soft entries, while their mark may still be seen.
    pub left_softly: Set,
    /// Those created since placeholders were counted whose smaller size is on its way.
    pub came: Set,
    /// The number of placeholders whose smaller size is on its way.
    pub places: i8,
    /// The number of them for which a Machine with a Node went, since another one had come into the place.
    pub places_missed: i8,
    /// The number of Machines with a Node that may still be chosen although nobody named them.
    pub others: i8,
    /// A rule that broke in the last step.
    pub fault: Option<Fault>,
}

/// A violation that a step can cause.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Fault {
    /// The size was lowered twice for one Machine.
    PaidTwice(u8),
    /// A Machine with a Node was chosen that nobody named.
    TookAnother(u8),
    /// The deletion of a Machine was accepted and it is gone, and the size wasn't lowered for it.
    NotCounted(u8),
    /// A Machine that had its Node before it was marked goes for an entry of one that never joined.
    TookJoined(u8),
    /// The size was lowered for more placeholders than were named.
    TooManyPlaces,
    /// The size was lowered below min.
    BelowMin,
}

/// One moment.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct World {
    /// The Machines.
    pub machines: [Machine; SLOTS],
    /// The MachineDeployment's spec.replicas.
    pub replicas: i8,
    /// The MachineDeployment's log.
    pub log: [Entry; SLOTS],
    /// The last ticket of each Machine.
    pub tickets: [u8; SLOTS],
    /// The MachineDeployment from the version that its controller saw last.
    pub deployments: Few<Deployment, 4>,
    /// The MachineSet from the version that its controller saw last.
    pub sets: Few<MachineSet, 4>,
    /// The Machines from the picture that the MachineSet controller saw last.
    pub seen: Few<Picture, 4>,
    /// The Machines at moments that the program's caches may show, the present being the last.
    pub pasts: Few<Past, 4>,
    /// Machines that have left the log since the first of these moments.
    pub left_log: Set,
    /// True if no reconcile of the generation that the MachineSet controller saw last has ended without an error.
    /// Unset where the rule doesn't ask.
    pub is_unacted: bool,
    /// Writes that may land late.
    pub in_flight: InFlight,
    /// The Machines that the MachineSet controller is deleting one by one, and the MachineSet's version for which it does.
    pub deciding: Option<(u8, Set)>,
    /// Logged Machines whose smaller size has reached the MachineSet controller, as a copy may have seen.
    pub followed: Set,
    /// The copies of the program.
    pub copies: [Memory; 2],
    /// The events that may still happen.
    pub budget: Budget,
    /// The memory of the checker.
    pub ledger: Ledger,
}

impl World {
    /// A group with `nodes` Machines that have a Node, `pending` that have none yet, and `missing` replicas without a
    /// Machine.
    #[must_use]
    pub fn of(nodes: usize, pending: usize, missing: usize, budget: Budget) -> Self {
        let mut machines = [Machine::default(); SLOTS];
        for (index, machine) in machines.iter_mut().take(nodes + pending).enumerate() {
            *machine = Machine { life: Life::Alive, mark: 0, has_node: index < nodes };
        }
        let replicas = i8::try_from(nodes + pending + missing).unwrap_or_default();
        let deployment = Deployment { replicas, lowered: Set(0), since: 0 };
        Self {
            machines,
            replicas,
            log: [Entry::default(); SLOTS],
            tickets: [0; SLOTS],
            deployments: Few::of(deployment),
            sets: Few::of(MachineSet { copied: deployment, generation: 0 }),
            seen: Few::of(Picture::of(&machines)),
            pasts: Few::of(Past::of(&machines)),
            left_log: Set(0),
            is_unacted: false,
            in_flight: InFlight::default(),
            deciding: None,
            followed: Set(0),
            copies: [Memory::default(); 2],
            budget,
            ledger: Ledger { size: replicas, ..Ledger::default() },
        }
    }

    /// A fingerprint of the log's whole value.
    #[must_use]
    pub fn log_print(&self) -> u32 {
        let print = FixedState::with_seed(3).hash_one(self.log);
        u32::try_from(print >> 32).unwrap_or_default()
    }

    /// The Machines in the log.
    #[must_use]
    pub fn logged(&self) -> Set {
        Set::of(|machine| self.log[machine].phase != Phase::None)
    }

    /// True if a command counts placeholders, or is about to lower the size for them.
    #[must_use]
    pub fn is_counting(&self) -> bool {
        self.copies.iter().any(|memory| matches!(memory.at, At::Counting | At::HalfCounted | At::Counted))
    }

    /// True if the MachineSet controller has seen the last size, and has no Machine too many.
    fn is_settled(&self) -> bool {
        let is_seen = self.deployments.all().len() == 1 && self.sets.all().len() == 1 && self.deciding.is_none();
        is_seen && self.seen.last().existing.len() <= self.replicas
    }

    /// The Machines that are there and not being deleted.
    #[must_use]
    pub fn living(&self) -> Set {
        Set::of(|machine| self.machines[machine].life == Life::Alive)
    }

    /// The Machines in the log in this phase.
    #[must_use]
    pub fn in_phase(&self, phase: Phase) -> Set {
        Set::of(|machine| self.log[machine].phase == phase)
    }

    /// Returns true if the Machine has the mark of its entry.
    #[must_use]
    pub fn is_marked(&self, machine: usize) -> bool {
        self.machines[machine].mark != 0 && self.machines[machine].mark == self.log[machine].ticket
    }

    /// After Machines have changed: a picture more for the MachineSet controller to see.
    pub fn machines_changed(&mut self, lag: usize) {
        let picture = Picture::of(&self.machines);
        if self.seen.last() != picture {
            let pushed_out = u8::try_from(self.seen.push(picture, lag)).unwrap_or_default();
            self.forget_pictures(pushed_out);
        }
    }

    /// Keeps `since` right when the oldest pictures go.
    pub fn forget_pictures(&mut self, count: u8) {
        for deployment in self.deployments.all_mut() {
            deployment.since = deployment.since.saturating_sub(count);
        }
        for set in self.sets.all_mut() {
            set.copied.since = set.copied.since.saturating_sub(count);
        }
    }

    /// After spec or log of the MachineDeployment have changed: a version more for its controller to see, and views
    /// that are no longer fresh.
    pub fn deployment_changed(&mut self, lag: usize) {
        let lowered = self.in_phase(Phase::Lowered);
        let last = self.deployments.last();
        if last.replicas != self.replicas {
            self.generation_changed();
        }
        if (last.replicas, last.lowered) != (self.replicas, lowered) {
            let since = u8::try_from(self.seen.all().len() - 1).unwrap_or_default();
            self.deployments.push_after_first(Deployment { replicas: self.replicas, lowered, since }, lag);
        }
    }

    fn generation_changed(&mut self) {
        self.outdate_caches();
        for copy in &mut self.copies {
            copy.is_fresh = false;
            // It will be decided again, unless values are compared.
            if copy.at == At::Viewed && copy.viewed_replicas.is_none() {
                copy.done = Set(0);
            }
        }
    }

    /// Takes an entry out of the log.
    pub fn leave_log(&mut self, machine: usize) {
        self.log[machine] = Entry::default();
        self.left_log = self.left_log | Set::one(machine);
        self.ledger.joined_before = self.ledger.joined_before.without(Set::one(machine));
    }

    /// A Machine begins to be deleted, for its entry if it has one.
    pub fn begin_deleting(&mut self, machine: usize) {
        self.machines[machine].life = Life::Deleting;
        if self.ledger.joined_before.has(machine) {
            self.ledger.fault = Some(Fault::TookJoined(u8::try_from(machine).unwrap_or_default()));
        }
    }

    /// From now on caches that haven't come so far are out of date.
    pub fn outdate_caches(&mut self) {
        self.pasts = Few::of(Past::of(&self.machines));
        self.left_log = Set(0);
    }

    /// A moment more that a cache may show.
    pub fn note_past(&mut self, lag: usize) {
        let now = Past::of(&self.machines);
        if self.pasts.last() != now {
            self.pasts.push_after_first(now, lag);
        }
    }

    /// Forgets of the past what isn't asked for: where nothing will be viewed any more; and, unless all of it counts, how
    /// those Machines were that are in the log or have left it.
    pub fn forget_pasts(&mut self, counts_all: bool) {
        let now = self.pasts.last();
        let is_viewed = self.budget.deletes > 0
            || (counts_all && (self.budget.placeholders > 0 || self.is_counting()))
            || self.budget.decreases > 0
            || self.copies.iter().any(|memory| memory.at == At::Viewed);
        let unasked = if counts_all { Set(0) } else { self.logged() | self.left_log };
        let mut kept = Few::of(now);
        if is_viewed {
            kept = Few::of(self.pasts.all()[0].with(unasked, now));
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

    /// Notes for which entries the MachineSet controller now acts on the smaller size.
    pub fn note_followed(&mut self, is_followed: bool) {
        if is_followed {
            self.followed = self.followed | (self.sets.last().copied.lowered & self.in_phase(Phase::Lowered));
        }
    }

    /// Forgets what can't matter any more, so that states that differ in nothing else are one.
    pub fn forget_idle_facts(&mut self) {
        let shown_marked = self.seen.all().iter().fold(Set(0), |set, picture| set | picture.marked);
        self.ledger.left_softly = self.ledger.left_softly & shown_marked & self.living();
        if !self.is_counting() && self.is_settled() {
            (self.ledger.came, self.ledger.places, self.ledger.places_missed) = (Set(0), 0, 0);
        }
        // A write that lands on nothing has no effect.
        let is_over = |write: &(u8, u8)| !self.machines[usize::from(write.0)].exists();
        let InFlight { mark, unmark } = self.in_flight;
        self.in_flight =
            InFlight { mark: mark.filter(|mark| !is_over(mark)), unmark: unmark.filter(|unmark| !is_over(unmark)) };
        let held = self.copies.iter().fold(self.logged(), |held, memory| held | memory.named);
        let over = Set::of(|machine| self.machines[machine].life == Life::Gone).without(held);
        let uncounted = (over & self.ledger.accepted).without(self.ledger.paid | self.ledger.excused);
        if let Some(machine) = uncounted.iter().next() {
            self.ledger.fault = Some(Fault::NotCounted(u8::try_from(machine).unwrap_or_default()));
        }
        self.ledger.chosen = self.ledger.chosen.without(over);
        self.ledger.taken = self.ledger.taken.without(over);
        self.ledger.foreign = self.ledger.foreign.without(over);
        self.ledger.early = self.ledger.early.without(over);
        // They were promised to go, and are gone.
        self.ledger.accepted = self.ledger.accepted.without(over);
        if self.budget.deletes == 0 {
            self.ledger.named = Set(0);
            self.ledger.paid = self.ledger.paid.without(over);
            self.ledger.excused = self.ledger.excused.without(over);
            over.iter().for_each(|machine| self.tickets[machine] = 0);
        }
    }
}
