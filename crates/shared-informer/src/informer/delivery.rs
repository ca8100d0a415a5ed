//! The task of one handler: it delivers the events of the handler's queue. Must never run a handler while it holds a lock,
//! nor let a handler's panic escape.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

use super::{
    event::Handler,
    progress::Progress,
    queue::{Next, Slot},
};

/// The number of events that a task delivers before it yields to others of its thread.
const BATCH: usize = 128;
/// The maximum time before a task yields, so that other tasks of the thread wait for one slow call, not for many. By
/// tokio's clock: under a paused one the number of events alone decides, however slow the machine is.
const TURN: Duration = Duration::from_millis(1);

impl<T> Slot<T> {
    /// Runs the handler's task: delivers queued events, until removed.
    pub(super) async fn run<H: Handler<T>>(self: Arc<Self>, mut handler: H, progress: Arc<Progress>) {
        let (mut delivered, mut turn) = (0_usize, Instant::now());
        while !self.removed.is_cancelled() {
            if !self.deliver_next(&mut handler, &progress) {
                tokio::select! {
                    () = self.filled.notified() => {}
                    () = self.removed.cancelled() => {}
                }
                (delivered, turn) = (0, Instant::now());
            }
            delivered += 1;
            if delivered >= BATCH || turn.elapsed() >= TURN {
                tokio::task::yield_now().await;
                (delivered, turn) = (0, Instant::now());
            }
        }
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
