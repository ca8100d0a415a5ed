//! The steps of the model, and their text in a trace.

use std::fmt::{self, Display};

use crate::world::{Set, name};

/// An API call of the finisher about one Machine.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Finish {
    /// Delete the Machine, with its uid as precondition.
    Delete,
    /// Remove the entry from the log.
    Forget,
    /// Remove the mark, if it is still the one seen.
    Unmark,
}

/// A step from one state to another. A copy then reads the state that it needs for the next call.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// DeleteNodes arrives at a copy, which views the group and the Machines.
    Ask(usize, Set),
    /// DeleteNodes arrives at a copy and joins one in progress there.
    JoinBatch(usize, Set),
    /// DecreaseTargetSize by one arrives at a copy.
    AskLess(usize),
    /// IncreaseSize by one arrives at a copy.
    AskMore(usize),
    /// DeleteNodes of a number of placeholders arrives at a copy, which views the group and lists the Machines.
    AskPlaces(usize, i8),
    /// DeleteNodes of Machines and a number of placeholders arrives at a copy, which views the group and lists the
    /// Machines.
    AskBoth(usize, Set, i8),
    /// A caller of a copy leaves.
    Leave(usize),
    /// A copy carries on with wanted entries.
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
    /// A copy finds that a Machine must not be marked: it has joined, or is deleted by something else.
    NoMark(usize, usize),
    /// A copy removes a mark.
    Unmark(usize, usize),
    /// A copy lowers the size.
    Lower(usize, Set),
    /// A size write is refused for good.
    Refused(usize, Set),
    /// A copy removes entries from the log.
    TakeBack(usize, Set),
    /// A copy raises the size by one.
    Increase(usize),
    /// A copy lowers the size for a number of placeholders.
    LowerPlaces(usize, i8),
    /// A write of a copy gets no response; true if it was applied.
    Unanswered(usize, bool),
    /// The previous step of a copy, with a cache of Machines that lags behind.
    OfOldCache(usize),
    /// The `nodeRef` of a Machine is set.
    Refer(usize),
    /// A copy's watch of the Nodes shows a Machine's Node.
    ShowNode(usize, usize),
    /// The Node of a Machine that is being deleted is gone.
    LoseNode(usize),
    /// A mark is sent, gets no response, and will be applied late or never.
    SendMark(usize),
    /// The late mark is applied.
    LateMark(usize),
    /// A finisher has found a mark without an entry, and sends the patch that removes it.
    SendUnmark(usize),
    /// A finisher acts on a Machine.
    Finish(Finish, usize),
    /// A copy of the simple rule makes a call for a Machine.
    Calls(usize, &'static str, usize),
    /// A copy of the simple rule writes this size.
    Sizes(usize, i8),
    /// A copy is killed and starts again.
    Crash(usize),
    /// The MachineDeployment controller writes the MachineSet.
    Sync(i8),
    /// During a rollout, the MachineDeployment controller copies size and log to the new MachineSet or to the old one.
    Copy(usize, i8),
    /// During a rollout, the MachineDeployment controller writes the size of the new MachineSet or of the old one.
    Scale(usize, i8),
    /// The MachineSet controller acts.
    Reconcile {
        /// True for the old MachineSet.
        is_old: bool,
        /// The size that the controller sees.
        size: i8,
        /// The Machines that it deletes.
        deleted: Set,
        /// The Machines that it creates.
        created: Set,
        /// True if it ends without an error; otherwise the rest of its work is left.
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
    /// Somebody else deletes a Machine.
    ForeignDelete(usize),
    /// Somebody else sets the size to this value.
    ForeignSize(i8),
}

fn set_name(set: usize) -> &'static str {
    if set == 0 { "the new MachineSet" } else { "the old MachineSet" }
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
            Self::AskBoth(copy, set, count) => {
                write!(f, "DeleteNodes of [{set}] and {count} placeholders to {}, which views the group", who(copy))
            }
            Self::Leave(copy) => write!(f, "a caller of {} leaves", who(copy)),
            Self::CarryOn(copy) => write!(f, "{} carries on with what is wanted", who(copy)),
            Self::Fails(copy) => write!(f, "{}: the write fails its test", who(copy)),
            Self::ReadGroup(copy) => write!(f, "{} reads the group", who(copy)),
            Self::Count(copy) => write!(f, "{} views the group or lists the Machines", who(copy)),
            Self::Log(copy, set) => write!(f, "{} logs [{set}]", who(copy)),
            Self::Mark(Some(copy), machine) => write!(f, "{} marks {}", who(copy), one(machine)),
            Self::Mark(None, machine) => write!(f, "a finisher marks {}", one(machine)),
            Self::NoMark(copy, machine) => write!(f, "{} finds that {} isn't to be marked", who(copy), one(machine)),
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
            Self::Refer(machine) => write!(f, "the nodeRef of {} is written", one(machine)),
            Self::ShowNode(copy, machine) => write!(f, "the watch of {} shows the Node of {}", who(copy), one(machine)),
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
            Self::Calls(copy, what, machine) => write!(f, "{} {what} {}", who(copy), one(machine)),
            Self::Sizes(copy, size) => write!(f, "{} sets the size to {size}", who(copy)),
            Self::Crash(copy) => write!(f, "{} is killed and starts again", who(copy)),
            Self::Sync(size) => write!(f, "the MachineDeployment controller sets the MachineSet to {size}"),
            Self::Copy(set, size) => {
                write!(f, "the MachineDeployment controller copies the log and size {size} to {}", set_name(*set))
            }
            Self::Scale(set, size) => {
                write!(f, "the MachineDeployment controller sets {} to {size}", set_name(*set))
            }
            Self::Reconcile { is_old, size, deleted, created, is_without_error } => {
                let (end, of) = (
                    if *is_without_error { "" } else { ", and ends with an error" },
                    if *is_old { " of the old MachineSet" } else { "" },
                );
                write!(
                    f,
                    "the MachineSet controller sees size {size}{of}, deletes [{deleted}], creates [{created}]{end}"
                )
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
    /// Returns the step of a copy whose cache of Machines lags behind.
    pub(crate) fn of_old_cache(self) -> Self {
        match self {
            Self::AskLess(copy) | Self::ReadGroup(copy) | Self::Ask(copy, _) | Self::AskBoth(copy, ..) => {
                Self::OfOldCache(copy)
            }
            step => step,
        }
    }

    /// Returns the step of a write whose response is lost; `is_done` is true if it was applied.
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
