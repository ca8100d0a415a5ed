//! Runs the turns of a group: its commands one at a time, adjacent deletes as one batch, and the finisher's reconciles
//! in between. A group has a task only while it has turns.

use std::sync::Arc;

use nodegroup::GroupId;
use opentelemetry::context::FutureExt as _;
use tokio::time::Instant;

use super::{
    answer,
    command::{Caller, Command},
    delete,
    error::ScaleError,
    lane::{Enqueued, Turn},
    reconcile,
    shared::Shared,
    size,
    work::Work,
    work_queue::ReconcileResult,
};
use traces::Span;

/// Removes the lane of a task that ended in the middle of a turn, which closes the channels of its callers.
struct Guard {
    shared: Arc<Shared>,
    id: GroupId,
    has_ended: bool,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.has_ended {
            self.shared.lanes.break_off(&self.id);
        }
    }
}

/// Queues a command for its group's turn. It is refused if too many wait, and those that nobody waits for any more end.
pub(super) fn enqueue(shared: &Arc<Shared>, id: &GroupId, command: Command) {
    let Enqueued { is_new, refused, gone } = shared.lanes.enqueue(id, command);
    if is_new {
        run_lanes(shared, [id.clone()]);
    }
    if refused.is_none() && gone.is_empty() {
        return;
    }
    let work = Work::new(Arc::clone(shared), id.clone());
    for command in gone {
        work.answer(command.into_caller(), Err(answer::abandoned(id)));
    }
    if let Some(command) = refused {
        work.answer(command.into_caller(), Err(answer::too_many(id)));
    }
}

/// Lets the finisher reconcile groups that have changed, and those whose next reconcile is due. Returns the time at
/// which the next reconcile is due.
pub(super) fn reconcile_due(
    shared: &Arc<Shared>,
    changed: impl IntoIterator<Item = GroupId>,
    now: Instant,
) -> Option<Instant> {
    let (begun, next) = shared.lanes.reconcile_due(changed, now);
    run_lanes(shared, begun);
    next
}

fn run_lanes(shared: &Arc<Shared>, ids: impl IntoIterator<Item = GroupId>) {
    for id in ids {
        let guard = Guard { shared: Arc::clone(shared), id, has_ended: false };
        shared.spawner.spawn_tracked(&shared.tasks, run(guard));
    }
}

/// Takes turns until none is left.
async fn run(mut guard: Guard) {
    let work = Work::new(Arc::clone(&guard.shared), guard.id.clone());
    while let Some(turn) = work.shared.lanes.next(&work.id) {
        work.begin_turn();
        match turn {
            Turn::Command(Command::Increase(delta, caller)) => {
                let result = in_turn(&work, &caller, size::increase(&work, delta, &caller)).await;
                work.answer(caller, result);
            }
            Turn::Command(Command::Decrease(delta, caller)) => {
                let result = in_turn(&work, &caller, size::decrease(&work, delta, &caller)).await;
                work.answer(caller, result);
            }
            Turn::Command(Command::Delete(first)) => {
                let deletes = delete::gather(&work, work.shared.lanes.with_deferred(&work.id, first)).await;
                let asked = deletes.iter().map(|delete| delete.caller.trace());
                let span = work.api().traces().work("delete", asked);
                name(&span, &work);
                delete::delete(&work, deletes).with_context(span.context()).await;
                span.close();
                take_back_later(&work);
            }
            Turn::Reconcile => {
                let result = reconcile::reconcile(&work).await;
                end_reconcile(&work, result);
            }
        }
    }
    guard.has_ended = true;
}

/// Lets the finisher look at a group of a Cluster that has left, whose changes no watch shows any more.
fn take_back_later(work: &Work) {
    if work.api().tenancy().check().is_err() {
        work.shared.lanes.reconcile_due([work.id.clone()], Instant::now());
    }
}

fn end_reconcile(work: &Work, result: ReconcileResult) {
    run_lanes(&work.shared, work.shared.lanes.end_reconcile(&work.id, result));
}

/// Carries out a command that has one caller.
async fn in_turn(
    work: &Work,
    caller: &Caller,
    command: impl Future<Output = Result<(), ScaleError>>,
) -> Result<(), ScaleError> {
    if caller.is_gone() {
        return Err(answer::abandoned(&work.id));
    }
    work.note_callers([caller]);
    let span = work.api().traces().work(caller.command(), std::iter::once(caller.trace()));
    name(&span, work);
    let result = command.with_context(span.context()).await;
    match &result {
        Ok(()) => span.end("OK", None),
        Err(error) => span.end(error.grpc_code(), Some(error.to_string())),
    }
    result
}

fn name(span: &Span, work: &Work) {
    span.set("group", work.id.to_string());
}
