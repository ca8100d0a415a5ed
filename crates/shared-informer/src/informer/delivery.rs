//! The task of one handler: it delivers the events of the handler's slot, and resyncs. Must never run a handler while
//! it holds a lock, nor let a handler's panic escape.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::time::{Instant, sleep_until};

use super::{
    backoff::{after, shorten},
    event::Handler,
    progress::Progress,
    queue::{Next, Slot},
    store::Store,
};
use crate::object::ObjectKey;

/// The number of events that a task delivers before it yields to others of its thread.
const BATCH: usize = 128;
/// The maximum time before a task yields, so that other tasks of the thread wait for one slow call, not for many. By
/// tokio's clock: under a paused one the number of events alone decides, however slow the machine is.
const TURN: Duration = Duration::from_millis(1);
/// The fraction of the resync period by which a resync may come early, so that not all handlers are busy at once.
const JITTER: f64 = 0.1;

/// The resync of one handler: the time of the next one, and the remaining objects of the current one.
struct Resync {
    due: Option<Instant>,
    remaining: Vec<ObjectKey>,
}

impl<T> Slot<T> {
    /// Runs the handler's task: delivers queued events, until removed.
    pub(super) async fn run<H: Handler<T>>(
        self: Arc<Self>,
        mut handler: H,
        store: Arc<Store<T>>,
        progress: Arc<Progress>,
    ) {
        let (mut delivered, mut turn) = (0_usize, Instant::now());
        let mut resync = Resync { due: None, remaining: Vec::new() };
        while !self.removed.is_cancelled() {
            if !self.deliver_next(&mut handler, &progress) && !self.continue_resync(&mut resync, &store) {
                self.wait(&resync).await;
                (delivered, turn) = (0, Instant::now());
            }
            delivered += 1;
            if delivered >= BATCH || turn.elapsed() >= TURN {
                tokio::task::yield_now().await;
                (delivered, turn) = (0, Instant::now());
            }
        }
    }

    /// Waits for an event, the next resync, or the removal.
    async fn wait(&self, resync: &Resync) {
        let due = async {
            match resync.due {
                Some(due) => sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.filled.notified() => {}
            () = due => {}
            () = self.removed.cancelled() => {}
        }
    }

    /// Queues a few objects of the current resync, or begins one that is due; returns false if there is nothing to
    /// do. Called when the queue is empty, so that a resync never adds more than a few objects to it.
    fn continue_resync(&self, resync: &mut Resync, store: &Store<T>) -> bool {
        let Some(period) = self.resync.filter(|_| self.has_synced()) else { return false };
        if resync.remaining.is_empty() {
            let now = Instant::now();
            let due = *resync.due.get_or_insert_with(|| after(now, shorten(period, JITTER)));
            if now < due {
                return false;
            }
            resync.due = Some(after(now, shorten(period, JITTER)));
            resync.remaining = store.keys();
            resync.remaining.reverse();
            self.gauge.resyncs.fetch_add(1, Ordering::Relaxed);
        }
        let from = resync.remaining.len().saturating_sub(BATCH);
        store.push_resync(resync.remaining.drain(from..).rev(), self);
        if resync.remaining.is_empty() {
            resync.remaining = Vec::new();
        }
        true
    }

    /// Delivers the next entry; returns false if there is none.
    pub(super) fn deliver_next<H: Handler<T>>(&self, handler: &mut H, progress: &Progress) -> bool {
        // The queue isn't locked while the handler runs.
        let Some(next) = self.pop() else {
            return false;
        };
        let synced = matches!(next, Next::Synced);
        let called = catch_unwind(AssertUnwindSafe(|| match next {
            Next::Event(event) => handler.handle(event),
            Next::Synced => handler.synced(),
            Next::Replayed(mark) => handler.replayed(mark),
        }));
        if called.is_err() {
            progress.handler_panicked();
            tracing::error!(
                resource = progress.resource(),
                handler = &*self.gauge.name,
                "an informer's handler panicked; it goes on with the next event"
            );
        }
        if synced {
            self.gauge.synced.send_replace(true);
        }
        true
    }
}
