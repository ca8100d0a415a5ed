//! How Machines go, several at a time, and how the size follows.
//!
//! Most are deleted by name, and the size is lowered by those that were. Where a deletion doesn't make a smaller size take
//! the Machine, it is marked before the size is lowered, as Cluster Autoscaler's own provider does: a MachinePool's
//! provider chooses by the mark or by itself, and MachineSets of API groups other than Cluster API's replace a Machine that
//! is being deleted at once.

use std::{pin::pin, time::Duration};

use arcstr::ArcStr;
use futures::{
    StreamExt as _,
    future::{self, Either},
    stream,
};
use index::{Hold, ScaleView};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use rules::{call_error::CallError, capi::ScalableKind};
use tokio::time::{sleep, timeout};

use super::{
    api::MachineDetails,
    error::ScaleError,
    metrics::Write,
    refusal,
    request::Target,
    size_write::{Aim, SizeWrite, Written, as_i32},
    turn::Turn,
};

/// The maximum number of Machines that are deleted at a time.
const SIDE_BY_SIDE: usize = 16;
/// The time after which a smaller size no longer waits for DELETEs without an answer.
const SLOW: Duration = Duration::from_secs(2);
/// The maximum time that is waited for Cluster API to see that Machines are being deleted. It may be down.
const SEEN_WITHIN: Duration = Duration::from_secs(2);
/// The pause before the watch is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// The value of a mark before its time.
const MARKED_BY: &str = "capi-autoscaler-provider ";
/// The time for which the size counts as lowered for a marked Machine that is there still: another replica of this
/// program, or an earlier command, has marked it.
const MARKED_FOR: Duration = Duration::from_secs(60);

/// What became of a Machine that was to go.
#[derive(Debug)]
pub(super) enum Fate {
    /// This command has deleted it, or marked it: the size is to be lowered.
    Removed,
    /// This command has deleted or marked it, and has lowered the size for it.
    RemovedAndLowered,
    /// This command has deleted or marked it, and couldn't lower the size for it.
    RemovedNotLowered(ScaleError),
    /// It is gone, or somebody else is deleting it. This command doesn't lower the size for it.
    RemovedByOthers,
    /// It may be this command that has deleted it: the size isn't lowered, and it may be replaced.
    MaybeRemoved,
    /// It was given up as one that never joined, and has a Node by now.
    HasJoined,
    /// It stays: the API server refuses to delete it, or can't be reached.
    Stays(CallError),
}

impl Fate {
    /// Returns true if this command has deleted or marked the Machine.
    pub(super) fn is_removed(&self) -> bool {
        matches!(self, Self::Removed | Self::RemovedAndLowered | Self::RemovedNotLowered(_))
    }
}

/// Removes Machines side by side: deletes or marks them. While some are slow to go, the size is lowered here for those that
/// are removed, since MachineSets replace a Machine as soon as it is gone. For the last ones the calling function lowers it.
pub(super) async fn remove(turn: &Turn, targets: Vec<Target>, fates: &mut Vec<(Target, Fate)>) {
    let (is_marked, dry_run_first) = (marks_machines(turn), turn.index().are_deletes_refused(&turn.id));
    let first = fates.len();
    let all = Mutex::new(&mut *fates);
    {
        let mut removing = pin!(stream::iter(targets).for_each_concurrent(SIDE_BY_SIDE, async |target| {
            let fate =
                if is_marked { mark(turn, &target).await } else { delete_one(turn, &target, dry_run_first).await };
            record(turn, &target, &fate);
            all.lock().push((target, fate));
        }));
        while timeout(SLOW, removing.as_mut()).await.is_err() {
            let done: Vec<_> = still_to_lower(&all.lock()).cloned().collect();
            if done.is_empty() {
                continue;
            }
            let (lowered, is_last) = match future::select(removing.as_mut(), pin!(lower_by(turn, &done))).await {
                Either::Left(((), lowering)) => (lowering.await, true),
                Either::Right((lowered, _)) => (lowered, false),
            };
            for (_, fate) in all.lock().iter_mut().filter(|(target, _)| done.contains(target)) {
                *fate = lowered.clone().map_or_else(Fate::RemovedNotLowered, |()| Fate::RemovedAndLowered);
            }
            if is_last {
                break;
            }
        }
    }
    let refused = fates[first..].iter().find_map(|(_, fate)| match fate {
        Fate::Stays(error @ (CallError::Refused(_) | CallError::Forbidden(_))) => Some(error.to_string()),
        _ => None,
    });
    match refused {
        Some(why) => turn.index().hold(&turn.id, Some(Hold::DeletesRefused(why))),
        None if dry_run_first && fates[first..].iter().any(|(_, fate)| fate.is_removed()) => {
            turn.index().hold(&turn.id, None);
        }
        None => {}
    }
}

/// Records what became of a Machine, for later requests and for the errors of instances.
pub(super) fn record(turn: &Turn, target: &Target, fate: &Fate) {
    match fate {
        Fate::Removed => turn.shared.accepted_deletions.deleted(&turn.id, &target.uid),
        Fate::Stays(error) if error.was_sent() => turn.index().record_failed_delete(&target.key, &target.uid),
        Fate::RemovedAndLowered
        | Fate::RemovedNotLowered(_)
        | Fate::RemovedByOthers
        | Fate::MaybeRemoved
        | Fate::HasJoined
        | Fate::Stays(_) => {}
    }
}

/// Iterates over the Machines that were deleted or marked, for which the size isn't lowered yet.
pub(super) fn still_to_lower(fates: &[(Target, Fate)]) -> impl Iterator<Item = &Target> {
    fates.iter().filter_map(|(target, fate)| matches!(fate, Fate::Removed).then_some(target))
}

/// Deletes a Machine, as the version on which that was decided. `dry_run_first` lets a dry run go first.
pub(super) async fn delete_one(turn: &Turn, target: &Target, dry_run_first: bool) -> Fate {
    let Target { key, uid, never_joined, .. } = target;
    let (mut version, mut attempts, mut is_unanswered) = (target.version.clone(), turn.attempts(), false);
    let gone = |is_unanswered: bool| if is_unanswered { Fate::MaybeRemoved } else { Fate::RemovedByOthers };
    let mut dry_run_first = dry_run_first;
    loop {
        if *never_joined && turn.index().has_joined(key, uid) {
            return if is_unanswered { Fate::MaybeRemoved } else { Fate::HasJoined };
        }
        let write = if dry_run_first { Write::DryRun } else { Write::Delete };
        let error = match turn.write(write, turn.api().delete_machine(key, uid, &version, dry_run_first)).await {
            Ok(()) if dry_run_first => {
                dry_run_first = false;
                continue;
            }
            Ok(()) => return Fate::Removed,
            Err(CallError::Missing(_)) => return gone(is_unanswered),
            Err(error) => error,
        };
        is_unanswered |= !dry_run_first && matches!(error, CallError::OutcomeUnknown(..));
        let again = attempts.again(&error).await;
        // A Cluster Autoscaler that has given up the call has made the Node schedulable again.
        if !is_unanswered && (!again || turn.has_no_caller()) {
            return Fate::Stays(error);
        }
        if again && error.is_not_now() {
            continue;
        }
        // It has changed, or the answer was lost.
        match turn.api().read_machine(key, uid).await {
            Ok(None) => return gone(is_unanswered),
            Ok(Some(machine)) if machine.deleting => return gone(is_unanswered),
            Ok(Some(machine)) if *never_joined && has_joined(turn, target, &machine) => return Fate::HasJoined,
            Ok(Some(_)) if !again => return if is_unanswered { Fate::MaybeRemoved } else { Fate::Stays(error) },
            Ok(Some(machine)) => version = machine.version,
            Err(read) if attempts.again(&read).await => {}
            Err(read) => return if is_unanswered { Fate::MaybeRemoved } else { Fate::Stays(read) },
        }
    }
}

/// Returns true if a Machine has a Node, by the nodeRef that was read or by a Node of the workload cluster.
fn has_joined(turn: &Turn, target: &Target, machine: &MachineDetails) -> bool {
    machine.node_name.is_some() || turn.index().has_node_that_leads_to(&target.key, machine.provider_id.as_ref())
}

/// Lowers the size by Machines that were deleted or marked, as far as the minimum lets it.
pub(super) async fn lower_by(turn: &Turn, removed: &[Target]) -> Result<(), ScaleError> {
    let ScaleView { version, bounds, .. } = match turn.view() {
        Ok(view) => view,
        Err(why) => return Err(not_lowered(turn, removed, why).await),
    };
    until_seen(turn, removed).await;
    let names: Vec<ArcStr> = removed.iter().map(|target| target.key.name.clone()).collect();
    let by = as_i32(removed.len());
    let error = match SizeWrite::after(turn, &names).write(version, Aim::Lower { by, min: bounds.min }).await {
        Ok(written) => match by - written.map_or(0, |Written { from, to, .. }| from - to) {
            0 => return Ok(()),
            spared => refusal::below_min(&turn.id, spared, bounds.min),
        },
        Err(error) => error,
    };
    Err(not_lowered(turn, removed, error).await)
}

/// Returns the error of a request for which the size couldn't be lowered. Marks are taken back; a Machine that was
/// deleted is replaced.
async fn not_lowered(turn: &Turn, removed: &[Target], error: ScaleError) -> ScaleError {
    if marks_machines(turn) {
        unmark(turn, removed).await;
        error
    } else {
        refusal::will_be_replaced(removed.len(), &error)
    }
}

/// Waits until Cluster API has seen that Machines are being deleted, or they are gone. A MachineSet controller that sees
/// the smaller size of a MachineSet before the deletion of its Machine takes another one (seen with Cluster API 1.14);
/// the size of a MachineDeployment takes one hop more. The Machine controller of the same process writes the phase from
/// the same cache.
async fn until_seen(turn: &Turn, deleted: &[Target]) {
    if turn.id.kind != ScalableKind::MachineSet || !turn.api().counts_deleting() {
        return;
    }
    let is_seen = || deleted.iter().all(|target| turn.index().shows_deletion_of(&target.key, &target.uid));
    let looked = async {
        while !is_seen() {
            sleep(LOOK_AGAIN).await;
        }
    };
    if timeout(SEEN_WITHIN, looked).await.is_err() {
        tracing::debug!(group = %turn.id, "Cluster API hasn't shown for {SEEN_WITHIN:?} that it sees the deletion");
    }
}

/// Returns true if the Machines of this group are marked rather than deleted.
fn marks_machines(turn: &Turn) -> bool {
    turn.id.kind == ScalableKind::MachinePool || !turn.api().counts_deleting()
}

/// Marks a Machine.
async fn mark(turn: &Turn, target: &Target) -> Fate {
    let Target { key, uid, never_joined, .. } = target;
    let mut attempts = turn.attempts();
    loop {
        let machine = match turn.api().read_machine(key, uid).await {
            Ok(None) => return Fate::RemovedByOthers,
            Ok(Some(machine)) if machine.deleting => return Fate::RemovedByOthers,
            Ok(Some(machine)) if *never_joined && has_joined(turn, target, &machine) => return Fate::HasJoined,
            Ok(Some(machine)) => machine,
            Err(error) if attempts.again(&error).await => continue,
            Err(error) => return Fate::Stays(error),
        };
        if machine.delete_mark.as_deref().is_some_and(|mark| is_recent(mark, Timestamp::now())) {
            return Fate::RemovedByOthers;
        }
        // The read may have taken longer than the caller waits.
        if turn.is_abandoned() {
            return Fate::Stays(CallError::Abandoned);
        }
        let value = format!("{MARKED_BY}{:.0}", Timestamp::now());
        match turn.write(Write::Mark, turn.api().set_mark(key, uid, &machine.version, &value)).await {
            Ok(machine) if machine.is_deleting() => return Fate::RemovedByOthers,
            Ok(_) => return Fate::Removed,
            Err(CallError::Missing(_)) => return Fate::RemovedByOthers,
            // A mark without an answer may be there. Another replica that finds it leaves the Machine to this one.
            Err(error) if attempts.again(&error).await => {}
            Err(error) => return Fate::Stays(error),
        }
    }
}

/// Returns true if this program has set a mark a moment ago.
fn is_recent(mark: &str, now: Timestamp) -> bool {
    let time = mark.strip_prefix(MARKED_BY).and_then(rules::capi::time);
    let limit = SignedDuration::try_from(MARKED_FOR).unwrap_or(SignedDuration::MAX);
    time.is_some_and(|time| now.duration_since(time).abs() < limit)
}

/// Takes back the marks of Machines for which the size couldn't be lowered.
async fn unmark(turn: &Turn, marked: &[Target]) {
    for target in marked {
        turn.shared.accepted_deletions.stays(&turn.id, &target.uid);
        let taken = turn.write_unchecked(Write::Unmark, turn.api().take_mark(&target.key, &target.uid)).await;
        if let Err(error) = taken {
            let failed = refusal::failed(&turn.id, &error);
            tracing::warn!(group = %turn.id, machine = %target.key.name, "can't take the delete-machine annotation back: {failed}");
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::ours_a_moment_ago("capi-autoscaler-provider 2026-01-01T11:59:30Z", true)]
    #[case::ours_long_ago("capi-autoscaler-provider 2026-01-01T11:58:00Z", false)]
    #[case::somebody_elses("yes", false)]
    #[case::in_trees("2026-01-01 11:59:59 +0000 UTC", false)]
    fn a_mark_counts_for_a_minute(#[case] mark: &str, #[case] expected: bool) {
        assert_eq!(is_recent(mark, "2026-01-01T12:00:00Z".parse().unwrap()), expected);
    }
}
