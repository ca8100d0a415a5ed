//! The rule with one of its steps left out or changed, so that a test can show what it is for. What a copy decides is
//! decided by [`delete_rule`] itself, under the policy that a variant is; the rest is about how the copies make their calls.

use std::fmt;

use delete_rule::{Forgets, Policy};

/// The steps of the rule and of its calls. [`Variant::default`] has them all.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
#[allow(clippy::struct_excessive_bools, reason = "each is one step of the rule, with it or without")]
pub struct Variant {
    /// Machines are logged as wanted before they are marked; else marks come first and one write logs and lowers.
    pub logs_first: bool,
    /// The precondition of a write to the MachineDeployment, so that nothing comes between.
    pub precondition: Precondition,
    /// The source by which a named Machine is known to be there, before the size is lowered for it.
    pub existence: Existence,
    /// Each entry has a ticket, and what a copy remembers of an entry is about that ticket only.
    pub has_tickets: bool,
    /// A Machine of a MachinePool is left to its provider for a time, before it is deleted by name.
    pub leaves_to_provider: bool,
    /// In a rollout a smaller size isn't followed before one MachineSet alone has Machines, and the size that came with the log.
    pub waits_until_alone: bool,
    /// Machines are marked.
    pub marks: bool,
    /// Every copy carries forward what it finds wanted in the log, whoever wrote it.
    pub carries_on: bool,
    /// The moment at which the smaller size counts as having reached the MachineSet controller.
    pub follows: Follows,
    /// A lowered Machine that is alive after the MachineSet has followed is deleted directly.
    pub finishes: bool,
    /// That is done only when no other entry is on its way to the MachineSet.
    pub waits_for_others: bool,
    /// The moment at which an entry leaves the log.
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
    /// The watch of the Nodes is asked for that once more where the mark tests a version that was read before.
    pub marks_look_again: bool,
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
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
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
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum PlaceTests {
    /// metadata.generation and the log, like all writes of the log.
    Group,
    /// The size; and the Machines are listed before the MachineDeployment is read.
    SizeAfterList,
    /// The size; and the Machines are listed after the MachineDeployment was viewed.
    Size,
}

/// The handling of a mark of ours on a Machine whose entry has another ticket.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum OtherMarks {
    /// The Machine is marked again, with its entry's ticket.
    MarkedAgain,
    /// The mark is taken off, as one whose ticket isn't in the log.
    TakenOff,
}

/// The precondition of the patch that takes a mark off.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum UnmarkTests {
    /// The Machine's resourceVersion, as of before the log was read: it hasn't been marked since.
    Version,
    /// The mark's value, which a mark that lands late may have brought back.
    Value,
}

/// The handling of a Machine that is being deleted when it is named for the first time.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Deleting {
    /// It lowers the size where a replacement would come else: while the size counts more Machines than are there to
    /// stay.
    LowersWhereReplaced,
    /// It always lowers the size.
    AlwaysLowers,
}

/// The source by which a named Machine is known to be there, before the size is lowered for it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
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
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Precondition {
    /// metadata.generation and the log: neither spec nor log has been written since the view.
    Generation,
    /// The values of spec.replicas and of the log: they may have changed and changed back.
    Values,
    /// Nothing: the write replaces the log by the one viewed, with the new entries.
    Nothing,
}

/// The sign by which the MachineSet controller is taken to act on the smaller size.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
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

impl Default for Variant {
    fn default() -> Self {
        Self {
            logs_first: true,
            precondition: Precondition::Generation,
            existence: Existence::CacheThatIsFarEnough,
            has_tickets: true,
            leaves_to_provider: true,
            waits_until_alone: true,
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
            marks_look_again: true,
            soft_waits: true,
            counts: Counts::AtEachDecision,
            place_tests: PlaceTests::Group,
            knows_own_writes: true,
            counts_going: true,
        }
    }
}

/// A command is told from others by its text ([`fmt::Debug`]), many millions of times; all of a search are of one variant.
impl fmt::Debug for Variant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Variant")
    }
}

impl Policy for Variant {
    fn minds_counted_entries(self) -> bool {
        self.existence != Existence::CacheBeforeEntries
    }

    fn minds_soft_entries(self) -> bool {
        self.existence != Existence::CacheBeforeSoftEntriesLeft
    }

    fn reads_what_left(self) -> bool {
        self.existence != Existence::CacheOfWhatLeft
    }

    fn spares_gone(self) -> bool {
        // A cache that lags behind further than the model's still has those that are gone.
        !matches!(self.existence, Existence::AnyCache | Existence::Mark | Existence::Log)
    }

    fn counts_deleting(self) -> bool {
        self.deleting == Deleting::LowersWhereReplaced
    }

    fn compares_tickets(self) -> bool {
        self.has_tickets
    }

    fn marks(self) -> bool {
        self.marks
    }

    fn spares_joined(self) -> bool {
        self.marks_only_unjoined
    }

    fn lowers_for_gone(self) -> bool {
        self.existence != Existence::Mark
    }

    fn counts_going(self) -> bool {
        self.counts_going
    }

    fn counts_by_log(self) -> bool {
        self.counts != Counts::WithoutLog
    }

    fn counts_soft_as_staying(self) -> bool {
        self.counts != Counts::SoftAsLeaving
    }

    fn knows_own_writes(self) -> bool {
        self.knows_own_writes
    }

    fn carries_on(self) -> bool {
        self.carries_on
    }

    fn waits_until_seen(self) -> bool {
        !matches!(self.follows, Follows::CopiedLog | Follows::AtOnce)
    }

    fn deletes_by_name(self) -> bool {
        self.finishes
    }

    fn waits_for_others(self) -> bool {
        self.waits_for_others && self.follows != Follows::AtOnce
    }

    fn forgets(self) -> Forgets {
        self.forgets
    }

    fn waits_for_soft(self) -> bool {
        self.soft_waits
    }

    fn takes_marks_off(self) -> bool {
        self.cleans_marks
    }

    fn marks_again(self) -> bool {
        self.other_marks == OtherMarks::MarkedAgain
    }
}
