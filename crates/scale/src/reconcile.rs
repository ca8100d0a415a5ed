//! One reconcile of a group by the finisher: continues the deletions under way, including those of other copies. The
//! rule decides ([`delete_rule::steps::Settle`], [`delete_rule::steps::Carry`]). It must never delay a command for
//! longer than one reconcile takes.

use nodegroup::{Bounds, DeletionLog};

use super::{
    rule::{self, Carry, Finish, Marked, NotLowered, RULE, Settle},
    run,
    work::Work,
    work_queue::ReconcileResult,
};
use index::DeletionView;

/// Reads the group's deletions once, and executes the steps that are possible now.
pub(super) async fn reconcile(work: &Work) -> ReconcileResult {
    let (memory, id) = (&work.shared.memory, &work.id);
    let Some(view) = work.index().deletions(id) else {
        memory.forget(id);
        return ReconcileResult::Done;
    };
    let log = match view.version.log() {
        Ok(log) => log,
        Err(error) => {
            if memory.is_new_unreadable(id, &view.version) {
                work.report_unreadable_log(&error);
            }
            return ReconcileResult::Done;
        }
    };
    let followed = rule::followed(RULE, id.kind, &view.sets);
    let (steps, left_until) = memory.decide(id, &log, &view.machines, &followed);
    let mut result = left_until.map_or(ReconcileResult::Done, ReconcileResult::Waits);
    if steps.contains(&Finish::CarryOn) {
        result = result.and(carry_on(work, &view, &log).await);
    }
    result.and(settle(work, &view, steps).await)
}

/// Lowers the size for wanted entries, unless another copy may be doing it right now.
async fn carry_on(work: &Work, view: &DeletionView, log: &DeletionLog) -> ReconcileResult {
    let id = &work.id;
    let (ripe, next) = work.shared.memory.ripe(id, log);
    let waits = next.map_or(ReconcileResult::Done, ReconcileResult::Waits);
    if ripe.is_empty() {
        return waits;
    }
    let bounds = Bounds { min: view.min, max: i32::MAX };
    let mut carry = Carry::new(RULE, view.version.clone(), ripe, Vec::new(), bounds, Marked::default());
    run::carry_out(work, &mut carry, |_| false).await;
    let mut result = waits;
    for failure in carry.failures().values() {
        work.report_not_lowered(failure);
        match failure {
            NotLowered::Spared(_) => {}
            // The next reconcile handles the rest.
            NotLowered::Refused(_) | NotLowered::Pending(_) => result = ReconcileResult::Failed,
        }
    }
    result
}

/// Deletes by name the Machines that a smaller size didn't remove, corrects marks, and removes finished entries.
async fn settle(work: &Work, view: &DeletionView, mut steps: Vec<Finish>) -> ReconcileResult {
    if work.api().tenancy().check().is_err() {
        // The Cluster has left: what is wanted was taken back, and of the rest only marks are taken off.
        steps.retain(|step| matches!(step, Finish::Unmark(_)));
    }
    let sizes = view.sets.iter().map(|set| i64::from(set.object.replicas.unwrap_or_default()));
    let mut settle = Settle::new(RULE, view.version.clone(), steps, sizes.sum());
    run::carry_out(work, &mut settle, |_| false).await;
    match settle.failure() {
        None => ReconcileResult::Done,
        Some(error) => {
            work.report_not_finished(error);
            ReconcileResult::Failed
        }
    }
}
