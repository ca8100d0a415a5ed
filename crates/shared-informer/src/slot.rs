//! One handler's place: its queue and the task that empties it. Must never run a handler while any lock is held, nor let
//! a handler's panic out, nor make anyone else wait for it, but for a streamed list, and that for a while only.

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
    identity::ObjectKey,
    progress::Progress,
    queue::{Next, Queue},
    status::HandlerStatus,
    store::Store,
};

/// Events handed over before the task lets others of its thread run.
const BATCH: usize = 128;
/// The longest it hands over before that: what waits for the thread behind a slow handler waits for one call, not many.
const TURN: Duration = Duration::from_millis(1);
/// A streamed list waits while more objects than this wait for a handler.
const ROOM: usize = 1_000;
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
    /// A handler of this name, which metrics show. Several handlers may have the same.
    #[must_use]
    pub fn named(name: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), resync: None }
    }

    /// Tells the handler of every object that is there once per period, less up to a tenth of it by chance, as an
    /// [`Event::Updated`] whose old and new are the same ([`Event::is_resync`]). For handlers whose work may have been
    /// undone by others. It begins when the handler has synced; objects are queued a few at a time, when nothing else
    /// waits, so that a resync delays neither the handler's news nor anyone else. A period of zero is none.
    #[must_use]
    pub fn resync(self, period: Duration) -> Self {
        Self { resync: Some(period).filter(|period| !period.is_zero()), ..self }
    }
}

/// The counters of a handler that its status is read from.
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
    /// Somebody waits for [`Self::caught_up`]; changed under the queue's lock only.
    lagged: AtomicBool,
    resync: Option<Duration>,
    pub(super) gauge: Arc<Gauge>,
    /// Ends the handler's task.
    pub(super) removed: CancellationToken,
    /// The handler is being called; changed under the queue's lock only.
    busy: AtomicBool,
}

/// The resync of one handler: when the next one is due, and what is left of the one under way.
struct Resync {
    due: Option<Instant>,
    left: Vec<ObjectKey>,
}

impl<T> Slot<T> {
    /// A place that ends when `parent` does.
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

    /// Queues an event, for which the handler's task isn't woken yet. Cheap: runs under the store's lock.
    pub(super) fn push(&self, event: Event<T>) {
        let mut queue = self.queue.lock();
        queue.push(event);
        self.gauge.queued.store(queue.len(), Ordering::Relaxed);
    }

    /// Queues the mark of the complete first list; as [`Self::push`].
    pub(super) fn push_synced(&self) {
        self.queue.lock().push_synced();
    }

    /// Wakes the handler's task for what was queued.
    pub(super) fn wake(&self) {
        self.filled.notify_one();
    }

    fn pop(&self) -> Option<Next<T>> {
        let mut queue = self.queue.lock();
        let next = queue.pop();
        self.gauge.queued.store(queue.len(), Ordering::Relaxed);
        if queue.len() <= ROOM && self.lagged.load(Ordering::Relaxed) {
            self.lagged.store(false, Ordering::Relaxed);
            self.caught_up.notify_waiters();
        }
        self.busy.store(next.is_some(), Ordering::Relaxed);
        next
    }

    /// More objects wait for the handler than a list should add to.
    pub(super) fn lags(&self) -> bool {
        self.queue.lock().len() > ROOM
    }

    /// Waits until the handler doesn't lag any more, or is no more.
    pub(super) async fn caught_up(&self) {
        let caught_up = self.caught_up.notified();
        let mut caught_up = pin!(caught_up);
        // From here on none is missed.
        caught_up.as_mut().enable();
        {
            let queue = self.queue.lock();
            if queue.len() <= ROOM {
                return;
            }
            self.lagged.store(true, Ordering::Relaxed);
        }
        tokio::select! {
            () = caught_up => {}
            () = self.removed.cancelled() => {}
        }
    }

    /// True if nothing waits for the handler, and it isn't being called.
    pub(super) fn is_idle(&self) -> bool {
        let queue = self.queue.lock();
        queue.len() == 0 && !self.busy.load(Ordering::Relaxed)
    }

    /// Returns true if [`Handler::synced`] was called.
    pub(super) fn has_synced(&self) -> bool {
        *self.gauge.synced.borrow()
    }

    /// Waits until [`Handler::synced`] was called or the handler is no more.
    pub(super) async fn synced(&self) {
        let mut synced = self.gauge.synced.subscribe();
        tokio::select! {
            _ = synced.wait_for(|synced| *synced) => {}
            () = self.removed.cancelled() => {}
        }
    }

    /// The handler's task: hands over what waits, until removed.
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

    /// Waits for news, for the next resync, or for the end.
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

    /// Queues a few objects of the resync under way, or begins one that is due; false when there is nothing to do. Called
    /// when nothing waits, so that a resync never adds more than a few objects to the queue.
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

    /// Hands over what comes next; false when nothing waits.
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
