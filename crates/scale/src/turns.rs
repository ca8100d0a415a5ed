//! Runs the turns of a group: its commands one at a time, adjacent deletes as one batch, and the finisher's looks in
//! between. A group has a task only while it has turns.

use std::sync::Arc;

use nodegroup::GroupId;
use opentelemetry::context::FutureExt as _;
use tokio::time::Instant;

use super::{
    answer, delete,
    error::ScaleError,
    lane::Turn,
    look,
    order::{Caller, Order},
    passes::Pass,
    shared::Shared,
    size,
    work::Work,
};
use traces::Span;

/// Ends a lane whose task ended in the middle of a turn; the callers in it notice that nobody answers them.
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

/// Queues a command for its group's turn.
pub(super) fn order(shared: &Arc<Shared>, id: &GroupId, order: Order) {
    if shared.lanes.order(id, order) {
        run_lanes(shared, [id.clone()]);
    }
}

/// Lets the finisher look at groups that have changed, and at those whose next look is due. Returns the time at which the
/// next look is due.
pub(super) fn look_at(
    shared: &Arc<Shared>,
    changed: impl IntoIterator<Item = GroupId>,
    now: Instant,
) -> Option<Instant> {
    let (begun, next) = shared.lanes.look_at(changed, now);
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
            Turn::Order(Order::Increase(delta, caller)) => {
                let result = in_turn(&work, &caller, size::increase(&work, delta, &caller)).await;
                work.answer(caller, result);
            }
            Turn::Order(Order::Decrease(delta, caller)) => {
                let result = in_turn(&work, &caller, size::decrease(&work, delta, &caller)).await;
                work.answer(caller, result);
            }
            Turn::Order(Order::Delete(first)) => {
                let deletes = delete::gather(&work, work.shared.lanes.with_put_off(&work.id, first)).await;
                let asked = deletes.iter().map(|delete| delete.caller.trace());
                let span = work.api().traces().work("delete", asked);
                name(&span, &work);
                delete::delete(&work, deletes).with_context(span.context()).await;
                span.close();
            }
            Turn::Finish => {
                let pass = look::look(&work).await;
                end_look(&work, pass);
            }
        }
    }
    guard.has_ended = true;
}

fn end_look(work: &Work, pass: Pass) {
    run_lanes(&work.shared, work.shared.lanes.end_look(&work.id, pass));
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
    work.note_clients([caller]);
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
