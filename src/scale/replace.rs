//! At the least size a Machine that never became a Node is replaced: it is deleted by name and the size stays, so that its
//! MachineSet makes another (kubernetes/autoscaler#10059). Which one, and when, is a rule of
//! [`crate::nodegroup::replacement`]; this writes it. Nothing that has a Node goes here.
//!
//! When the last replacement was stands in an annotation of the group, written before the deletion by a patch that tests
//! what was there: so of two copies of the program only one goes on, a restart forgets nothing, and a copy that dies in
//! between has spent the interval on a Machine that is deleted the next time it is named. Creation times of Machines
//! alone would tell when the last one was, but not how many there have been.

use jiff::Timestamp;

use super::{
    call_error::CallError,
    error::ScaleError,
    events::Happening,
    metrics::Write,
    options::AtMinSize,
    rule::{Named, Request},
    work::Work,
};
use crate::{
    capi::{self, Machine, Meta, REPLACED},
    index::ScaleView,
    nodegroup::{
        DeletionLog, MachineView, Shortage, instance,
        replacement::{self, Replaced, Replacement},
    },
};

/// Replaces one of the Machines of a request that is refused since the size would be below the minimum, where that is
/// possible and time.
pub(super) async fn replace_one(
    work: &Work,
    request: &Request,
    log: &DeletionLog,
    refusal: ScaleError,
) -> Result<(), ScaleError> {
    if !request.is_of_machines() {
        return Err(refusal);
    }
    let view = work.view()?;
    let members = work.index().members(&work.id);
    // Those that are on their way out already need nothing.
    let named = |machine: &Machine| {
        let uid = &machine.meta.uid;
        !machine.deleting && log.get(uid).is_none() && request.machines.iter().any(|named| named.uid == *uid)
    };
    let named: Vec<_> = members.iter().filter(|member| named(&member.machine)).collect();
    if named.is_empty() {
        // They go, and others come in their places: the size stays.
        return Ok(());
    }
    // A MachineHealthCheck says if one that has a Node is dead.
    let has_joined = named.iter().any(|member| member.has_node());
    if work.shared.options.at_min_size == AtMinSize::Refuse || has_joined {
        return Err(refusal);
    }
    if let Some(text) = view.replaced.as_deref().filter(|text| capi::is_unread(text)) {
        return Err(ScaleError::FailedPrecondition(format!(
            "{refusal}; nor is one replaced, since the annotation {REPLACED} is too long to be read: {text}; the program \
             writes none so long: see who does, and remove it"
        )));
    }
    let known: Option<Replaced> = view.replaced.as_deref().and_then(|text| text.parse().ok());
    let Some(machine) = replacement::first(named.iter().map(|member| member.machine.as_ref()), known.as_ref()) else {
        return Err(refusal);
    };
    let with_node = members.iter().filter(|member| member.has_node());
    let joined = with_node.filter_map(|member| member.machine.created.time()).max();
    let next = match replacement::decide(known.as_ref(), &machine.meta.uid, joined, Timestamp::now()) {
        Replacement::Begin(replaced) => {
            write_replaced(work, &view, &replaced, machine).await?;
            replaced.next()
        }
        Replacement::Continue(known) => known.next(),
        Replacement::Wait(until) => {
            return Err(ScaleError::FailedPrecondition(format!(
                "{refusal}; a Machine that never became a Node was replaced not long ago, and the next can be at \
                 {until:.0}"
            )));
        }
    };
    delete_replaced(work, machine).await?;
    match named.len() - 1 {
        0 => Ok(()),
        others => Err(ScaleError::FailedPrecondition(format!(
            "{refusal}; Machine {} is replaced, and {others} more have to wait: the next can be replaced at {next:.0}",
            machine.meta.key.name
        ))),
    }
}

/// Writes that a Machine is about to be replaced, if nobody has written of another one since.
async fn write_replaced(
    work: &Work,
    view: &ScaleView,
    replaced: &Replaced,
    machine: &Machine,
) -> Result<(), ScaleError> {
    let (uid, known, text) = (&view.version.uid, view.replaced.as_deref(), replaced.to_string());
    let mut attempts = work.attempts();
    loop {
        let write = work.api().write_replaced(&work.id, uid, known, &text);
        match work.write(Write::Replaced, write).await {
            Ok(()) => return Ok(()),
            // Another copy was faster, or the watch is behind: the caller comes again.
            Err(error @ (CallError::Rejected(_) | CallError::Conflict(_))) => return Err(work.failed(&error)),
            Err(error) if attempts.again(&error).await => {}
            Err(error) => return Err(couldnt_replace(work, machine, &error)),
        }
    }
}

/// The API server has refused to replace a Machine, or gave no answer.
fn couldnt_replace(work: &Work, machine: &Machine, error: &CallError) -> ScaleError {
    let Meta { key, uid, .. } = &machine.meta;
    work.couldnt_delete(&[Named { name: key.name.clone(), uid: uid.clone(), never_joined: true }]);
    work.failed(error)
}

/// Deletes a Machine if nothing of it has changed since it was seen: had it joined, that would have.
async fn delete_replaced(work: &Work, machine: &Machine) -> Result<(), ScaleError> {
    let Meta { key, uid, resource_version } = &machine.meta;
    let mut attempts = work.attempts();
    loop {
        let delete = work.api().delete_machine(key, uid, Some(resource_version));
        match work.write(Write::Delete, delete).await {
            Ok(()) => break,
            // Somebody else has deleted it.
            Err(CallError::Missing(_)) => return Ok(()),
            Err(error @ CallError::Conflict(_)) => return Err(work.failed(&error)),
            Err(error) if !matches!(error, CallError::Rejected(_)) && attempts.again(&error).await => {}
            Err(error) => return Err(couldnt_replace(work, machine, &error)),
        }
    }
    let shortage = Shortage::of(machine, None, false, Timestamp::now());
    let view = MachineView { machine, node: None, shortage, undeletable: false };
    let why = instance::of_machine(view).error;
    let why = why.map_or_else(|| "it was given up".to_owned(), |error| error.message);
    tracing::info!(group = %work.id, machine = %key.name, "Machine is replaced at the least size: {why}");
    work.tell(Happening::replaced(&key.name, &why));
    Ok(())
}
