//! Maps refused and failed commands to the errors that their callers receive. It must decide nothing and report
//! nothing.

use jiff::Timestamp;
use rules::capi::SCALE_DOWN_WHILE_ROLLING_OUT;
use rules::{GroupId, SizeError, call_error::CallError, group_version::NotScalable, rollout::Rollout, text::shortened};

use super::{error::ScaleError, queue::MOST_WAITING, request::LONGEST_ID};

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

/// Returns the error of a command while too many of its group wait.
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

/// Returns the error of a request at the minimum size whose Machines can't be replaced yet.
pub(super) fn not_replaced_yet(refusal: &ScaleError, until: Timestamp) -> ScaleError {
    ScaleError::FailedPrecondition(format!(
        "{refusal}; a Machine that never became a Node was replaced not long ago, and the next can be at {until:.0}"
    ))
}

/// Returns the error of a request at the minimum size of which one Machine is replaced.
pub(super) fn others_wait(refusal: &ScaleError, machine: &str, others: usize, next: Timestamp) -> ScaleError {
    ScaleError::FailedPrecondition(format!(
        "{refusal}; Machine {machine} is replaced, and {others} more have to wait: the next can be replaced at {next:.0}"
    ))
}

/// Returns the error of a request that names more replicas without a Machine than there are.
pub(super) fn have_machines(id: &GroupId, named: usize, left: usize) -> ScaleError {
    ScaleError::FailedPrecondition(format!(
        "{id}: {named} replicas without a Machine were named and only {left} are left: the others have a Machine by now; \
         nothing was changed, ask for the group's instances again"
    ))
}

/// Returns the error of a Machine that an OnDelete rollout wouldn't take for a smaller size.
pub(super) fn not_the_oldest(id: &GroupId, oldest: &str) -> ScaleError {
    ScaleError::FailedPrecondition(format!(
        "{id} rolls out with the strategy OnDelete, so that a smaller size is taken from its oldest MachineSet, {oldest}: \
         only Machines of that one can be deleted now; nothing was changed"
    ))
}

/// Returns the error of a Machine that wasn't deleted.
pub(super) fn not_deleted(id: &GroupId, machine: &str, error: &CallError) -> ScaleError {
    match error {
        CallError::Refused(message) => ScaleError::FailedPrecondition(format!(
            "{id}: the API server refuses to delete Machine {machine}: {message}; the size isn't changed for it"
        )),
        error => failed(id, error),
    }
}

/// Returns the error of a deletion without an answer, after which the Machine is gone or being deleted.
pub(super) fn delete_unknown(id: &GroupId, machine: &str) -> ScaleError {
    ScaleError::Unavailable(format!(
        "{id}: Machine {machine} is being deleted, and the API server gave no answer that shows by whom; the size isn't \
         lowered for it, so that it may be replaced"
    ))
}

/// Returns the error of a request whose Machines were deleted, and for which the size can't be lowered.
pub(super) fn will_be_replaced(count: usize, why: &ScaleError) -> ScaleError {
    let (machines, them) = if count == 1 { ("1 Machine was", "it") } else { ("Machines were", "them") };
    let count = if count == 1 { String::new() } else { format!("{count} ") };
    ScaleError::Unavailable(format!(
        "{count}{machines} deleted, and the size couldn't be lowered for {them}, so that Cluster API replaces {them}: {why}"
    ))
}

/// Returns the error of a size that has come down to the minimum while Machines were being deleted.
pub(super) fn below_min(id: &GroupId, spared: i32, min: i32) -> ScaleError {
    ScaleError::FailedPrecondition(format!(
        "{id}: somebody else has lowered the size meanwhile, and lowering it by {spared} more would pass the minimum of {min}"
    ))
}

/// Returns the error of a smaller size whose group was deleted and created again.
pub(super) fn made_anew(id: &GroupId) -> ScaleError {
    ScaleError::NotFound(format!("{id}: the object is gone, and its size isn't lowered for another one of this name"))
}

/// Returns the error of a size write without an answer that can't be told from the writes of others.
pub(super) fn size_unknown(id: &GroupId, (from, to, now): (i32, i32, i32), error: &CallError) -> ScaleError {
    ScaleError::Unavailable(format!(
        "{}; it isn't known whether the size write {from} to {to} was done, and the size is {now} now",
        failed(id, error)
    ))
}

/// Returns the answer for a refusal after a size write without an answer.
pub(super) fn size_unread(why: &ScaleError, from: i32, to: i32) -> ScaleError {
    ScaleError::Unavailable(format!(
        "{why}; so it isn't known whether the size write {from} to {to}, which had no answer, was done; read the size before \
         asking again"
    ))
}

/// Returns the error of a larger size that a manager would put back.
pub(super) fn put_back(id: &GroupId, manager: &str) -> ScaleError {
    ScaleError::FailedPrecondition(format!(
        "{id}: field manager {manager} keeps putting the size back, so it isn't raised for now; leave spec.replicas out of \
         what it applies to this group, once both size annotations are set, or the group out of autoscaling"
    ))
}

/// Returns the error of a command on a group whose size somebody else keeps changing.
pub(super) fn changed(id: &GroupId) -> ScaleError {
    ScaleError::Aborted(format!(
        "{id}: somebody else changes the size at the same time; nothing was changed, try again"
    ))
}

/// Returns the error of a request that names a Machine as one that never joined, although it has a Node.
pub(super) fn has_joined(id: &GroupId, machine: &str) -> ScaleError {
    instance_has_joined(id, &format!("Machine {machine}"))
}

/// Returns the error of a request that names an instance as one without a Node, although it has one.
pub(super) fn instance_has_joined(id: &GroupId, instance: &str) -> ScaleError {
    ScaleError::FailedPrecondition(format!(
        "{id}: {instance} has a Node by now, and was named as an instance that never joined; nothing was changed for it, ask \
         for the group's instances again"
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

/// Returns the error of a delete while the group is rolling out: a smaller size is spread over its MachineSets and may
/// remove another Machine than the named one.
pub(super) fn rolling_out(id: &GroupId, rollout: &Rollout) -> ScaleError {
    ScaleError::FailedPrecondition(format!(
        "{id} is {}, since {}; a smaller size could take another Machine than the named one, so nothing was changed: ask \
         again when it is done; if it never ends, set its annotation {SCALE_DOWN_WHILE_ROLLING_OUT} to \"true\"",
        rollout.cause, rollout.since
    ))
}

/// Returns the error of a Node of another group.
pub(super) fn of_another_group(id: &GroupId, node: &str, other: &GroupId) -> ScaleError {
    let node = shortened(node, LONGEST_ID);
    ScaleError::InvalidArgument(format!("Node {node} belongs to node group {other}, not to {id}; nothing was changed"))
}

/// Returns the error of a Node that leads to no Machine.
pub(super) fn unknown_node(id: &GroupId, node: &str) -> ScaleError {
    let node = shortened(node, LONGEST_ID);
    ScaleError::NotFound(format!(
        "Node {node} leads to no Machine of node group {id}: neither its providerID nor its annotations are known; \
         nothing was changed"
    ))
}

/// Returns the answer of a server that may not write to a command that would change the size. `machines` are the names
/// of the Machines that it would remove.
pub(super) fn would_be_scaled(id: &GroupId, (from, to): (i32, i32), machines: &str) -> ScaleError {
    let what = if machines.is_empty() { String::new() } else { format!(", for Machines {machines}") };
    ScaleError::ReadOnly(format!(
        "{id}: would be scaled from {from} to {to}{what}; nothing was changed, since this server is started with --read-only"
    ))
}

/// Returns the answer of a server that may not write to a decrease that would change nothing.
pub(super) fn would_be_left(id: &GroupId, why: &str) -> ScaleError {
    ScaleError::ReadOnly(format!(
        "{id}: the size would be left as it is: {why}; this server is started with --read-only and changes none"
    ))
}

/// Returns the error of a command after the server has begun to shut down.
pub(super) fn shutting_down(id: &GroupId) -> ScaleError {
    ScaleError::Unavailable(format!("{id}: this server is shutting down; try again"))
}

/// Returns the error of a command whose task ended without a result.
pub(super) fn without_result() -> ScaleError {
    let text = "the command ended without a result; read the group's size and try again";
    ScaleError::Unavailable(text.to_owned())
}

/// Returns the error of a size that the API server keeps rejecting, although the group is unchanged.
pub(super) fn rejected(id: &GroupId, size: i32, error: &CallError) -> ScaleError {
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
        CallError::OutcomeUnknown(message, _) => ScaleError::Unavailable(format!(
            "{id}: the API server gave no usable answer: {message}; read the size before asking again"
        )),
        CallError::Unauthorized(message) => ScaleError::Unavailable(format!(
            "{id}: the API server doesn't accept this program's credentials (401): {message}; nothing was changed. Renew \
             them where this program reads them, and try again"
        )),
        CallError::Missing(message) => ScaleError::NotFound(format!("{id}: the object is gone: {message}")),
        CallError::Forbidden(message) => ScaleError::PermissionDenied(format!(
            "{id}: {message}; grant this program's user get, list and delete on Machines, get on the group's kind, and \
             patch on its /scale"
        )),
        CallError::Refused(message) => {
            ScaleError::FailedPrecondition(format!("{id}: the API server refuses it: {message}"))
        }
        CallError::GivenUp(why) => ScaleError::FailedPrecondition(format!("{id}: {why}; nothing was changed")),
        CallError::NotServed(why) => ScaleError::PermissionDenied(format!("{id}: {why}")),
        CallError::Abandoned => abandoned(id),
        CallError::NotDiscovered => ScaleError::Unavailable(format!(
            "{id}: discovery hasn't found yet how the API server serves this kind; try again"
        )),
    }
}
