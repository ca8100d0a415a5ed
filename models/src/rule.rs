//! The rule itself: what a copy of the program decides to do next, given what it sees. Pure functions of small
//! values; each step of the rule that can be left out is a field of [`Rule`], so that a test can show what it is for.

use crate::world::{Count, Entry, Life, Machine, Phase, Places, Set};

/// The steps of the rule. [`Rule::default`] has them all.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is one step of the rule, with it or without")]
pub struct Rule {
    /// Machines are logged as wanted before they are marked; else marks come first and one write logs and lowers.
    pub logs_first: bool,
    /// The precondition of a write to the MachineDeployment, so that nothing comes between.
    pub precondition: Precondition,
    /// The source by which a named Machine is known to be there, before the size is lowered for it.
    pub existence: Existence,
    /// Each entry has a ticket, and what a copy remembers of an entry is about that ticket only.
    pub has_tickets: bool,
    /// Machines are marked.
    pub marks: bool,
    /// Every copy carries forward what it finds wanted in the log, whoever wrote it.
    pub carries_on: bool,
    /// When the smaller size counts as having reached the MachineSet controller.
    pub follows: Follows,
    /// A lowered Machine that is alive after the MachineSet has followed is deleted directly.
    pub finishes: bool,
    /// That is done only when no other entry is on its way to the MachineSet.
    pub waits_for_others: bool,
    /// When an entry leaves the log.
    pub forgets: Forgets,
    /// Marks of ours that belong to no entry are taken off.
    pub cleans_marks: bool,
    /// The handling of a Machine that is being deleted when it is named for the first time.
    pub deleting: Deleting,
    /// The handling of a mark of ours that isn't the mark of its Machine's entry.
    pub other_marks: OtherMarks,
    /// The precondition of the patch that takes a mark off.
    pub unmark_tests: UnmarkTests,
    /// A Machine that is given up as one that never joined is marked only while it has no Node; else its entry is taken
    /// back.
    pub marks_only_unjoined: bool,
    /// A soft entry of a Machine that is alive stays until no more Machines are alive than the size says.
    pub soft_waits: bool,
    /// The source of the count before the size is lowered for placeholders.
    pub counts: Counts,
    /// The precondition of the write that lowers the size for placeholders.
    pub place_tests: PlaceTests,
    /// A lost answer to such a write is cleared up by who wrote the size last.
    pub knows_own_writes: bool,
    /// A Machine that was alive when it was logged and goes by itself before the size is lowered for it is counted then: it
    /// lowers the size only where no other Machine has come in its place.
    pub counts_going: bool,
}

/// The source by which replicas without a Machine are counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Counts {
    /// By the log and a fresh list of the Machines, at each decision.
    AtEachDecision,
    /// Likewise at the first decision; after a failed write what is asked is taken off what the size is.
    Once,
    /// By a cache of the Machines that may lag behind.
    ByCache,
    /// Without the log.
    WithoutLog,
    /// By a log whose lowered soft entries count as leaving.
    SoftAsLeaving,
}

/// The precondition of the write that lowers the size for placeholders.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PlaceTests {
    /// metadata.generation and the log, like all writes of the log.
    Group,
    /// The size; and the Machines are listed before the MachineDeployment is read.
    SizeAfterList,
    /// The size; and the Machines are listed after the MachineDeployment was viewed.
    Size,
}

/// A decision about placeholders.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Place {
    /// Success: there is nothing to do.
    Nothing,
    /// These are logged, as Machines that are being deleted and would be replaced.
    Log(Set),
    /// The size is lowered by as many.
    Lower(i8),
    /// A Machine has come into a place, or the size would be below min.
    Refused,
}

/// The handling of a mark of ours on a Machine whose entry has another ticket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OtherMarks {
    /// The Machine is marked again, with its entry's ticket.
    MarkedAgain,
    /// The mark is taken off, as one whose ticket isn't in the log.
    TakenOff,
}

/// The precondition of the patch that takes a mark off.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum UnmarkTests {
    /// The Machine's resourceVersion, as of before the log was read: it hasn't been marked since.
    Version,
    /// The mark's value, which a mark that lands late may have brought back.
    Value,
}

/// The handling of a Machine that is being deleted when it is named for the first time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Deleting {
    /// It lowers the size where a replacement would come else: while the size counts more Machines than are there to
    /// stay.
    LowersWhereReplaced,
    /// It always lowers the size.
    AlwaysLowers,
}

/// The source by which a named Machine is known to be there, before the size is lowered for it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Existence {
    /// By a cache that has come to where the MachineDeployment's present generation began, the log last gained an entry
    /// of a Machine that was being deleted, and a soft entry left it last. By a read where a named Machine has left the log since, or is being deleted.
    CacheThatIsFarEnough,
    /// The same, without the read where a named Machine has left the log.
    CacheOfWhatLeft,
    /// The same with a cache that may not have come to where the log gained such an entry.
    CacheBeforeEntries,
    /// The same with a cache that may not have come to where a soft entry left the log.
    CacheBeforeSoftEntriesLeft,
    /// By any cache.
    AnyCache,
    /// By the mark: what was there when it was marked lowers the size; what a copy finds gone without having marked it
    /// leaves the log without lowering.
    Mark,
    /// By nothing that comes later than the log: whatever is in the log lowers the size.
    Log,
}

/// The precondition of a write to the MachineDeployment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Precondition {
    /// metadata.generation and the log: neither spec nor log has been written since the view.
    Generation,
    /// The values of spec.replicas and of the log: they may have changed and changed back.
    Values,
    /// Nothing: the write replaces the log by the one viewed, with the new entries.
    Nothing,
}

/// The sign by which the MachineSet controller is taken to act on the smaller size.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Follows {
    /// The MachineSet carries the copied log with the entry lowered, and its controller has seen its generation: a
    /// reconcile of it has ended, with an error or without (the condition ScalingDown's observedGeneration).
    CopiedLogAndSeen,
    /// The MachineSet carries the copied log with the entry lowered, and a reconcile of its generation has ended without
    /// an error (status.observedGeneration since Cluster API 1.11).
    CopiedLogAndActed,
    /// The MachineSet carries the copied log with the entry lowered.
    CopiedLog,
    /// The MachineSet's size and its desired-replicas annotation equal the MachineDeployment's size, and its
    /// observedGeneration is its generation.
    EqualSizes,
    /// Nothing is waited for.
    AtOnce,
}

/// When an entry leaves the log.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Forgets {
    /// When the API server says that the Machine is gone, and the MachineSet has followed.
    GoneAndFollowed,
    /// When the API server says that the Machine is gone.
    Gone,
    /// When a cache says that it is being deleted.
    Deleting,
    /// When a cache doesn't have it, which it also lacks before it has heard of it.
    AbsentFromCache,
}

impl Default for Rule {
    fn default() -> Self {
        Self {
            logs_first: true,
            precondition: Precondition::Generation,
            existence: Existence::CacheThatIsFarEnough,
            has_tickets: true,
            marks: true,
            carries_on: true,
            follows: Follows::CopiedLogAndSeen,
            finishes: true,
            waits_for_others: true,
            forgets: Forgets::GoneAndFollowed,
            cleans_marks: true,
            deleting: Deleting::LowersWhereReplaced,
            other_marks: OtherMarks::MarkedAgain,
            unmark_tests: UnmarkTests::Version,
            marks_only_unjoined: true,
            soft_waits: true,
            counts: Counts::AtEachDecision,
            place_tests: PlaceTests::Group,
            knows_own_writes: true,
            counts_going: true,
        }
    }
}

/// The next step of a command that has viewed the MachineDeployment and each named Machine.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Accept {
    /// All are in the log and lowered, or gone: OK, nothing to write.
    Nothing,
    /// These go to the log; those of others that are only wanted are carried forward with them.
    Log(Set),
    /// The size would be below min: refused, nothing was written.
    BelowMin,
}

/// The view of a command.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// spec.replicas.
    pub replicas: i8,
    /// The group's min.
    pub min: i8,
    /// The log.
    pub log: &'a [Entry],
    /// The Machines, as a read or a cache shows them.
    pub machines: &'a [Machine],
}

impl Existence {
    /// Returns true if the gain of an entry of a Machine that is being deleted makes caches out of date that haven't come so far.
    #[must_use]
    pub fn minds_entries(self) -> bool {
        self != Self::CacheBeforeEntries
    }

    /// Returns true if the leaving of a soft entry does.
    #[must_use]
    pub fn minds_soft_entries(self) -> bool {
        self != Self::CacheBeforeSoftEntriesLeft
    }

    /// Returns true if a cache is enough to view these Machines; else they must be read.
    #[must_use]
    pub fn is_cache_enough(self, named: Set, left_log: Set, deleting: Set) -> bool {
        let has_left = !(named & left_log).is_empty() && self != Self::CacheOfWhatLeft;
        !has_left && (named & deleting).is_empty()
    }
}

impl Rule {
    /// Decides about a command that names these Machines.
    #[must_use]
    pub fn accept(&self, seen: &Seen, all_named: Set) -> Accept {
        let wanted = Set::of(|machine| seen.log[machine].phase == Phase::Wanted);
        let logged = Set::of(|machine| seen.log[machine].phase != Phase::None);
        let living = |life| Set::of(|machine| seen.machines[machine].life == life);
        let named = all_named.without(logged);
        // A cache that lags behind still has those that are gone.
        let going = match self.existence {
            Existence::CacheThatIsFarEnough
            | Existence::CacheOfWhatLeft
            | Existence::CacheBeforeEntries
            | Existence::CacheBeforeSoftEntriesLeft => Set(0),
            Existence::AnyCache | Existence::Mark | Existence::Log => living(Life::Gone),
        };
        let leaving = named & (living(Life::Alive) | going);
        let size = seen.replicas - wanted.len() - leaving.len();
        let staying = living(Life::Alive).without(logged | leaving);
        let deleting = named & living(Life::Deleting);
        let replaced = match self.deleting {
            Deleting::LowersWhereReplaced => (size - staying.len()).max(0),
            Deleting::AlwaysLowers => deleting.len(),
        };
        let new = leaving | deleting.first(replaced);
        if !new.is_empty() && seen.replicas - wanted.len() - new.len() < seen.min {
            return Accept::BelowMin;
        }
        if new.is_empty() && (all_named & wanted).is_empty() { Accept::Nothing } else { Accept::Log(new) }
    }

    /// Decides about a command that names placeholders; `lowered` is the number of lowered entries of placeholders.
    #[must_use]
    pub fn place(&self, count: Count, asked: Places, lowered: i8, min: i8) -> Place {
        let logged = match self.counts {
            Counts::WithoutLog => Set(0),
            Counts::SoftAsLeaving => count.logged,
            Counts::AtEachDecision | Counts::Once | Counts::ByCache => count.logged.without(count.soft),
        };
        let wanted = if self.counts == Counts::WithoutLog { 0 } else { count.wanted };
        let staying = count.there.without(logged);
        let hanging = count.hanging.without(count.logged);
        let shown = (count.size - wanted - staying.len()).max(0);
        let is_counted = self.counts != Counts::Once || !asked.has_failed;
        let fewer = if is_counted { asked.asked.min(shown) } else { asked.asked };
        let has_come_down = asked.first_size - count.size;
        if asked.asked - fewer > has_come_down.max(lowered) {
            return Place::Refused;
        }
        if fewer == 0 {
            return Place::Nothing;
        }
        if count.size - wanted - fewer < min {
            return Place::Refused;
        }
        let entries = hanging.first(fewer);
        if entries.is_empty() { Place::Lower(fewer) } else { Place::Log(entries) }
    }

    /// Returns the next step of any copy's finisher about one Machine.
    #[must_use]
    pub fn finish(&self, entry: Entry, machine: Machine, size: Reached) -> Option<Finish> {
        let is_settled = size.is_followed && (size.are_others_followed || !self.waits_for_others);
        match entry.phase {
            Phase::Wanted if !self.carries_on => None,
            Phase::Wanted if self.is_joined(entry, machine) => Some(Finish::TakeBack),
            Phase::Wanted if self.marks && machine.exists() && machine.mark != entry.ticket => Some(Finish::Mark),
            Phase::Wanted => Some(Finish::Lower),
            Phase::Lowered if self.forgets(machine, size) => Some(Finish::Forget),
            Phase::Lowered if self.has_other_mark(entry, machine) => match self.other_marks {
                OtherMarks::TakenOff => Some(Finish::Unmark),
                OtherMarks::MarkedAgain => Some(Finish::Mark),
            },
            Phase::Lowered if entry.is_soft => {
                let is_over = size.is_down || machine.life != Life::Alive || !self.soft_waits;
                (is_settled && is_over).then_some(Finish::Forget)
            }
            Phase::Lowered => (self.finishes && is_settled && machine.life == Life::Alive).then_some(Finish::Delete),
            Phase::None => (self.cleans_marks && machine.mark != 0 && machine.exists()).then_some(Finish::Unmark),
        }
    }

    /// True if an entry that is wanted gives up a Machine as one that never joined, and it has joined before its mark; or,
    /// for a soft entry, goes anyway.
    #[must_use]
    pub fn is_joined(&self, entry: Entry, machine: Machine) -> bool {
        let is_marked = machine.mark == entry.ticket;
        let is_alive = machine.life == Life::Alive;
        let has_joined = is_alive && machine.has_node;
        let goes_anyway = entry.is_soft && !is_alive;
        let is_first = entry.phase == Phase::Wanted && !is_marked;
        self.marks_only_unjoined && entry.never_joined && (has_joined || goes_anyway) && is_first
    }

    fn has_other_mark(&self, entry: Entry, machine: Machine) -> bool {
        let is_other = machine.mark != entry.ticket;
        let is_seen = machine.mark != 0 || self.other_marks == OtherMarks::MarkedAgain;
        self.marks && machine.life == Life::Alive && is_other && is_seen
    }

    fn forgets(&self, machine: Machine, size: Reached) -> bool {
        let is_too_new_for_a_cache = !machine.has_node;
        match self.forgets {
            Forgets::GoneAndFollowed => machine.life == Life::Gone && size.is_followed,
            Forgets::Gone => machine.life == Life::Gone,
            Forgets::Deleting => matches!(machine.life, Life::Deleting | Life::Gone),
            Forgets::AbsentFromCache => machine.life == Life::Gone || is_too_new_for_a_cache,
        }
    }
}

/// The progress of the smaller size that a logged Machine stands for.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Reached {
    /// The MachineSet controller acts on it.
    pub is_followed: bool,
    /// Every other entry of the log is lowered and followed as well.
    pub are_others_followed: bool,
    /// The MachineSet's size is seen, and no more Machines are alive than it says.
    pub is_down: bool,
}

/// One API call of the finisher, about one Machine.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Finish {
    /// Set the mark, uid as precondition.
    Mark,
    /// Lower the size and say so in the log, in one patch.
    Lower,
    /// Delete the Machine, uid as precondition.
    Delete,
    /// Take the entry out of the log.
    Forget,
    /// Take the mark off, if it is still the one seen.
    Unmark,
    /// Take an entry out of the log whose Machine was to have no Node and has one.
    TakeBack,
}
