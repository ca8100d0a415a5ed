//! Commands step by step: each is a value that asks for calls and takes what they have come to. It makes no call, and knows
//! the time, the watches and new identities only by what it is given. Calls that are asked for together can be made side
//! by side.

mod carry;
mod decision;
mod decrease;
mod deletion;
mod learn;
mod mark;
mod marked;
mod replace;
mod resize;
mod settle;
mod take_back;
mod tickets;

use std::fmt::Debug;

pub use self::{
    carry::{Carry, NotLowered},
    decrease::Decrease,
    deletion::{Deletion, SIDE_BY_SIDE},
    mark::{Mark, MarkCall, MarkOutcome, Unmarked},
    marked::{Marked, NotMarked},
    replace::{Candidate, NotReplaced, Replaceable},
    resize::Resize,
    settle::{MarkedMember, Settle},
};
use crate::{
    Bounds, Entry, Followed, Life, Listed, Log, Lowering, Named, Policy, Refusal, Request, Rule, SizeError, SizedBy,
    Spec, Types, replacement::Replaced,
};

/// The types of whoever makes the calls.
pub trait Calls: Types {
    /// A version of a group's object.
    type Group: Group<Self>;
    /// A version of a Machine, for its mark to test.
    type Version: Clone + Debug;
    /// The identity under which a size is written; no two writes have the same.
    type Writer: Clone + Debug;
    /// A failed call.
    type Failed: FailedCall;
    /// The reason for which a log can't be read.
    type Unreadable: Clone + Debug;
    /// The reason for which a group can't be scaled.
    type NotScalable: Clone + Debug;
    /// A rollout of a group.
    type Rollout: Clone + Debug;
    /// A note about a Machine that may be replaced: the text of its group that the write tests, and what is told of it then.
    type Note: Clone + Debug;
    /// The reason for which nobody can read which Machine a group has replaced last.
    type Unread: Clone + Debug;

    /// A Machine that isn't marked, as a failure of the kind that the reason says.
    fn unmarked(name: &Self::Name, why: Unmarked<Self>) -> Self::Failed;
}

/// A version of a group's object.
pub trait Group<T: Calls>: Clone + Debug + PartialEq {
    /// Its spec.
    fn spec(&self) -> Spec<'_, T::Uid>;

    /// Its log.
    ///
    /// # Errors
    /// When the log can't be read.
    fn log(&self) -> Result<Log<T>, T::Unreadable>;

    /// Returns true if neither the spec nor the log of this object has been written since the other version.
    fn is_unchanged_since(&self, other: &Self) -> bool;
}

/// A failed call.
pub trait FailedCall: Clone + Debug {
    /// Its consequence.
    fn failure(&self) -> Failure;
}

/// The consequence of a failed call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Failure {
    /// The object isn't as the call expected, or the server refuses what it would become. Nothing was done.
    Rejected,
    /// Another write came between. Nothing was done.
    Conflict,
    /// It may have been done, or be done yet.
    Unknown,
    /// Not now. Nothing was done.
    NotNow,
    /// It would fail again.
    Final,
}

impl Failure {
    /// Returns true if another look at the object may mend it.
    fn is_of_the_object(self) -> bool {
        matches!(self, Self::Rejected | Self::Conflict)
    }
}

/// The number by which whoever runs a command knows one of its callers.
pub type CallerId = usize;

/// The knowledge at one moment that costs no call: of the watches, and of this process.
pub trait Now<T: Calls> {
    /// The group.
    ///
    /// # Errors
    /// When it can't be scaled.
    fn view(&self) -> Result<View<T>, T::NotScalable>;

    /// The lives of Machines by the watch, where it has come far enough to be believed at this version of the group.
    fn lives(&self, group: &T::Group, named: &[Named<T>]) -> Vec<Option<Life>>;

    /// Returns true unless the watch has shown the Machine go.
    fn has_machine(&self, named: &Named<T>) -> bool;

    /// Returns true if an entry names a Machine of another group, or of none: somebody else wrote it, whose right to
    /// annotate the group is none to delete that Machine.
    fn is_stranger(&self, entry: &Entry<T>) -> bool;

    /// Returns true if the watch has shown whose the Machine of an entry is.
    fn knows_group_of(&self, entry: &Entry<T>) -> bool;

    /// Returns true if the watch has shown somebody else's mark on the Machine of an entry.
    fn is_marked_by_another(&self, entry: &Entry<T>) -> bool;

    /// Returns true if a watch has shown that the Machine of an entry has a Node.
    fn has_node(&self, entry: &Entry<T>) -> bool;

    /// The Machines that are there and in no log, by the watch.
    fn there(&self, log: &Log<T>) -> There<T>;

    /// The group's version, own reads and writes included, and what of its log is followed; `None` if it isn't a group.
    fn followed<P: Policy>(&self, rule: Rule<P>) -> Option<(T::Group, Followed<T, P>)>;

    /// Returns true if a MachineSet counts Machines that are being deleted as replicas.
    fn counts_deleting(&self) -> bool;

    /// The Machines of a request that may be replaced, of which none is in the log, and what is known of replacements.
    ///
    /// # Errors
    /// When the group can't be scaled.
    fn replaceable(&self, request: &Request<T>, log: &Log<T>) -> Result<Replaceable<T>, T::NotScalable>;

    /// Returns true if a caller has left.
    fn has_left(&self, caller: CallerId) -> bool;

    /// A ticket that nobody else has.
    fn ticket(&self) -> T::Ticket;

    /// A writer that nobody else is.
    fn writer(&self) -> T::Writer;
}

/// A group on which a command decides.
#[derive(Clone, Debug)]
pub struct View<T: Calls> {
    /// Its version, own writes included.
    pub version: T::Group,
    /// The bounds of its size.
    pub bounds: Bounds,
    /// The rollout in which no Machine may be taken from it.
    pub rollout: Option<T::Rollout>,
}

/// The Machines of a group that aren't being deleted and are in no log.
#[derive(Clone, Debug)]
pub struct There<T: Types> {
    /// The number of those that have a Node.
    pub with_node: i32,
    /// Those that have none, in the order in which they are given up.
    pub waiting: Vec<Named<T>>,
}

/// The attempts that are counted together. [`Effect::Begin`] begins them anew.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Row {
    /// Of what is accepted and logged.
    Log,
    /// Of marks and of the size for them.
    Lower,
    /// Of what is taken back.
    TakeBack,
    /// Of a size alone.
    Size,
    /// Of a Machine that is replaced.
    Replace,
}

/// The attempts that a read has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Tries {
    /// One.
    Once,
    /// Those that are left of a row.
    Of(Row),
    /// As many as a row of its own has.
    Anew,
}

/// A call to be made.
#[derive(Clone, Debug)]
pub enum Call<T: Calls> {
    /// Reads the group: [`Outcome::Group`].
    ReadGroup(Tries),
    /// Reads the group and whether this writer has written its size: [`Outcome::Size`].
    ReadSize(T::Writer),
    /// Reads whether a Machine is there: [`Outcome::Life`].
    Read(Named<T>),
    /// Reads a Machine that is given up as one that never joined: [`Outcome::Whole`].
    ReadWhole(Named<T>),
    /// Reads the version of the Machine of an entry: [`Outcome::Version`].
    ReadVersion(Entry<T>),
    /// Lists the group's Machines: [`Outcome::Listed`].
    List(Tries),
    /// Writes the log, if spec and log are as seen: [`Outcome::Written`].
    WriteLog {
        /// The version that is tested.
        seen: T::Group,
        /// The log.
        log: Log<T>,
    },
    /// Writes the size together with the log, if both are as seen: [`Outcome::Written`].
    Lower {
        /// The version that is tested.
        seen: T::Group,
        /// Size and log.
        lowering: Lowering<T>,
    },
    /// Writes the size alone, if it is as seen: [`Outcome::Written`].
    Resize {
        /// The version that is tested.
        seen: T::Group,
        /// The size.
        to: i32,
        /// The writer.
        writer: T::Writer,
        /// True if Machines were counted for it, so that the whole spec and the log are tested.
        counted: bool,
    },
    /// Makes a call for the mark of an entry's Machine: [`Outcome::Mark`].
    Mark(Entry<T>, MarkCall<T>),
    /// Deletes a Machine, if it is of this version, or of any: [`Outcome::Deleted`].
    Delete {
        /// The Machine.
        machine: Named<T>,
        /// The version that is tested.
        version: Option<T::Version>,
    },
    /// Takes the mark of a ticket off a Machine, if that is of this version: [`Outcome::Unmarked`].
    Unmark {
        /// The Machine.
        name: T::Name,
        /// The ticket.
        ticket: T::Ticket,
        /// The version that is tested.
        version: T::Version,
    },
    /// Writes that a Machine of the group is replaced, if the group tells of the last one as noted:
    /// [`Outcome::WrittenReplaced`].
    WriteReplaced {
        /// The note.
        note: T::Note,
        /// The replacement.
        replaced: Replaced<T::Uid>,
    },
    /// Waits before another attempt after a failure, if there is to be one: [`Outcome::Paused`].
    Pause(Row, T::Failed),
}

/// The outcome of a call.
#[derive(Clone, Debug)]
pub enum Outcome<T: Calls> {
    /// The group.
    Group(Result<T::Group, T::Failed>),
    /// The group, and who wrote its size.
    Size(Result<(T::Group, SizedBy), T::Failed>),
    /// The life of a Machine.
    Life(T::Uid, Result<Life, T::Failed>),
    /// A Machine that is given up as one that never joined.
    Whole(T::Uid, Result<Whole<T>, T::Failed>),
    /// The version of the Machine of an entry; `None` if it is gone or couldn't be read.
    Version(Entry<T>, Option<T::Version>),
    /// The group's Machines.
    Listed(Result<Listed<T>, T::Failed>),
    /// The group's version after a write.
    Written(Result<T::Group, T::Failed>),
    /// A call for the mark of an entry's Machine.
    Mark(Entry<T>, MarkOutcome<T>),
    /// True if a Machine was there to be deleted.
    Deleted(T::Uid, Result<bool, T::Failed>),
    /// The mark of a Machine was taken off, or there was none.
    Unmarked(T::Name, Result<(), T::Failed>),
    /// It was written that a Machine is replaced.
    WrittenReplaced(Result<(), T::Failed>),
    /// True if another attempt is to be made.
    Paused(Row, bool),
}

/// A Machine that was read whole.
#[derive(Clone, Debug)]
pub struct Whole<T: Calls> {
    /// Its life.
    pub life: Life,
    /// True if it is alive and has a Node.
    pub has_joined: bool,
    /// Its version, while it is alive.
    pub version: Option<T::Version>,
    /// The ticket of its mark; `None` if it has no mark, or somebody else's.
    pub ticket: Option<T::Ticket>,
}

/// An effect that no result is waited for.
#[derive(Clone, Debug)]
pub enum Effect<T: Calls> {
    /// A row of attempts begins.
    Begin(Row),
    /// A caller is answered.
    Answer(CallerId, Result<(), NotDone<T>>),
    /// The request of a caller waits for a turn of its own.
    PutOff(CallerId),
    /// The API server has refused to delete these, or gave no answer.
    Undeletable(Vec<Named<T>>),
    /// The size was written, as a later read shows.
    SizeWritten {
        /// The size before.
        from: i32,
        /// The version that shows it.
        version: T::Group,
    },
    /// The size is as it should be, and isn't written.
    SizeLeft(i32),
    /// The size isn't lowered, for a reason that only time mends.
    SizeSpared(NotDone<T>),
    /// The size isn't lowered for a Machine that couldn't be read.
    MachineSpared(T::Name, T::Failed),
    /// The Machine of an entry was deleted by name: its smaller size has taken another one.
    DeletedByName(Entry<T>),
    /// A Machine was deleted to be replaced.
    Replaced(Named<T>, T::Note),
    /// Entries were over and have left the log.
    Over(Vec<Entry<T>>),
    /// A mark of ours couldn't be taken off. A finisher finds it again.
    MarkStays(T::Name, T::Failed),
    /// The Machine goes by itself and another one has its place: the size isn't lowered for it.
    Filled(T::Name),
    /// A smaller target size takes these.
    Leaving(Vec<Named<T>>),
    /// The infrastructure provider chooses that many instances.
    ChosenByProvider(usize),
}

/// The reason for which a request wasn't done, or not wholly.
#[derive(Clone, Debug)]
pub enum NotDone<T: Calls> {
    /// The group can't be scaled.
    NotScalable(T::NotScalable),
    /// Its log can't be read.
    Unreadable(T::Unreadable),
    /// The caller left before anything was written.
    Abandoned,
    /// The size can't be such.
    Size(SizeError),
    /// The rule refuses it.
    Refused(Refusal<T>),
    /// No Machine may be taken from the group in a rollout.
    RollingOut(T::Rollout),
    /// A call failed.
    Failed(T::Failed),
    /// The API server goes on rejecting a size, though the group is as it was seen.
    Rejected {
        /// The size.
        size: i32,
        /// The last failure.
        error: T::Failed,
    },
    /// The log names a Machine that isn't of this group.
    Stranger(T::Name),
    /// The Machine goes by itself; the size stays as it is for it.
    Going(T::Name),
    /// The deletion of a Machine was given up by another copy.
    GivenUp(T::Name),
    /// The size would be below the minimum, and no Machine was replaced, or not all.
    NotReplaced(SizeError, NotReplaced<T>),
    /// It is decided, and a finisher goes on with it.
    Pending(T::Failed),
    /// It is refused and can't be taken back: it is carried out when the API server lets it.
    NotTakenBack {
        /// The refusal.
        why: Box<Self>,
        /// The reason for which it can't be taken back.
        error: Box<Self>,
    },
    /// A size was written without an answer, and nothing more could be learned.
    SizeUnread {
        /// The size before.
        from: i32,
        /// The size that was written.
        to: i32,
        /// The reason for which nothing more was learned.
        why: Box<Self>,
    },
    /// A size was written without an answer, and others were written since.
    SizeUnknown {
        /// The size before.
        from: i32,
        /// The size that was written.
        to: i32,
        /// The size now.
        now: i32,
        /// The failure of the write.
        error: T::Failed,
    },
    /// As it says, but the write of the log had no answer: if it was done, the deletion goes on.
    MaybeLogged(Box<Self>),
    /// As it says, but others that were named with it go.
    InPart(Box<Self>),
    /// As it says, but the size was lowered for a part of it.
    LoweredInPart(Box<Self>),
}

impl<T: Calls> NotDone<T> {
    fn unless_logged(self, maybe_logged: bool) -> Self {
        if maybe_logged { Self::MaybeLogged(Box::new(self)) } else { self }
    }

    fn of_part(self, goes_on: bool) -> Self {
        if goes_on { Self::InPart(Box::new(self)) } else { self }
    }

    fn unless_lowered(self, has_lowered: bool) -> Self {
        if has_lowered { Self::LoweredInPart(Box::new(self)) } else { self }
    }
}

/// A command that is carried out call by call.
pub trait Steps<T: Calls> {
    /// The calls to be made by now; none while others are under way, and at the end.
    fn next(&mut self, now: &impl Now<T>) -> Vec<Call<T>>;

    /// Takes the outcome of a call.
    fn took(&mut self, outcome: Outcome<T>);

    /// The effects since the last time.
    fn effects(&mut self) -> Vec<Effect<T>>;
}

/// The Machine of an entry.
#[must_use]
pub fn machine_of<T: Types>(entry: &Entry<T>) -> Named<T> {
    Named { name: entry.name.clone(), uid: entry.uid.clone(), never_joined: entry.gives_up() }
}
