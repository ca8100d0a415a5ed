//! The slot of one handler: its queue and the task that empties it. Must never run a handler while any lock is held,
//! nor let a handler's panic escape, nor let a slow handler delay anything but a streamed list, and that only for a
//! limited time.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{
    backoff::{after, shorten},
    event::{Event, Handler},
    progress::Progress,
    queue::{Next, Queue},
    status::HandlerStatus,
    store::Store,
};
use crate::identity::ObjectKey;

/// The number of events that a task delivers before it yields to others of its thread.
const BATCH: usize = 128;
/// The maximum time before a task yields: other tasks of the thread then wait for one slow call, not for many.
const TURN: Duration = Duration::from_millis(1);
/// The number of objects queued for a handler beyond which a streamed list waits.
const CAPACITY: usize = 1_000;
/// The share of a resync's period by which one may come earlier, so that not all handlers are busy at once.
const JITTER: f64 = 0.1;

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

/// The counters of a handler, read for its status.
#[derive(Debug)]
pub(super) struct Gauge {
    name: Arc<str>,
    queued: AtomicUsize,
    resyncs: AtomicU64,
    synced: watch::Sender<bool>,
}

impl Gauge {
    pub(super) fn status(&self) -> HandlerStatus {
        HandlerStatus {
            name: Arc::clone(&self.name),
            queued: self.queued.load(Ordering::Relaxed),
            synced: *self.synced.borrow(),
            resyncs: self.resyncs.load(Ordering::Relaxed),
        }
    }
}

/// The state that the store and the handler's task share.
pub(super) struct Slot<T> {
    queue: Mutex<Queue<T>>,
    filled: Notify,
    caught_up: Notify,
    /// True if somebody waits for [`Self::caught_up`]; changed only under the queue's lock.
    lagged: AtomicBool,
    resync: Option<Duration>,
    pub(super) gauge: Arc<Gauge>,
    /// Ends the handler's task.
    pub(super) removed: CancellationToken,
    /// True while the handler is called; changed only under the queue's lock.
    busy: AtomicBool,
}

/// The resync of one handler: the time of the next one, and the remaining objects of the current one.
struct Resync {
    due: Option<Instant>,
    left: Vec<ObjectKey>,
}

impl<T> Slot<T> {
    /// Creates a slot that is cancelled with `parent`.
    pub(super) fn new(options: HandlerOptions, parent: &CancellationToken) -> Self {
        let gauge = Gauge {
            name: options.name,
            queued: AtomicUsize::new(0),
            resyncs: AtomicU64::new(0),
            synced: watch::Sender::new(false),
        };
        Self {
            queue: Mutex::default(),
            filled: Notify::new(),
            caught_up: Notify::new(),
            lagged: AtomicBool::new(false),
            resync: options.resync,
            gauge: Arc::new(gauge),
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

    /// Queues the mark of the complete first list, like [`Self::push`].
    pub(super) fn push_synced(&self) {
        self.queue.lock().push_synced();
    }

    /// Wakes the handler's task for the queued events.
    pub(super) fn wake(&self) {
        self.filled.notify_one();
    }

    fn pop(&self) -> Option<Next<T>> {
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

    /// Returns true if [`Handler::synced`] was called.
    pub(super) fn has_synced(&self) -> bool {
        *self.gauge.synced.borrow()
    }

    /// Waits until [`Handler::synced`] was called or the handler is removed.
    pub(super) async fn synced(&self) {
        let mut synced = self.gauge.synced.subscribe();
        tokio::select! {
            _ = synced.wait_for(|synced| *synced) => {}
            () = self.removed.cancelled() => {}
        }
    }

    /// Runs the handler's task: delivers queued events, until removed.
    pub(super) async fn run<H: Handler<T>>(
        self: Arc<Self>,
        mut handler: H,
        store: Arc<Store<T>>,
        progress: Arc<Progress>,
    ) {
        let (mut handed, mut turn) = (0_usize, std::time::Instant::now());
        let mut resync = Resync { due: None, left: Vec::new() };
        while !self.removed.is_cancelled() {
            if !self.hand_over(&mut handler, &progress) && !self.go_on_with_resync(&mut resync, &store) {
                self.wait(&resync).await;
                (handed, turn) = (0, std::time::Instant::now());
            }
            handed += 1;
            if handed >= BATCH || turn.elapsed() >= TURN {
                tokio::task::yield_now().await;
                (handed, turn) = (0, std::time::Instant::now());
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
    fn go_on_with_resync(&self, resync: &mut Resync, store: &Store<T>) -> bool {
        let Some(period) = self.resync.filter(|_| self.has_synced()) else { return false };
        if resync.left.is_empty() {
            let now = Instant::now();
            let due = *resync.due.get_or_insert_with(|| after(now, shorten(period, JITTER)));
            if now < due {
                return false;
            }
            resync.due = Some(after(now, shorten(period, JITTER)));
            resync.left = store.keys();
            resync.left.reverse();
            self.gauge.resyncs.fetch_add(1, Ordering::Relaxed);
        }
        let from = resync.left.len().saturating_sub(BATCH);
        store.report_again(resync.left.drain(from..).rev(), self);
        if resync.left.is_empty() {
            resync.left = Vec::new();
        }
        true
    }

    /// Delivers the next entry; returns false if there is none.
    pub(super) fn hand_over<H: Handler<T>>(&self, handler: &mut H, progress: &Progress) -> bool {
        // The queue isn't locked while the handler runs.
        let Some(next) = self.pop() else {
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
