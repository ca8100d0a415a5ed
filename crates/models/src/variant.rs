//! The rule with one of its steps left out or changed, so that a test can show the purpose of the step. [`delete_rule`]
//! itself decides, with a variant as its policy; the other fields change how the copies make their calls.

use std::fmt;

use delete_rule::{Forgets, Policy};

/// The steps of the rule and of its calls. [`Variant::default`] has them all.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
#[allow(clippy::struct_excessive_bools, reason = "each is one step of the rule, with it or without")]
pub struct Variant {
    /// True if Machines are logged as wanted before they are marked; otherwise marks come first, and one write logs and
    /// lowers.
    pub logs_first: bool,
    /// The precondition of a write to the MachineDeployment, which detects writes in between.
    pub precondition: Precondition,
    /// The source that shows that a named Machine exists, before the size is lowered for it.
    pub existence: Existence,
    /// True if each entry has a ticket, and a copy's memory of an entry is about that ticket only.
    pub has_tickets: bool,
    /// True if a Machine of a MachinePool is left to its provider for a time, before it is deleted by name.
    pub leaves_to_provider: bool,
    /// True if, during a rollout, a smaller size counts as followed only once a single MachineSet has Machines, and has
    /// the size that came with the log.
    pub waits_until_alone: bool,
    /// True if Machines are marked.
    pub marks: bool,
    /// True if every copy carries on with wanted entries that it finds in the log, whoever wrote them.
    pub carries_on: bool,
    /// The moment from which the smaller size counts as having reached the MachineSet controller.
    pub follows: Follows,
    /// True if a lowered Machine that is alive after the MachineSet has followed is deleted directly.
    pub finishes: bool,
    /// True if that is done only when all other entries have reached the MachineSet too.
    pub waits_for_others: bool,
    /// The moment at which an entry leaves the log.
    pub forgets: Forgets,
    /// True if marks of ours that belong to no entry are removed.
    pub cleans_marks: bool,
    /// The handling of a Machine that is being deleted when it is named for the first time.
    pub deleting: Deleting,
    /// The handling of a mark of ours that isn't the mark of its Machine's entry.
    pub other_marks: OtherMarks,
    /// The precondition of the patch that removes a mark.
    pub unmark_tests: UnmarkTests,
    /// True if a Machine that is given up as one that never joined is marked only while it has no Node; otherwise its
    /// entry is taken back.
    pub marks_only_unjoined: bool,
    /// True if the watch of the Nodes is checked once more before a mark that tests a version read earlier.
    pub marks_look_again: bool,
    /// True if a soft entry of a Machine that is alive stays until no more Machines are alive than the size says.
    pub soft_waits: bool,
    /// The source of the count before the size is lowered for placeholders.
    pub counts: Counts,
    /// The precondition of the write that lowers the size for placeholders.
    pub place_tests: PlaceTests,
    /// True if a copy concludes from the last writer of the size whether such a write of its own was applied although
    /// its response was lost.
    pub knows_own_writes: bool,
    /// True if a Machine that was alive when it was logged, and that something else deletes before the size is lowered
    /// for it, is counted then: it lowers the size only if no other Machine has taken its place.
    pub counts_deleted_elsewhere: bool,
}

/// The source by which replicas without a Machine are counted.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Counts {
    /// The log and a fresh list of the Machines, at each decision.
    AtEachDecision,
    /// The same at the first decision; after a failed write the requested number is subtracted from the current size.
    Once,
    /// A cache of the Machines that may lag behind.
    ByCache,
    /// A list of the Machines, without the log.
    WithoutLog,
    /// A log whose lowered soft entries count as leaving.
    SoftAsLeaving,
}

/// The precondition of the write that lowers the size for placeholders.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum PlaceTests {
    /// `metadata.generation` and the log, like all writes of the log.
    Group,
    /// The size; the Machines are listed before the MachineDeployment is read.
    SizeAfterList,
    /// The size; the Machines are listed after the MachineDeployment was viewed.
    Size,
}

/// The handling of a mark of ours on a Machine whose entry has another ticket.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum OtherMarks {
    /// The Machine is marked again, with its entry's ticket.
    MarkedAgain,
    /// The mark is removed, as one whose ticket isn't in the log.
    TakenOff,
}

/// The precondition of the patch that removes a mark.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum UnmarkTests {
    /// The Machine's resourceVersion from before the log was read: it hasn't been marked since.
    Version,
    /// The mark's value, which a mark that is applied late may have brought back.
    Value,
}

/// The handling of a Machine that is being deleted when it is named for the first time.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Deleting {
    /// It lowers the size if a replacement would come otherwise: while the size counts more Machines than those that
    /// stay.
    LowersWhereReplaced,
    /// It always lowers the size.
    AlwaysLowers,
}

/// The source that shows that a named Machine exists, before the size is lowered for it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Existence {
    /// A cache that has reached the latest of three versions: the start of the MachineDeployment's current generation,
    /// the last entry added for a Machine that was being deleted, and the last removal of a soft entry. A named Machine
    /// that has left the log since, or is being deleted, is read.
    CacheThatIsFarEnough,
    /// The same cache, without the read of a named Machine that has left the log.
    CacheOfWhatLeft,
    /// The same, with a cache that may not have reached the addition of such an entry.
    CacheBeforeEntries,
    /// The same, with a cache that may not have reached the removal of a soft entry.
    CacheBeforeSoftEntriesLeft,
    /// Any cache.
    AnyCache,
    /// The mark: a Machine that existed when it was marked lowers the size; one that a copy finds gone without having
    /// marked it leaves the log without lowering.
    Mark,
    /// Nothing later than the log: every entry of the log lowers the size.
    Log,
}

/// The precondition of a write to the MachineDeployment.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Precondition {
    /// `metadata.generation` and the log: neither spec nor log has been written since the view.
    Generation,
    /// The values of `spec.replicas` and of the log, which may have changed and changed back.
    Values,
    /// Nothing: the write replaces the log by the one viewed, with the new entries.
    Nothing,
}

/// The sign that the MachineSet controller has followed the smaller size.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Follows {
    /// The MachineSet carries the copied log with the entry lowered, and its controller has observed its generation: a
    /// reconcile of it has ended, with an error or without (the observedGeneration of the condition ScalingDown).
    CopiedLogAndSeen,
    /// The MachineSet carries the copied log with the entry lowered, and a reconcile of its generation has ended
    /// without an error (`status.observedGeneration` since Cluster API 1.11).
    CopiedLogAndActed,
    /// The MachineSet carries the copied log with the entry lowered.
    CopiedLog,
    /// The MachineSet's size and its desired-replicas annotation equal the MachineDeployment's size, and its
    /// observedGeneration is its generation.
    EqualSizes,
    /// No sign: the size counts as followed at once.
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
            counts_deleted_elsewhere: true,
        }
    }
}

/// Commands are compared by their [`fmt::Debug`] text, many millions of times. All commands of a search have the same
/// variant, so its text is short.
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
        // A cache that lags behind further than the model's still has the Machines that are gone.
        !matches!(self.existence, Existence::AnyCache | Existence::Mark | Existence::Log)
    }

    fn counts_deleting(self) -> bool {
        self.deleting == Deleting::LowersWhereReplaced
    }

    fn compares_tickets(self) -> bool {
        self.has_tickets
    }

    fn marks_look_again(self) -> bool {
        self.marks_look_again
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

    fn counts_deleted_elsewhere(self) -> bool {
        self.counts_deleted_elsewhere
    }

    fn counts_by_log(self) -> bool {
        self.counts != Counts::WithoutLog
    }

    fn counts_again(self) -> bool {
        self.counts != Counts::Once
    }

    fn tests_count(self) -> bool {
        self.place_tests == PlaceTests::Group
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

    fn waits_for_log(self) -> bool {
        !matches!(self.follows, Follows::EqualSizes | Follows::AtOnce)
    }

    fn waits_until_alone(self) -> bool {
        self.waits_until_alone && self.follows != Follows::AtOnce
    }

    fn leaves_to_provider(self) -> bool {
        self.leaves_to_provider
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
