//! One look of the finisher at a group: it sees the deletions that are on their way to their end, whoever began them. The rule
//! decides ([`delete_rule::Look`], [`delete_rule::steps::Carry`]). It must never hold up a command for longer than one look
//! takes.

use futures::{StreamExt as _, stream};

use super::{
    answer,
    call_error::CallError,
    events::Happening,
    metrics::Write,
    now,
    outcome::tickets_of,
    passes::Pass,
    read,
    rule::{
        self, Carry, Finish, Followed, Life, Listed, Look, LookCall, Mark, Marked, NotLowered, NotMarked, RULE,
        machine_of,
    },
    run,
    work::Work,
};
use crate::{
    capi::Meta,
    index::DeletionView,
    nodegroup::{Bounds, DeletionLog, Ticket, deletion_log::Entry},
};

/// The outcome of a call of a look.
enum Outcome {
    Life(Entry, Life),
    Group,
    Listed(Listed),
    Done,
}

/// Looks at the group's deletions once, and does what can be done.
pub(super) async fn look(work: &Work) -> Pass {
    let (memory, id) = (&work.shared.memory, &work.id);
    let Some(view) = work.index().deletions(id) else {
        memory.forget(id);
        return Pass::Done;
    };
    let log = match view.version.log() {
        Ok(log) => log,
        Err(error) => {
            if memory.is_new_unreadable(id, &view.version) {
                tracing::warn!(group = %id, "deletions can't be finished: {error}");
            }
            return Pass::Done;
        }
    };
    let followed = rule::followed(id.kind, &view.sets);
    let (steps, left_until) = memory.decide(id, &log, &view.machines, &followed);
    let mut pass = left_until.map_or(Pass::Done, Pass::Waits);
    if steps.contains(&Finish::CarryOn) {
        pass = pass.and(carry_on(work, &view, &log).await);
    }
    match settle(work, &view, steps).await {
        Ok(()) => pass,
        Err(error) => {
            tracing::warn!(group = %id, "can't finish deletions; this is tried again: {}", work.failed(&error));
            Pass::Failed
        }
    }
}

/// Lowers the size for what is wanted, unless another copy may just be at it.
async fn carry_on(work: &Work, view: &DeletionView, log: &DeletionLog) -> Pass {
    let id = &work.id;
    let (ripe, next) = work.shared.memory.ripe(id, log);
    let waits = next.map_or(Pass::Done, Pass::Waits);
    if ripe.is_empty() {
        return waits;
    }
    let bounds = Bounds { min: view.min, max: i32::MAX };
    let mut carry = Carry::new(RULE, view.version.clone(), ripe, Vec::new(), bounds, Marked::default());
    run::carry_out(work, &mut carry, |_| false).await;
    let mut pass = waits;
    for failure in carry.failures().values() {
        let error = answer::not_done(id, failure.why());
        match failure {
            NotLowered::Spared(_) => {
                tracing::info!(group = %id, "a deletion that was decided is given up: {error}");
            }
            NotLowered::Refused(_) => {
                tracing::warn!(group = %id, code = error.code(), "a deletion that was decided is given up: {error}");
                // The next look finds what is left of it.
                pass = Pass::Failed;
            }
            NotLowered::Pending(_) => {
                tracing::warn!(group = %id, code = error.code(), "a deletion that was decided waits: {error}");
                pass = Pass::Failed;
            }
        }
    }
    pass
}

/// Deletes by name what a smaller size has left, corrects marks, and forgets what is over. A failure holds up nothing else;
/// the first is reported in the end.
async fn settle(work: &Work, view: &DeletionView, steps: Vec<Finish>) -> Result<(), CallError> {
    let mut look = RULE.look(steps);
    let mut failures = Vec::new();
    let mut now = None;
    loop {
        let calls = look.next(now.as_ref().map(|(log, followed)| (log, followed)));
        if calls.is_empty() {
            break;
        }
        let outcomes = stream::iter(calls).map(|call| perform(work, &look, call));
        for outcome in outcomes.buffer_unordered(delete_rule::steps::SIDE_BY_SIDE).collect::<Vec<_>>().await {
            match outcome {
                Ok(Outcome::Life(entry, life)) => look.took_life(entry, life),
                Ok(Outcome::Group) => {
                    look.took_group();
                    now = followed_now(work);
                }
                Ok(Outcome::Listed(listed)) => {
                    let sizes = view.sets.iter().map(|set| i64::from(set.object.replicas.unwrap_or_default()));
                    look.took_list(&listed.alive, sizes.sum());
                }
                Ok(Outcome::Done) => {}
                Err(error) => failures.push(error),
            }
        }
    }
    failures.extend(forget(work, view, &look).await.err());
    failures.into_iter().next().map_or(Ok(()), Err)
}

/// Makes a call of a look.
async fn perform(work: &Work, look: &Look, call: LookCall) -> Result<Outcome, CallError> {
    match call {
        LookCall::Read(entry) => {
            // A stranger's Machine is nothing that this group waits for.
            let is_stranger = now::is_stranger(work, &entry);
            let life = if is_stranger { Life::Gone } else { read::life(work, &machine_of(&entry)).await? };
            Ok(Outcome::Life(entry, life))
        }
        LookCall::ReadGroup => read::group(work).await.map(|_| Outcome::Group),
        LookCall::Delete(entry) => delete_by_name(work, look, &entry).await,
        LookCall::Mark(entry) => {
            let mut mark = Mark::new(RULE, entry, None);
            run::carry_out(work, &mut mark, |_| false).await;
            match mark.end() {
                Some(Err(NotMarked::Failed(error))) => Err(error.clone()),
                Some(Ok(_) | Err(NotMarked::Joined | NotMarked::Going)) | None => Ok(Outcome::Done),
            }
        }
        LookCall::Unmark(machine) => {
            let Meta { key, resource_version, .. } = &machine.meta;
            let Some(ticket) = machine.delete_mark.as_deref().and_then(Ticket::of_mark) else {
                return Ok(Outcome::Done);
            };
            match run::unmark(work, &key.name, &ticket, resource_version).await {
                // It has changed, so that it is looked at again.
                Ok(()) | Err(CallError::Rejected(_)) => Ok(Outcome::Done),
                Err(error) => {
                    let failed = work.failed(&error);
                    tracing::warn!(group = %work.id, machine = %key.name, "can't take the delete-machine annotation back; this is tried again: {failed}");
                    Err(CallError::Unknown(format!("the mark of Machine {} stays", key.name), None))
                }
            }
        }
        LookCall::List => read::list(work).await.map(Outcome::Listed),
    }
}

/// The group's log as it is known now, own reads and writes included, and what of it is followed.
fn followed_now(work: &Work) -> Option<(DeletionLog, Followed)> {
    let (version, sets) = work.index().sets(&work.id)?;
    let log = version.log().ok()?;
    Some((log, rule::followed(work.id.kind, &sets)))
}

/// Deletes a Machine that is there though its deletion was spent on another one, if that still is so.
async fn delete_by_name(work: &Work, look: &Look, entry: &Entry) -> Result<Outcome, CallError> {
    // Nothing is awaited between this and the call.
    if !followed_now(work).is_some_and(|(log, followed)| look.permits(entry, (&log, &followed))) {
        return Ok(Outcome::Done);
    }
    let key = work.machine_key(&entry.name);
    let result = work.write(Write::Delete, work.api().delete_machine(&key, &entry.uid, None)).await;
    match result {
        Ok(()) => {
            tracing::info!(group = %work.id, machine = %entry.name, ticket = %entry.ticket, "Machine deleted by name: the smaller size has taken another one");
            work.tell_of(tickets_of([entry]).as_deref(), Happening::deleted_by_name(&entry.name));
            Ok(Outcome::Done)
        }
        // It is gone, or another one has its name.
        Err(CallError::Missing(_) | CallError::Conflict(_)) => Ok(Outcome::Done),
        Err(error) => Err(error),
    }
}

/// Takes entries out of the log that are over, each time by the log that the write tests.
async fn forget(work: &Work, view: &DeletionView, look: &Look) -> Result<(), CallError> {
    if look.is_idle() {
        return Ok(());
    }
    let mut attempts = work.attempts();
    let mut version = work.index().deletions(&work.id).map_or_else(|| view.version.clone(), |view| view.version);
    loop {
        let Ok(log) = version.log() else { return Ok(()) };
        let are_followed = |log: &DeletionLog| followed_now(work).is_some_and(|(_, followed)| followed.has_all(log));
        let Some(left) = look.left_of(&log, are_followed) else { return Ok(()) };
        let Err(error) = run::write_log(work, &version, &left).await else {
            let over = look.over().filter(|entry| left.get(&entry.uid) != Some(*entry));
            let over: Vec<_> = over.collect();
            let machines: Vec<_> = over.iter().map(|entry| entry.name.as_str()).collect();
            tracing::info!(group = %work.id, machines = machines.join(","), ticket = tickets_of(over), "deletions have come to their end");
            return Ok(());
        };
        if !attempts.again(&error).await {
            return Err(error);
        }
        version = loop {
            match read::group(work).await {
                Err(error) if attempts.again(&error).await => {}
                version => break version?,
            }
        };
    }
}
