//! IncreaseSize and DecreaseTargetSize, from their callers' deltas to their results.

use std::{collections::HashSet, time::Duration};

use rules::{
    failure,
    field_manager::SizeWriter,
    group_version::{GroupVersion, NotScalable},
    size,
};
use tokio::time::Instant;

use super::{
    accepted::DeletionTarget,
    api::SizeCall,
    error::ScaleError,
    metrics::Write,
    queue::Caller,
    read, refusal,
    removal::{self, Fate},
    report::SizeReport,
    request::Target,
    size_write::{Aim, SizeWrite, TryAgain, Written, as_i32, dry_run_size},
    turn::Turn,
};
use index::{Hold, Member};

/// The maximum time from an increase to the smaller size that gives it back. A Machine that comes for it has no Node so
/// soon, and MachineSets take such Machines before those with a healthy Node. Callers wait for 5 seconds or more.
const GIVEN_BACK_WITHIN: Duration = Duration::from_secs(10);

/// Raises the size.
pub(super) async fn increase(turn: &Turn, delta: i32, caller: &Caller) -> Result<(), ScaleError> {
    let view = turn.view()?;
    if let Some(Hold::SizePutBack(manager)) = turn.index().held(&turn.id) {
        return Err(refusal::put_back(&turn.id, &manager));
    }
    let (aim, began) = (Aim::Raise { delta, bounds: view.bounds }, Instant::now());
    let written = SizeWrite::new(turn, Some(caller)).write(view.version, aim).await?;
    turn.shared.accepted_deletions.forget_replicas(&turn.id);
    if let Some(Written { from, version: Some(version), .. }) = written
        && caller.is_gone()
    {
        undo_increase(turn, from, &version, began).await;
    }
    Ok(())
}

/// Gives back an increase whose caller left before it was written: Cluster Autoscaler takes it for failed, and buys
/// elsewhere. It tries that once, while no Machine has come for it, and nobody has written the group since: Cluster API,
/// which writes its status, hasn't seen the increase then.
async fn undo_increase(turn: &Turn, from: i32, written: &GroupVersion, began: Instant) {
    let listed = read::machines(turn).await;
    let Ok(view) = turn.view() else { return };
    // The minimum may have been raised meanwhile.
    let (size, to) = (written.replicas, from.max(view.bounds.min));
    let has_none = listed.is_ok_and(|machines| as_i32(machines.all) <= from);
    if !has_none || view.version != *written || to >= size || began.elapsed() > GIVEN_BACK_WITHIN {
        return;
    }
    let (writer, sent) = (SizeWriter::draw(), Instant::now());
    let _writing = turn.index().begin_size_write(&turn.id);
    let call = turn.api().write_size(&turn.id, written, to, &writer, SizeCall::OfVersion);
    match turn.write(Write::Size, call).await {
        Ok(version) => {
            tracing::info!(group = %turn.id, from = size, to, "an increase whose caller had left was given back");
            turn.wrote(&version, SizeReport { from: size, machines: &[], attempts: 1, elapsed: sent.elapsed() });
        }
        Err(error) => tracing::info!(group = %turn.id, size, "an increase whose caller had left stays: {error}"),
    }
}

/// Lowers the size by replicas that have no Node: first by those without a Machine, then by Machines that never joined,
/// which are deleted. It stops at the Machines that have a Node and at the minimum. Where only time can help it succeeds
/// without effect, since an error would end Cluster Autoscaler's loop for all groups (kubernetes/autoscaler#7928).
pub(super) async fn decrease(turn: &Turn, delta: i32, caller: &Caller) -> Result<(), ScaleError> {
    let id = &turn.id;
    // A wrong delta is refused whatever the state of the group.
    size::check_decrease(delta).map_err(|error| refusal::size(id, &error))?;
    let scalable = turn.index().scale_view(id);
    let is_left = match &scalable {
        Err(NotScalable::Excluded(_)) => true,
        Ok(view) => view.keeps_unnamed_replicas(),
        Err(NotScalable::Unknown) => false,
    };
    if is_left {
        turn.report_size_left(&scalable);
        return Ok(());
    }
    let view = scalable.map_err(|why| refusal::not_scalable(id, &why))?;
    let mut never_joined: Vec<_> = turn.index().members(id).into_iter().filter(|it| !it.machine.deleting).collect();
    never_joined.retain(|it| !it.has_joined() && !turn.shared.accepted_deletions.has_deleted(id, &it.machine.meta.uid));
    never_joined.sort_by_key(|it| !failure::has_failed(&it.machine));
    let with_node = view.machines_with_node;
    let target = size::after_decrease(view.version.replicas, delta, with_node, view.bounds.min);
    let target = target.map_err(|error| refusal::size(id, &error))?;
    let fewer = view.version.replicas - target;
    let machines = (as_i32(never_joined.len()) - (target - with_node).max(0)).clamp(0, fewer);
    let others = usize::try_from(fewer - machines).unwrap_or_default();
    if caller.is_gone() {
        return Err(refusal::abandoned(id));
    }
    if others > 0 {
        let (leaving, min) = (&HashSet::new(), view.bounds.min.max(with_node));
        let aim = Aim::LowerByMissing { replicas: others, instances: 0, leaving, listed: None, min };
        SizeWrite::new(turn, Some(caller)).write(view.version, aim).await?;
    }
    never_joined.truncate(usize::try_from(machines).unwrap_or_default());
    if never_joined.is_empty() {
        return Ok(());
    }
    delete_never_joined(turn, &never_joined, caller)
        .await
        .map_err(|error| if others > 0 { error.of_part() } else { error })
}

/// Deletes Machines that never joined, and lowers the size by them.
async fn delete_never_joined(turn: &Turn, never_joined: &[Member], caller: &Caller) -> Result<(), ScaleError> {
    let (id, version) = (&turn.id, turn.view()?.version);
    let targets: Vec<_> = never_joined.iter().map(|member| Target::of(&member.machine, true)).collect();
    match dry_run_size(turn, &version, version.replicas - as_i32(targets.len())).await {
        Ok(()) => {}
        Err(TryAgain::Anew) => return Err(refusal::changed(id)),
        Err(TryAgain::No(error)) => return Err(error),
    }
    // From here on the command goes on without its caller, but a DELETE that failed isn't tried again without one.
    if caller.is_gone() {
        return Err(refusal::abandoned(id));
    }
    let mut fates = Vec::new();
    removal::remove(turn, targets, &mut fates).await;
    let (mut removed, mut failed) = (Vec::new(), None);
    for (target, fate) in fates {
        // Cluster Autoscaler may still ask about a Machine whose instance it knows.
        if fate.is_removed() {
            turn.shared.accepted_deletions.accept(id, [DeletionTarget::Machine(target.key.clone())]);
        }
        match fate {
            Fate::Removed => removed.push(target),
            Fate::RemovedNotLowered(error) => failed = Some(error),
            Fate::RemovedAndLowered | Fate::RemovedByOthers | Fate::MaybeRemoved | Fate::HasJoined => {}
            Fate::Stays(error) => {
                let (machine, failed) = (&target.key.name, refusal::failed(&turn.id, &error));
                tracing::warn!(group = %id, %machine, "the size is left as it is for a Machine: {failed}");
            }
        }
    }
    if !removed.is_empty() {
        removal::lower_by(turn, &removed).await?;
    }
    failed.map_or(Ok(()), Err)
}
