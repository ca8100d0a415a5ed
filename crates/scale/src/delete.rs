//! DeleteNodes: carries out the deletes of a turn and those that join them, from the lookup of their Nodes to the
//! answers of their callers. The rule decides ([`delete_rule::steps::Deletion`]).

use std::{
    collections::{HashMap, VecDeque},
    pin::pin,
    time::Duration,
};

use delete_rule::steps::{CallerId, SIDE_BY_SIDE};
use futures::{
    FutureExt as _, StreamExt as _,
    future::{Fuse, FusedFuture as _},
    stream::FuturesUnordered,
};
use tokio::time::Instant;

use super::{
    accepted_deletions::DeletionTarget,
    answer,
    command::{DeferredRequest, Delete},
    error::ScaleError,
    now::CurrentState,
    resolve,
    rule::{Deletion, Effect, RULE, Request, Steps as _},
    run::Run,
    work::Work,
};

/// A batch begins after this many yields to the runtime without a new delete, if they took at least [`QUIET_FOR`].
/// Cluster Autoscaler sends one Node per call, concurrently, and one write of the log serves the whole batch. Yields
/// are used because the shortest sleep takes two milliseconds.
const QUIET_TURNS: usize = 100;
/// The number of such yields after which a batch begins at once: a yield takes microseconds on a busy machine.
const MOST_QUIET_TURNS: usize = 2_000;
/// The minimum time without a new delete. Two calls of one caller are less than this time apart.
const QUIET_FOR: Duration = Duration::from_micros(300);
/// The pause without a new delete after which the deletes that join a running batch are decided. The calls of the batch
/// go on meanwhile.
const QUIET: Duration = Duration::from_millis(1);
/// The maximum time for which deletes are gathered.
const MOST_GATHERED: Duration = Duration::from_millis(10);
/// The minimum time from the first delete, or the last that joined, to the write of the size, so that late deletes can
/// join.
const OPEN_AT_LEAST: Duration = Duration::from_millis(5);
/// The time for which deletes may join a batch; later ones wait for the next turn. The first deletes wait for those
/// that join.
const OPEN_FOR: Duration = Duration::from_millis(500);

/// The maximum number of calls in flight. The limit is twice that of the marks, so that decisions on joining deletes
/// don't wait for a mark, but where they have the places of one of many Clusters.
const MOST_CALLS: usize = 2 * SIDE_BY_SIDE;

/// Gathers the deletes that arrive at the same time as the first one.
pub(super) async fn gather(work: &Work, deletes: Vec<Delete>) -> Vec<Delete> {
    let is_quiet = |turns, time| turns >= MOST_QUIET_TURNS || (turns >= QUIET_TURNS && time >= QUIET_FOR);
    gather_until(work, deletes, is_quiet, || give_way(work)).await
}

/// Yields to the runtime's tasks and to other threads: on a busy machine these have to run to bring further deletes.
async fn give_way(work: &Work) {
    work.shared.spawner.yield_thread();
    tokio::task::yield_now().await;
}

/// Gathers the deletes that arrive shortly after these, all of which join a running batch.
async fn gather_joining(work: &Work, deletes: Vec<Delete>) -> Vec<Delete> {
    gather_until(work, deletes, |pauses, _| pauses > 0, || tokio::time::sleep(QUIET)).await
}

/// Gathers deletes for [`MOST_GATHERED`] at most, until `is_quiet` accepts the number of pauses and the time since the
/// last new delete.
async fn gather_until<P: Future<Output = ()>>(
    work: &Work,
    mut deletes: Vec<Delete>,
    is_quiet: impl Fn(usize, Duration) -> bool,
    pause: impl Fn() -> P,
) -> Vec<Delete> {
    let began = Instant::now();
    let (mut last, mut pauses) = (began, 0);
    while !is_quiet(pauses, last.elapsed()) && began.elapsed() <= MOST_GATHERED {
        pause().await;
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

/// Carries out deletes and those that join them, and answers their callers.
pub(super) async fn delete(work: &Work, deletes: Vec<Delete>) {
    let mut callers = Callers { work, next: 0, waiting: HashMap::new() };
    let run = Run::new(work);
    let arrived = work.shared.lanes.arrived(&work.id);
    let mut deletion = Deletion::new(RULE, callers.add(deletes));
    deletion.hold();
    let mut held = pin!(tokio::time::sleep(OPEN_AT_LEAST));
    let mut open_since = None;
    let mut joining = pin!(Fuse::terminated());
    let (mut calls, mut waiting) = (FuturesUnordered::new(), VecDeque::new());
    loop {
        if is_open(&deletion, &mut open_since) {
            let more = work.shared.lanes.more_deletes(&work.id);
            if !more.is_empty() {
                deletion.await_joins();
                joining.set(gather_joining(work, more).fuse());
            }
        }
        waiting.extend(deletion.next(&CurrentState { work, has_left: |caller| callers.has_left(caller) }));
        callers.take(run.report(deletion.effects()));
        while calls.len() < MOST_CALLS
            && let Some(call) = waiting.pop_front()
        {
            calls.push(run.call(call));
        }
        let (is_held, is_open) = (deletion.is_held(), is_open(&deletion, &mut open_since));
        tokio::select! {
            Some(outcome) = calls.next() => {
                deletion.took(outcome);
                callers.take(run.report(deletion.effects()));
            }
            deletes = &mut joining, if !joining.is_terminated() => {
                for delete in &deletes {
                    traces::asked_by(delete.caller.trace());
                }
                deletion.join(callers.add(deletes));
                deletion.hold();
                held.as_mut().reset(Instant::now() + OPEN_AT_LEAST);
            }
            () = &mut held, if is_held => deletion.release(),
            () = arrived.notified(), if is_open && (!calls.is_empty() || is_held) => {}
            else => return,
        }
    }
}

/// Returns true while deletes may join: the rule allows it, for a limited time.
fn is_open(deletion: &Deletion, since: &mut Option<Instant>) -> bool {
    deletion.is_open() && since.get_or_insert_with(Instant::now).elapsed() < OPEN_FOR
}

/// The callers of deletes that haven't been answered yet.
struct Callers<'a> {
    work: &'a Work,
    next: CallerId,
    waiting: HashMap<CallerId, (Delete, DeferredRequest)>,
}

impl Callers<'_> {
    /// Looks up the Nodes of deletes, and answers the callers whose lookup fails.
    fn add(&mut self, deletes: Vec<Delete>) -> Vec<(CallerId, Request, usize)> {
        let mut requests = Vec::new();
        for mut delete in deletes {
            let looked_up = match delete.deferred.take() {
                Some(deferred) => Ok(deferred),
                None => self.look_up(&delete),
            };
            match looked_up {
                Ok(deferred) => {
                    requests.push((self.next, deferred.request.clone(), deferred.given_up));
                    self.waiting.insert(self.next, (delete, deferred));
                    self.next += 1;
                }
                Err(error) => self.work.answer(delete.caller, Err(error)),
            }
        }
        requests
    }

    /// Returns the request of a delete. An error of the group comes before any error of its Nodes.
    fn look_up(&self, delete: &Delete) -> Result<DeferredRequest, ScaleError> {
        self.work.view()?;
        let (request, given_up) = resolve::request_of(self.work, &delete.nodes)?;
        Ok(DeferredRequest { request, given_up })
    }

    fn has_left(&self, caller: CallerId) -> bool {
        self.waiting.get(&caller).is_none_or(|(delete, _)| delete.caller.is_gone())
    }

    /// Answers callers, or defers their requests to the next turn.
    fn take(&mut self, effects: Vec<Effect>) {
        let (work, id) = (self.work, &self.work.id);
        let mut deferred = Vec::new();
        for effect in effects {
            match effect {
                Effect::Answer(caller, end) => {
                    let Some((delete, _)) = self.waiting.remove(&caller) else { continue };
                    if end.is_ok() {
                        let leaving = delete.nodes.iter().map(|node| DeletionTarget::named(node.text()));
                        work.shared.accepted_deletions.accept(id, leaving);
                    }
                    work.answer(delete.caller, end.map_err(|why| answer::not_done(id, &why)));
                }
                Effect::Deferred(caller) => {
                    let waiting = self.waiting.remove(&caller);
                    deferred.extend(waiting.map(|(delete, request)| Delete { deferred: Some(request), ..delete }));
                }
                _ => {}
            }
        }
        if !deferred.is_empty() {
            work.shared.lanes.defer(id, deferred);
        }
    }
}
