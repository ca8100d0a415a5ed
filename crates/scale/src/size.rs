//! IncreaseSize and DecreaseTargetSize, from their callers' deltas to their results. The rule decides
//! ([`delete_rule::steps::Resize`], [`delete_rule::steps::Decrease`]).

use delete_rule::naming::Shrinkable;
use nodegroup::{size, writing::NotScalable};

use super::{
    answer,
    command::Caller,
    error::ScaleError,
    rule::{Decrease, RULE, Resize},
    run,
    work::Work,
};

/// The id of the only caller of a command on a size.
const CALLER: delete_rule::steps::CallerId = 0;

pub(super) async fn increase(work: &Work, delta: i32, caller: &Caller) -> Result<(), ScaleError> {
    let view = work.view()?;
    let mut resize = Resize::increase(RULE, view.version, delta, view.bounds, Some(CALLER));
    run::carry_out(work, &mut resize, |_| caller.is_gone()).await;
    if let Some(Err(why)) = resize.end() {
        return Err(answer::not_done(&work.id, why));
    }
    work.shared.accepted_deletions.forget_replicas(&work.id);
    Ok(())
}

pub(super) async fn decrease(work: &Work, delta: i32, caller: &Caller) -> Result<(), ScaleError> {
    // A wrong delta is refused whatever the state of the group.
    size::decrease(0, delta, 0, 0).map_err(|error| answer::size(&work.id, &error))?;
    let scalable = work.index().scale_view(&work.id);
    let shrinkable = match &scalable {
        Err(NotScalable::Excluded(_)) => Shrinkable::Excluded,
        Ok(view) if view.rollout.is_some() => Shrinkable::RollingOut,
        Ok(_) | Err(_) => Shrinkable::Yes,
    };
    if shrinkable.leaves_size() {
        work.report_size_left(&scalable);
        return Ok(());
    }
    let view = scalable.map_err(|why| answer::not_scalable(&work.id, &why))?;
    let mut decrease = Decrease::new(RULE, view.version, delta, view.bounds, CALLER);
    run::carry_out(work, &mut decrease, |_| caller.is_gone()).await;
    match decrease.end() {
        Some(Err(why)) => Err(answer::not_done(&work.id, why)),
        Some(Ok(())) | None => Ok(()),
    }
}
