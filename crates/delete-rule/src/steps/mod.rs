//! Commands as state machines: each returns the calls to make and takes their outcomes. A command must never make a
//! call itself; it knows the time, the watches and new identities only through its arguments. Calls that are returned
//! together may be made concurrently.

mod carry;
mod decision;
mod decrease;
mod deletion;
mod lookup;
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
    deletion::Deletion,
    mark::{Mark, MarkCall, MarkOutcome, Unmarked},
    marked::{Marked, NotMarked},
    replace::{Candidate, NotReplaced, Replaceable},
    resize::Resize,
    settle::{MarkedMember, Settle},
};
use crate::{
    Bounds, Entry, Followed, GroupMachines, Life, Log, Lowering, Named, Policy, Refusal, Request, Rule, SizeError,
    SizedBy, Spec, Types, replacement::Replaced,
};

/// The number of Machines that are marked concurrently.
pub const SIDE_BY_SIDE: usize = 16;

/// The types that the caller of the API server provides.
pub trait Calls: Types {
    /// A version of a group's object.
    type Group: Group<Self>;
    /// A version of a Machine, for its mark to test.
    type Version: Clone + Debug;
    /// The field manager under which a command writes a size, which no other command uses.
    type Writer: Clone + Debug;
    /// A failed call.
    type Failed: FailedCall;
    /// The reason why a log can't be read.
    type Unreadable: Clone + Debug;
    /// The reason why a group can't be scaled.
    type NotScalable: Clone + Debug;
    /// A rollout of a group.
    type Rollout: Clone + Debug;
    /// A note about a Machine that may be replaced: the annotation value that the write tests, and the text reported
    /// after the replacement.
    type Note: Clone + Debug;
    /// The reason why the last replacement of a group can't be read.
    type Unread: Clone + Debug;

    /// Creates the failure for a Machine that isn't marked for this reason.
    fn unmarked(name: &Self::Name, why: Unmarked<Self>) -> Self::Failed;
}

/// A version of a group's object.
pub trait Group<T: Calls>: Clone + Debug + PartialEq {
    /// Returns its spec.
    fn spec(&self) -> Spec<'_, T::Uid>;

    /// Returns its log.
    ///
    /// # Errors
    /// Fails if the log can't be read.
    fn log(&self) -> Result<Log<T>, T::Unreadable>;

    /// Returns true if neither the spec nor the log of this object has been written since the other version.
    fn is_unchanged_since(&self, other: &Self) -> bool;
}

/// A failed call.
pub trait FailedCall: Clone + Debug {
    /// Returns the kind of the failure.
    fn failure(&self) -> Failure;

    /// Returns true if the call was made. One that was not sent says nothing of the server.
    fn was_sent(&self) -> bool {
        true
    }
}

/// The kind of a failure, by its consequence.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Failure {
    /// The object isn't as the call expected, or the server rejects the change. Nothing was written.
    Rejected,
    /// Another write came between. Nothing was written.
    Conflict,
    /// The write may have been applied, or may still be.
    Unknown,
    /// The server can't serve the call now. Nothing was written.
    NotNow,
    /// A retry would fail again.
    Final,
}

impl Failure {
    /// Returns true if reading the object again may help.
    fn is_of_the_object(self) -> bool {
        matches!(self, Self::Rejected | Self::Conflict)
    }
}

/// The number by which the driver of a command identifies a caller.
pub type CallerId = usize;

/// The state that is known at one moment without a call, from the watches and from this process.
pub trait Now<T: Calls> {
    /// The group.
    ///
    /// # Errors
    /// Fails if the group can't be scaled.
    fn view(&self) -> Result<View<T>, T::NotScalable>;

    /// Returns the lives of Machines by the watch; `None` where the watch is too old for this version of the group.
    fn lives(&self, group: &T::Group, named: &[Named<T>]) -> Vec<Option<Life>>;

    /// Returns true unless the watch has shown that the Machine is gone.
    fn has_machine(&self, named: &Named<T>) -> bool;

    /// Returns true if an entry names a Machine of another group, or of none. Somebody else wrote such an entry, and
    /// the right to annotate the group doesn't include deleting that Machine.
    fn is_stranger(&self, entry: &Entry<T>) -> bool;

    /// Returns true if the watch has shown the owner of an entry's Machine.
    fn knows_group_of(&self, entry: &Entry<T>) -> bool;

    /// Returns true if the watch has shown somebody else's mark on the Machine of an entry.
    fn is_marked_by_another(&self, entry: &Entry<T>) -> bool;

    /// Returns true if a watch has shown that the Machine of an entry has a Node.
    fn has_node(&self, entry: &Entry<T>) -> bool;

    /// Returns the Machines that exist and are in no log, by the watch.
    fn unlogged_machines(&self, log: &Log<T>) -> UnloggedMachines<T>;

    /// Returns the group's version, including own reads and writes, and the followed entries of its log; `None` if it
    /// isn't a node group.
    fn followed<P: Policy>(&self, rule: Rule<P>) -> Option<(T::Group, Followed<T, P>)>;

    /// Returns true if a MachineSet counts Machines that are being deleted as replicas.
    fn counts_deleting(&self) -> bool;

    /// Returns the Machines of a request that may be replaced, none of which is in the log, and the known replacements.
    ///
    /// # Errors
    /// Fails if the group can't be scaled.
    fn replaceable(&self, request: &Request<T>, log: &Log<T>) -> Result<Replaceable<T>, T::NotScalable>;

    /// Returns true if a caller has left.
    fn has_left(&self, caller: CallerId) -> bool;

    /// Returns a ticket that nobody else has.
    fn ticket(&self) -> T::Ticket;

    /// Returns a writer that nobody else uses.
    fn writer(&self) -> T::Writer;
}

/// The group that a command decides on.
#[derive(Clone, Debug)]
pub struct View<T: Calls> {
    /// The group's version, including own writes.
    pub version: T::Group,
    /// The bounds of the group's size.
    pub bounds: Bounds,
    /// The rollout during which no Machine may be taken from the group.
    pub rollout: Option<T::Rollout>,
}

/// The Machines of a group that aren't being deleted and are in no log.
#[derive(Clone, Debug)]
pub struct UnloggedMachines<T: Types> {
    /// The number of Machines that have a Node.
    pub with_node: i32,
    /// The Machines that have no Node, in the order in which they are given up.
    pub waiting: Vec<Named<T>>,
}

/// A series of attempts that share one retry budget, which [`Effect::Begin`] resets.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum RetryBudget {
    /// Logging accepted requests.
    Log,
    /// Marking Machines and lowering the size for them.
    Lower,
    /// Taking entries back.
    TakeBack,
    /// Writing a size alone.
    Size,
    /// Replacing a Machine.
    Replace,
}

/// The attempts that a read may make.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RetryPolicy {
    /// One attempt.
    Once,
    /// The attempts left in a series.
    Of(RetryBudget),
    /// A new series of attempts.
    Anew,
}

/// A call to be made.
#[derive(Clone, Debug)]
pub enum Call<T: Calls> {
    /// Reads the group: [`Outcome::Group`].
    ReadGroup(RetryPolicy),
    /// Reads the group, and checks if this writer has written its size: [`Outcome::Size`].
    ReadSize(T::Writer),
    /// Checks if a Machine exists: [`Outcome::Life`].
    Read(Named<T>),
    /// Reads a Machine that is given up as one that never joined: [`Outcome::Details`].
    ReadDetails(Named<T>),
    /// Reads the version of an entry's Machine: [`Outcome::Version`].
    ReadVersion(Entry<T>),
    /// Lists the group's Machines: [`Outcome::Listed`].
    List(RetryPolicy),
    /// Writes the log, if spec and log are unchanged: [`Outcome::Written`].
    WriteLog {
        /// The version that is tested.
        seen: T::Group,
        /// The log.
        log: Log<T>,
    },
    /// Writes the size together with the log, if both are unchanged: [`Outcome::Written`].
    Lower {
        /// The version that is tested.
        seen: T::Group,
        /// The size and the log.
        lowering: Lowering<T>,
    },
    /// Writes the size alone, if it is unchanged: [`Outcome::Written`].
    Resize {
        /// The version that is tested.
        seen: T::Group,
        /// The size.
        to: i32,
        /// The writer.
        writer: T::Writer,
        /// True if Machines were counted for the size, so that the whole spec and the log are tested.
        counted: bool,
    },
    /// Makes a call for the mark of an entry's Machine: [`Outcome::Mark`].
    Mark(Entry<T>, MarkCall<T>),
    /// Deletes a Machine, if it has this version; any version if `None`: [`Outcome::Deleted`].
    Delete {
        /// The Machine.
        machine: Named<T>,
        /// The version that is tested.
        version: Option<T::Version>,
    },
    /// Removes the mark of a ticket from a Machine, if it has this version: [`Outcome::Unmarked`].
    Unmark {
        /// The Machine.
        name: T::Name,
        /// The ticket.
        ticket: T::Ticket,
        /// The version that is tested.
        version: T::Version,
    },
    /// Writes the group's last replacement, if the previous one is as noted: [`Outcome::WrittenReplaced`].
    WriteReplaced {
        /// The note.
        note: T::Note,
        /// The replacement.
        replaced: Replaced<T::Uid>,
    },
    /// Waits before another attempt after a failure, if there is to be one: [`Outcome::Paused`].
    Pause(RetryBudget, T::Failed),
}

/// The outcome of a call.
#[derive(Clone, Debug)]
pub enum Outcome<T: Calls> {
    /// The group.
    Group(Result<T::Group, T::Failed>),
    /// The group, and the writer of its size.
    Size(Result<(T::Group, SizedBy), T::Failed>),
    /// The life of a Machine.
    Life(T::Uid, Result<Life, T::Failed>),
    /// A Machine that is given up as one that never joined.
    Details(T::Uid, Result<Details<T>, T::Failed>),
    /// The version of an entry's Machine; `None` if it is gone or couldn't be read.
    Version(Entry<T>, Option<T::Version>),
    /// The group's Machines.
    Listed(Result<GroupMachines<T>, T::Failed>),
    /// The group's version after a write.
    Written(Result<T::Group, T::Failed>),
    /// The outcome of a call for the mark of an entry's Machine.
    Mark(Entry<T>, MarkOutcome<T>),
    /// True if the Machine existed, so that the call deleted it; false if it was gone already.
    Deleted(T::Uid, Result<bool, T::Failed>),
    /// The mark of a Machine was removed, or there was none.
    Unmarked(T::Name, Result<(), T::Failed>),
    /// The last replacement was written.
    WrittenReplaced(Result<(), T::Failed>),
    /// True if another attempt is to be made.
    Paused(RetryBudget, bool),
}

/// A Machine with everything that shows if it has joined.
#[derive(Clone, Debug)]
pub struct Details<T: Calls> {
    /// The Machine's life.
    pub life: Life,
    /// True if the Machine is alive and has a Node.
    pub has_joined: bool,
    /// The Machine's version, while it is alive.
    pub version: Option<T::Version>,
    /// The ticket of its mark; `None` if it has no mark, or somebody else's.
    pub ticket: Option<T::Ticket>,
}

/// An effect without an outcome to wait for.
#[derive(Clone, Debug)]
pub enum Effect<T: Calls> {
    /// A series of attempts begins.
    Begin(RetryBudget),
    /// A caller is answered.
    Answer(CallerId, Result<(), NotDone<T>>),
    /// The request of a caller is deferred to a batch of its own.
    Deferred(CallerId),
    /// The API server has refused to delete these Machines, or has sent no response.
    Undeletable(Vec<Named<T>>),
    /// The size was written, as a later read shows.
    SizeWritten {
        /// The size before.
        from: i32,
        /// The version that shows it.
        version: T::Group,
    },
    /// The size is already as desired and isn't written.
    SizeLeft(i32),
    /// The size isn't lowered, for a reason that only time can resolve.
    SizeSpared(NotDone<T>),
    /// The size isn't lowered for a Machine that couldn't be read.
    MachineSpared(T::Name, T::Failed),
    /// The Machine of an entry was deleted by name, because its smaller size has taken another one.
    DeletedByName(Entry<T>),
    /// A Machine was deleted to be replaced.
    Replaced(Named<T>, T::Note),
    /// Finished entries have left the log.
    Over(Vec<Entry<T>>),
    /// A mark of ours couldn't be removed. A finisher will find it again.
    MarkStays(T::Name, T::Failed),
    /// Something else deletes the Machine, and another one has taken its place: the size isn't lowered for it.
    Filled(T::Name),
    /// These Machines are deleted for a smaller target size.
    Leaving(Vec<Named<T>>),
    /// The infrastructure provider chooses which instances go; the number of them.
    ChosenByProvider(usize),
}

/// The reason why a request wasn't carried out, or only in part.
#[derive(Clone, Debug)]
pub enum NotDone<T: Calls> {
    /// The group can't be scaled.
    NotScalable(T::NotScalable),
    /// The group's log can't be read.
    Unreadable(T::Unreadable),
    /// The caller left before anything was written.
    Abandoned,
    /// The size is out of bounds, or the delta is invalid.
    Size(SizeError),
    /// The rule refuses the request.
    Refused(Refusal<T>),
    /// No Machine may be taken from the group during a rollout.
    RollingOut(T::Rollout),
    /// A call failed.
    Failed(T::Failed),
    /// The API server keeps rejecting a size although the group is unchanged.
    Rejected {
        /// The size.
        size: i32,
        /// The last failure.
        error: T::Failed,
    },
    /// The log names a Machine that isn't of this group.
    Stranger(T::Name),
    /// Something else deletes the Machine, so that the size isn't lowered for it.
    DeletedElsewhere(T::Name),
    /// Another copy has given up the deletion of a Machine.
    GivenUp(T::Name),
    /// The size would be below the minimum, and no Machine was replaced, or not all.
    NotReplaced(SizeError, NotReplaced<T>),
    /// The request is decided, and a finisher carries on with it.
    Pending(T::Failed),
    /// The request is refused but couldn't be taken back: it is carried out once the API server permits it.
    NotTakenBack {
        /// The refusal.
        why: Box<Self>,
        /// The reason why it couldn't be taken back.
        error: Box<Self>,
    },
    /// A size was written without a response, and reading the result failed.
    SizeUnread {
        /// The size before.
        from: i32,
        /// The size that was written.
        to: i32,
        /// The reason why the result is unknown.
        why: Box<Self>,
    },
    /// A size was written without a response, and other sizes were written since.
    SizeUnknown {
        /// The size before.
        from: i32,
        /// The size that was written.
        to: i32,
        /// The current size.
        now: i32,
        /// The failure of the write.
        error: T::Failed,
    },
    /// The inner reason, but the write of the log got no response: if it was applied, the deletion goes on.
    MaybeLogged(Box<Self>),
    /// The inner reason, but other Machines of the same request are deleted.
    InPart(Box<Self>),
    /// The inner reason, but the size was lowered for a part of the request.
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
    /// Returns the calls to make now; none while others are awaited, and at the end.
    fn next(&mut self, now: &impl Now<T>) -> Vec<Call<T>>;

    /// Takes the outcome of a call.
    fn took(&mut self, outcome: Outcome<T>);

    /// Returns the effects since the last call of this method.
    fn effects(&mut self) -> Vec<Effect<T>>;
}

/// Returns the Machine of an entry.
#[must_use]
pub fn machine_of<T: Types>(entry: &Entry<T>) -> Named<T> {
    Named { name: entry.name.clone(), uid: entry.uid.clone(), never_joined: entry.gives_up() }
}
