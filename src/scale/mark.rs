//! The marks of Machines: each is set under the ticket of its Machine's entry, and shows what it finds. It must never mark a
//! Machine that is given up as one that never joined without a test of the version in which it had no Node.

use arcstr::ArcStr;

use super::{
    api::MachineSeen,
    call_error::CallError,
    metrics::Write,
    read,
    rule::{Life, Marking, NotMarked, RULE, machine_of},
    work::Work,
};
use crate::{
    capi::ObjectKey,
    informer::ResourceVersion,
    nodegroup::{Phase, Ticket, deletion_log::Entry},
};

/// Marks a Machine under its entry's ticket, and returns its life as its mark has shown it. One that is given up as one that
/// never joined is read whole first, unless `version` is one in which it had no Node, and the mark tests that version. One
/// that is gone needs no mark, nor does one that somebody else has marked.
pub(super) async fn mark(work: &Work, entry: &Entry, version: Option<&ResourceVersion>) -> Result<Life, NotMarked> {
    let key = work.machine_key(&entry.name);
    if work.index().is_of(&work.id, &key, &entry.uid).is_none() {
        match work.api().read_machine(&key, &entry.uid).await.map_err(NotMarked::Failed)? {
            None if entry.soft && entry.phase == Phase::Wanted => return Err(NotMarked::Going),
            None => return Ok(Life::Gone),
            Some(seen) if seen.is_of(&work.index().owners(&work.id)) => {}
            Some(_) => {
                let why = format!("the log names Machine {}, which isn't known yet as one of the group's", entry.name);
                return Err(NotMarked::Failed(CallError::Unknown(why, None)));
            }
        }
    }
    let is_marked_by_another =
        work.index().mark_of(&key, &entry.uid).is_some_and(|mark| Ticket::of_mark(&mark).is_none());
    if entry.gives_up() && entry.phase == Phase::Wanted {
        return mark_pending(work, &key, entry, version, is_marked_by_another).await;
    }
    if is_marked_by_another {
        return read::life(work, &machine_of(entry)).await.map_err(NotMarked::Failed);
    }
    let mark = entry.ticket.mark();
    match work.write(Write::Mark, work.api().set_mark(&key, &entry.uid, None, &mark)).await {
        // Another Machine has its name by now, or another write came between.
        Err(error @ (CallError::Rejected(_) | CallError::Conflict(_))) => {
            match read::life(work, &machine_of(entry)).await.map_err(NotMarked::Failed)? {
                Life::Gone => Ok(Life::Gone),
                Life::Alive | Life::Deleting => Err(NotMarked::Failed(error)),
            }
        }
        Err(CallError::Missing(_)) => Ok(Life::Gone),
        marked => marked.map(|machine| life_of(&machine)).map_err(NotMarked::Failed),
    }
}

async fn mark_pending(
    work: &Work,
    key: &ObjectKey,
    entry: &Entry,
    known: Option<&ResourceVersion>,
    is_marked_by_another: bool,
) -> Result<Life, NotMarked> {
    // A mark that somebody else has set tests nothing: the Machine is read in its stead.
    let known = known.filter(|_| !is_marked_by_another);
    let version = if let Some(version) = known {
        Some(version.clone())
    } else {
        let whole = read::whole(work, &machine_of(entry)).await.map_err(NotMarked::Failed)?;
        match RULE.marking(entry, whole.life, whole.has_joined, whole.ticket.as_ref()) {
            Marking::Mark => {}
            Marking::Marked => return Ok(whole.life),
            Marking::NotNeeded => return Ok(Life::Gone),
            Marking::Joined => return Err(NotMarked::Joined),
            Marking::Going => return Err(NotMarked::Going),
        }
        is_still_logged(work, entry).await.map_err(NotMarked::Failed)?;
        whole.version
    };
    if is_marked_by_another {
        return Ok(if version.is_some() { Life::Alive } else { Life::Deleting });
    }
    let mark = entry.ticket.mark();
    match work.write(Write::Mark, work.api().set_mark(key, &entry.uid, version.as_ref(), &mark)).await {
        Err(CallError::Missing(_)) if entry.soft => Err(NotMarked::Going),
        Err(CallError::Missing(_)) => Ok(Life::Gone),
        // It has changed since: it is read again with the next attempt.
        marked => marked.map(|machine| life_of(&machine)).map_err(NotMarked::Failed),
    }
}

/// Reads the log after the Machine: an entry that was taken back meanwhile must not be marked.
async fn is_still_logged(work: &Work, entry: &Entry) -> Result<(), CallError> {
    let version = read::group(work).await?;
    let log = version.log().map_err(|error| CallError::Refused(error.to_string()))?;
    if log.get(&entry.uid) == Some(entry) {
        return Ok(());
    }
    let why = format!("the log has another entry of Machine {} by now, or none", entry.name);
    Err(CallError::Conflict(why))
}

/// Takes a mark of ours off a Machine of this version. A failure is only logged: the finisher finds the mark again.
pub(super) async fn unmark(work: &Work, name: &ArcStr, mark: &ArcStr, version: &ResourceVersion) -> bool {
    let key = work.machine_key(name);
    let result = work.write(Write::Unmark, work.api().take_mark(&key, mark, version)).await;
    // It is gone, or has changed, so that it is looked at again.
    let is_off = matches!(result, Ok(()) | Err(CallError::Missing(_) | CallError::Rejected(_)));
    if let Err(error) = result
        && !is_off
    {
        tracing::warn!(group = %work.id, machine = %name, "can't take the delete-machine annotation back; this is tried again: {}", work.failed(&error));
    }
    is_off
}

fn life_of(machine: &MachineSeen) -> Life {
    if machine.deleting { Life::Deleting } else { Life::Alive }
}
