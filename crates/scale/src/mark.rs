//! Mark, then lower: how Machines are removed where deleting one doesn't make a smaller size take it. A MachinePool's
//! provider chooses by the mark or by itself; MachineSets of API groups other than Cluster API's replace a Machine that
//! is being deleted at once. As Cluster Autoscaler's own provider does, each Machine gets the delete-machine annotation
//! before the size is lowered. Nothing is followed, and nothing is deleted by name.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rules::call_error::CallError;
use rules::capi::ScalableKind;

use super::{
    delete::{Fate, has_joined},
    metrics::Write,
    refusal,
    request::Target,
    turn::Turn,
};

/// The value of a mark before its time.
const MARKED_BY: &str = "capi-autoscaler-provider ";
/// The time for which the size counts as lowered for a marked Machine that is there still: another replica of this
/// program, or an earlier command, has marked it.
const MARKED_FOR: Duration = Duration::from_secs(60);

/// Returns true if the Machines of this group are marked rather than deleted.
pub(super) fn annotates_instead(turn: &Turn) -> bool {
    turn.id.kind == ScalableKind::MachinePool || !turn.api().counts_deleting()
}

/// Marks a Machine.
pub(super) async fn mark(turn: &Turn, target: &Target) -> Fate {
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
pub(super) async fn unmark(turn: &Turn, marked: &[Target]) {
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
