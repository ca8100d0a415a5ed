//! The slot of one handler: the queue that the store fills and the handler's task empties. Must never let a slow
//! handler delay anything but a streamed list.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{
    event::Event,
    gauge::Gauge,
    queue::{Next, Queue},
};
use crate::object::Object;

/// The number of objects queued for a handler beyond which a streamed list waits.
const CAPACITY: usize = 1_000;

/// The options of a handler: its name, and the period of its resyncs.
///
/// ```
/// use shared_informer::HandlerOptions;
/// use std::time::Duration;
///
/// let options = HandlerOptions::named("audit").resync(Duration::from_secs(600));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandlerOptions {
    name: Arc<str>,
    resync: Option<Duration>,
}

impl Default for HandlerOptions {
    fn default() -> Self {
        Self::named("unnamed")
    }
}

impl HandlerOptions {
    /// Creates options with a name, which metrics show. Several handlers may have the same.
    #[must_use]
    pub fn named(name: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), resync: None }
    }

    /// Calls the handler for every stored object once per period, less a random part of up to a tenth, with an
    /// [`Event::Updated`] whose old and new are the same ([`Event::is_resync`]). This is for handlers whose work
    /// others may undo. It begins once the handler has synced. Objects are queued a few at a time, when the queue is
    /// empty, so that a resync delays neither the handler's changes nor other handlers. A period of zero means no
    /// resync.
    #[must_use]
    pub fn resync(self, period: Duration) -> Self {
        Self { resync: Some(period).filter(|period| !period.is_zero()), ..self }
    }
}

/// The state that the store and the handler's task share.
pub(super) struct Slot<T> {
    queue: Mutex<Queue<T>>,
    /// Notified when events were queued.
    pub(super) filled: Notify,
    caught_up: Notify,
    /// True if somebody waits for [`Self::caught_up`]; changed only under the queue's lock.
    lagged: AtomicBool,
    /// The period of resyncs.
    pub(super) resync: Option<Duration>,
    pub(super) gauge: Arc<Gauge>,
    /// Ends the handler's task.
    pub(super) removed: CancellationToken,
    /// True while the handler is called; changed only under the queue's lock.
    busy: AtomicBool,
}

impl<T> Slot<T> {
    /// Creates a slot that is cancelled with `parent`.
    pub(super) fn new(options: HandlerOptions, parent: &CancellationToken) -> Self {
        Self {
            queue: Mutex::default(),
            filled: Notify::new(),
            caught_up: Notify::new(),
            lagged: AtomicBool::new(false),
            resync: options.resync,
            gauge: Arc::new(Gauge::new(options.name)),
            removed: parent.child_token(),
            busy: AtomicBool::new(false),
        }
    }

    /// Queues an event without waking the handler's task. Cheap, since it runs under the store's lock.
    pub(super) fn push(&self, event: Event<T>) {
        let mut queue = self.queue.lock();
        queue.push(event);
        self.gauge.queued.store(queue.len(), Ordering::Relaxed);
    }

    /// Queues an update without a change for each of these objects, and wakes the handler's task.
    pub(super) fn push_unchanged(&self, objects: impl Iterator<Item = Arc<Object<T>>>) {
        for object in objects {
            self.push(Event::Updated { old: Arc::clone(&object), new: object });
        }
        self.wake();
    }

    /// Queues the call of [`super::Handler::synced`], like [`Self::push`].
    pub(super) fn push_synced(&self) {
        self.queue.lock().push_synced();
    }

    /// Queues the call of [`super::Handler::replayed`], and wakes the handler's task.
    pub(super) fn push_replayed(&self, mark: u64) {
        self.queue.lock().push_replayed(mark);
        self.wake();
    }

    /// Wakes the handler's task for the queued events.
    pub(super) fn wake(&self) {
        self.filled.notify_one();
    }

    /// Removes and returns the next event, if any.
    pub(super) fn pop(&self) -> Option<Next<T>> {
        let mut queue = self.queue.lock();
        let next = queue.pop();
        self.gauge.queued.store(queue.len(), Ordering::Relaxed);
        if queue.len() <= CAPACITY && self.lagged.load(Ordering::Relaxed) {
            self.lagged.store(false, Ordering::Relaxed);
            self.caught_up.notify_waiters();
        }
        self.busy.store(next.is_some(), Ordering::Relaxed);
        next
    }

    /// Returns true if a streamed list should wait for this handler.
    pub(super) fn lags(&self) -> bool {
        self.queue.lock().len() > CAPACITY
    }

    /// Waits until the handler doesn't lag any more, or is removed.
    pub(super) async fn caught_up(&self) {
        let caught_up = self.caught_up.notified();
        let mut caught_up = pin!(caught_up);
        // No notification from here on is missed.
        caught_up.as_mut().enable();
        {
            let queue = self.queue.lock();
            if queue.len() <= CAPACITY {
                return;
            }
            self.lagged.store(true, Ordering::Relaxed);
        }
        tokio::select! {
            () = caught_up => {}
            () = self.removed.cancelled() => {}
        }
    }

    /// Returns true if no event waits for the handler, and it isn't being called.
    pub(super) fn is_idle(&self) -> bool {
        let queue = self.queue.lock();
        queue.len() == 0 && !self.busy.load(Ordering::Relaxed)
    }

    /// Returns true if [`super::Handler::synced`] was called.
    pub(super) fn has_synced(&self) -> bool {
        *self.gauge.synced.borrow()
    }

    /// Waits until [`super::Handler::synced`] was called or the handler is removed.
    pub(super) async fn synced(&self) {
        let mut synced = self.gauge.synced.subscribe();
        tokio::select! {
            _ = synced.wait_for(|synced| *synced) => {}
            () = self.removed.cancelled() => {}
        }
    }
}
