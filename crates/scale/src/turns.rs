//! Runs the turns of a group: its commands one at a time, adjacent deletes as one batch. A group has a task only while
//! it has turns.

use std::{sync::Arc, time::Duration};

use opentelemetry::context::FutureExt as _;
use rules::GroupId;
use tokio::time::Instant;

use super::{
    answer,
    command::{Caller, Command, Delete},
    delete,
    error::ScaleError,
    lane::Enqueued,
    shared::Shared,
    size,
    work::Work,
};
use crate::traces::Span;

/// A batch begins after this many yields to the runtime without a new delete, if they took at least [`QUIET_FOR`].
/// Cluster Autoscaler sends one Node per call, concurrently, and one smaller size serves the whole batch. Yields are
/// used because the shortest sleep takes two milliseconds.
const QUIET_TURNS: usize = 100;
/// The number of such yields after which a batch begins at once: a yield takes microseconds on a busy machine.
const MOST_QUIET_TURNS: usize = 2_000;
/// The minimum time without a new delete. Two calls of one caller are less than this time apart.
const QUIET_FOR: Duration = Duration::from_micros(300);
/// The maximum time for which deletes are gathered.
const MOST_GATHERED: Duration = Duration::from_millis(10);

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
        let guard = Guard { shared: Arc::clone(shared), id: id.clone(), has_ended: false };
        shared.spawner.spawn_tracked(&shared.tasks, run(guard));
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

/// Takes turns until none is left.
async fn run(mut guard: Guard) {
    let work = Work::new(Arc::clone(&guard.shared), guard.id.clone());
    while let Some(command) = work.shared.lanes.next(&work.id) {
        work.begin_turn();
        match command {
            Command::Increase(delta, caller) => {
                let result = in_turn(&work, &caller, Box::pin(size::increase(&work, delta, &caller))).await;
                work.answer(caller, result);
            }
            Command::Decrease(delta, caller) => {
                let result = in_turn(&work, &caller, Box::pin(size::decrease(&work, delta, &caller))).await;
                work.answer(caller, result);
            }
            Command::Delete(first) => {
                let deletes = gather(&work, first).await;
                let span = work.api().traces().work("delete", deletes.iter().map(|delete| &delete.caller.trace));
                name(&span, &work);
                Box::pin(delete::delete(&work, deletes)).with_context(span.context()).await;
                span.close();
            }
        }
    }
    guard.has_ended = true;
}

/// Gathers the deletes that arrive at the same time as the first one.
async fn gather(work: &Work, first: Delete) -> Vec<Delete> {
    let mut deletes = vec![first];
    let began = Instant::now();
    let (mut last, mut pauses) = (began, 0);
    while pauses < MOST_QUIET_TURNS
        && (pauses < QUIET_TURNS || last.elapsed() < QUIET_FOR)
        && began.elapsed() <= MOST_GATHERED
    {
        // On a busy machine other threads have to run to bring further deletes.
        work.shared.spawner.yield_thread();
        tokio::task::yield_now().await;
        let more = work.shared.lanes.more_deletes(&work.id);
        pauses += 1;
        if !more.is_empty() {
            (last, pauses) = (Instant::now(), 0);
            deletes.extend(more);
        }
    }
    work.note_callers(deletes.iter().map(|delete| &delete.caller));
    deletes
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
    let span = work.api().traces().work(caller.command, std::iter::once(&caller.trace));
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
