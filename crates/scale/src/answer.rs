//! Maps refused and failed commands to the errors that their callers receive. It must decide nothing and report
//! nothing.

use capi::{DELETING, REPLACED, SCALE_DOWN_WHILE_ROLLING_OUT};
use nodegroup::{
    GroupId, SizeError,
    replacement::timestamp,
    writing::{CallError, NotScalable, Ongoing},
};

use super::{
    error::ScaleError,
    lane::MOST_WAITING,
    rule::{NotDone, NotReplaced, Refusal},
};

/// Returns the error of a command on this group that wasn't carried out.
pub(super) fn not_done(id: &GroupId, why: &NotDone) -> ScaleError {
    match why {
        NotDone::NotScalable(why) => not_scalable(id, why),
        NotDone::Unreadable(error) => ScaleError::FailedPrecondition(format!("{id}: {error}")),
        NotDone::Abandoned => abandoned(id),
        NotDone::Size(error) => size(id, error),
        NotDone::Refused(refusal) => refused(id, refusal),
        NotDone::RollingOut(rollout) => ScaleError::FailedPrecondition(rolling_out(id, rollout)),
        NotDone::Failed(error) => failed(id, error),
        NotDone::Rejected { size, error } => rejected(id, *size, error),
        NotDone::Stranger(name) => ScaleError::Aborted(format!(
            "{id}: the annotation {DELETING} names Machine {name}, which isn't of this group; the entry is taken out, and \
             nothing is deleted for it"
        )),
        NotDone::DeletedElsewhere(name) => ScaleError::Aborted(format!(
            "{id}: Machine {name} is gone or being deleted by somebody else: the size isn't lowered for it"
        )),
        NotDone::GivenUp(name) => ScaleError::Aborted(format!(
            "{id}: the deletion of Machine {name} was given up by another copy of this program; try again"
        )),
        NotDone::NotReplaced(below, why) => not_replaced(id, below, why),
        NotDone::Pending(error) => ScaleError::Unavailable(format!(
            "{}; the deletion is decided and goes on: ask again for its result",
            failed(id, error)
        )),
        NotDone::NotTakenBack { why, error } => ScaleError::Unavailable(format!(
            "{}; nor can the decision be taken back ({}): the deletion stays noted in the annotation {DELETING} and is \
             carried out when the API server lets it; ask again for its result",
            not_done(id, why),
            not_done(id, error)
        )),
        NotDone::SizeUnread { from, to, why } => ScaleError::Unavailable(format!(
            "{}; so it isn't known whether the size write {from} to {to}, which had no answer, was done; read the size before \
             asking again",
            not_done(id, why)
        )),
        NotDone::SizeUnknown { from, to, now, error } => ScaleError::Unavailable(format!(
            "{}; it isn't known whether the size write {from} to {to} was done, and the size is {now} now",
            failed(id, error)
        )),
        NotDone::MaybeLogged(why) => not_done(id, why).unless_logged(),
        NotDone::InPart(why) => not_done(id, why).of_part(),
        NotDone::LoweredInPart(why) => not_done(id, why).unless_lowered(),
    }
}

pub(super) fn not_scalable(id: &GroupId, why: &NotScalable) -> ScaleError {
    match why {
        NotScalable::Unknown => {
            ScaleError::NotFound(format!("node group {id} is not known: it must be in scope and valid"))
        }
        NotScalable::Excluded(why) => {
            ScaleError::FailedPrecondition(format!("node group {id} can't be scaled now: {why}"))
        }
    }
}

pub(super) fn abandoned(id: &GroupId) -> ScaleError {
    ScaleError::Aborted(format!("{id}: the caller's deadline passed before anything was written; nothing was changed"))
}

/// Returns the error of a command that more wait before than may.
pub(super) fn too_many(id: &GroupId) -> ScaleError {
    ScaleError::Unavailable(format!(
        "{id}: {MOST_WAITING} commands of the node group wait for their turn already; nothing was changed: wait for their \
         results, and try again"
    ))
}

/// Returns the error of a wrong delta, or of a size beyond the group's bounds.
pub(super) fn size(id: &GroupId, error: &SizeError) -> ScaleError {
    let message = format!("{id}: {error}");
    match error {
        SizeError::Delta { .. } => ScaleError::InvalidArgument(message),
        SizeError::AboveMax { .. } | SizeError::BelowMin { .. } => ScaleError::FailedPrecondition(message),
    }
}

/// Returns the error of a size below the minimum, where none or not all of the named Machines are replaced instead.
fn not_replaced(id: &GroupId, below: &SizeError, why: &NotReplaced) -> ScaleError {
    let refusal = size(id, below);
    ScaleError::FailedPrecondition(match why {
        NotReplaced::Refused => return refusal,
        NotReplaced::Unread(text) => format!(
            "{refusal}; nor is one replaced, since the annotation {REPLACED} is too long to be read: {text}; the program \
             writes none so long: see who does, and remove it"
        ),
        NotReplaced::Wait(until) => format!(
            "{refusal}; a Machine that never became a Node was replaced not long ago, and the next can be at {:.0}",
            timestamp(*until)
        ),
        NotReplaced::Others { machine, others, next } => format!(
            "{refusal}; Machine {machine} is replaced, and {others} more have to wait: the next can be replaced at {:.0}",
            timestamp(*next)
        ),
    })
}

fn refused(id: &GroupId, refusal: &Refusal) -> ScaleError {
    match refusal {
        Refusal::InTheWay(name) => ScaleError::Aborted(format!(
            "{id}: Machine {name} may go for a smaller target size just now; try again in some seconds"
        )),
        Refusal::HasJoined(name) => has_joined(id, name),
        Refusal::Replaced { named, left } => ScaleError::FailedPrecondition(format!(
            "{id}: {named} replicas without a Machine were named and only {left} are left: the others have a Machine by now; \
             the size isn't changed for them, ask for the group's instances again"
        )),
        Refusal::IsOfMachines => is_of_machines(id),
        Refusal::BelowMin(error) => size(id, error),
        Refusal::Log(error) => ScaleError::Aborted(format!("{id}: {error}")),
    }
}

/// Returns the error of a request that names a Machine as one that never joined, although it has a Node.
pub(super) fn has_joined(id: &GroupId, machine: &str) -> ScaleError {
    ScaleError::FailedPrecondition(format!(
        "{id}: Machine {machine} has a Node by now, and was named as an instance that never joined; nothing was changed for \
         it, ask for the group's instances again"
    ))
}

/// Returns the error of a Machine without a Node for which the size was lowered already; it is deleted after the
/// rollout.
pub(super) fn waits_for_rollout(id: &GroupId, machine: &str) -> ScaleError {
    ScaleError::Unavailable(format!(
        "{id}: the size was lowered for Machine {machine} already; if the rollout leaves it, it is deleted by name when \
         the rollout has ended: if the rollout doesn't go on, see what its new Machines wait for"
    ))
}

/// Returns the error of a Node whose instance its MachinePool doesn't list.
pub(super) fn not_listed(id: &GroupId, node: &str) -> ScaleError {
    ScaleError::NotFound(format!(
        "Node {node} is annotated as one of node group {id}, whose spec.providerIDList doesn't have its providerID: the \
         instance has gone, or isn't listed yet; nothing was changed, since another instance would go in its place"
    ))
}

/// Returns the error of a named instance of a MachinePool whose Machine isn't known yet.
pub(super) fn is_of_machines(id: &GroupId) -> ScaleError {
    ScaleError::Aborted(format!(
        "{id}: the MachinePool has Machines, and that of a named instance isn't known yet; nothing was changed, try again in \
         some seconds"
    ))
}

/// Returns the error of an instance of a MachinePool without Machines, which can't be deleted by name.
pub(super) fn provider_would_choose(id: &GroupId) -> ScaleError {
    ScaleError::FailedPrecondition(format!(
        "{id}: the MachinePool has no Machines for these Nodes, so that its infrastructure provider would choose which \
         instance goes; nothing was changed: it is refused by --machine-pool-deletes=refuse"
    ))
}

/// Returns the reason why nothing is removed from a group that is rolling out: a smaller size is spread over its
/// MachineSets and may remove another Machine than the named one.
pub(super) fn rolling_out(id: &GroupId, rollout: &Ongoing) -> String {
    format!(
        "{id} is {}, since {}; a smaller size could take another Machine than the named one, so nothing was changed: ask \
         again when it is done; if it never ends, set its annotation {SCALE_DOWN_WHILE_ROLLING_OUT} to \"true\"",
        rollout.cause, rollout.since
    )
}

/// Returns the error of a size that the API server keeps rejecting, although the group is unchanged.
fn rejected(id: &GroupId, size: i32, error: &CallError) -> ScaleError {
    match error {
        CallError::Rejected(message) => {
            ScaleError::FailedPrecondition(format!("{id}: the API server refuses the size {size}: {message}"))
        }
        error => failed(id, error),
    }
}

/// Returns the error of a failed call.
pub(super) fn failed(id: &GroupId, error: &CallError) -> ScaleError {
    match error {
        CallError::Rejected(message) | CallError::Conflict(message) => {
            ScaleError::Aborted(format!("{id}: the object changed meanwhile: {message}; try again"))
        }
        CallError::Busy(message, _) => {
            ScaleError::Unavailable(format!("{id}: the API server is busy: {message}; try again"))
        }
        CallError::Unknown(message, _) => ScaleError::Unavailable(format!(
            "{id}: the API server gave no usable answer: {message}; read the size before asking again"
        )),
        CallError::Unauthorized(message) => ScaleError::Unavailable(format!(
            "{id}: the API server doesn't accept this program's credentials (401): {message}; nothing was changed. Renew \
             them where this program reads them, and try again"
        )),
        CallError::Missing(message) => ScaleError::NotFound(format!("{id}: the object is gone: {message}")),
        CallError::Forbidden(message) => ScaleError::PermissionDenied(format!(
            "{id}: {message}; grant this program's user get, list, patch and delete on Machines, get and patch on the \
             group's kind, and patch on its /scale"
        )),
        CallError::Refused(message) => {
            ScaleError::FailedPrecondition(format!("{id}: the API server refuses it: {message}"))
        }
        CallError::NotServed(why) => ScaleError::PermissionDenied(format!("{id}: {why}")),
        CallError::Abandoned => abandoned(id),
        CallError::NotDiscovered => ScaleError::Unavailable(format!(
            "{id}: discovery hasn't found yet how the API server serves this kind; try again"
        )),
    }
}
