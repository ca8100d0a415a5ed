//! One handler's place: its queue and the task that empties it. Must never run a handler while any lock is held, nor let
//! a handler's panic out.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::{
    event::{Event, Handler},
    progress::Progress,
    queue::{Next, Queue},
};

/// Events handed over before the task lets others of its thread run.
const BATCH: usize = 128;

/// What the store and the handler's task share.
pub(super) struct Slot<T> {
    queue: Mutex<Queue<T>>,
    filled: Notify,
    synced: watch::Sender<bool>,
    /// Ends the handler's task.
    pub(super) removed: CancellationToken,
}

impl<T> Slot<T> {
    /// A place that ends when `parent` does.
    pub(super) fn new(parent: &CancellationToken) -> Self {
        Self {
            queue: Mutex::default(),
            filled: Notify::new(),
            synced: watch::Sender::new(false),
            removed: parent.child_token(),
        }
    }

    /// Queues an event. Cheap: runs under the store's lock.
    pub(super) fn push(&self, event: Event<T>) {
        self.queue.lock().push(event);
        self.filled.notify_one();
    }

    /// Queues the mark of the complete first list.
    pub(super) fn push_synced(&self) {
        self.queue.lock().push_synced();
        self.filled.notify_one();
    }

    /// Whether [`Handler::synced`] was called.
    pub(super) fn has_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Waits until [`Handler::synced`] was called or the handler is no more.
    pub(super) async fn synced(&self) {
        let mut synced = self.synced.subscribe();
        tokio::select! {
            _ = synced.wait_for(|synced| *synced) => {}
            () = self.removed.cancelled() => {}
        }
    }

    /// The handler's task: hands over what waits, until removed.
    pub(super) async fn run<H: Handler<T>>(self: Arc<Self>, mut handler: H, progress: Arc<Progress>) {
        let mut handed = 0_usize;
        while !self.removed.is_cancelled() {
            if !self.hand_over(&mut handler, &progress) {
                let filled = self.filled.notified();
                if self.removed.run_until_cancelled(filled).await.is_none() {
                    return;
                }
            }
            handed = handed.wrapping_add(1);
            if handed.is_multiple_of(BATCH) {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Hands over what comes next; false when nothing waits.
    pub(super) fn hand_over<H: Handler<T>>(&self, handler: &mut H, progress: &Progress) -> bool {
        // A statement of its own: the queue isn't locked while the handler runs.
        let next = self.queue.lock().pop();
        let Some(next) = next else {
            return false;
        };
        let synced = matches!(next, Next::Synced);
        let called = catch_unwind(AssertUnwindSafe(|| match next {
            Next::Event(event) => handler.handle(event),
            Next::Synced => handler.synced(),
        }));
        if called.is_err() {
            progress.handler_panicked();
            tracing::error!(
                resource = progress.resource(),
                "an informer's handler panicked; it goes on with the next event"
            );
        }
        if synced {
            self.synced.send_replace(true);
        }
        true
    }
}
