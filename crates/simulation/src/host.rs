//! A host: a single-threaded runtime with a paused clock, driven step by step. Dropping it ends all its tasks at their
//! awaits, as a kill does. Panics of tasks, which a runtime would swallow, are recorded.

use std::{
    cell::{Cell, RefCell},
    panic,
    sync::{Arc, Once},
    time::Duration,
};

use tokio::{
    runtime::{Builder, Runtime},
    sync::Notify,
    time::{Instant, sleep},
};

use crate::entropy::{self, Nanos, Running};

/// The shortest step: the granularity of tokio's timers.
pub(crate) const TICK: Nanos = 1_000_000;

pub(crate) struct Host {
    runtime: Runtime,
    running: Running,
    now: Cell<Nanos>,
    /// Notified when one of its tasks has sent something.
    sent: Arc<Notify>,
    /// True if something was delivered since it last ran.
    has_mail: Cell<bool>,
}

impl Host {
    pub(crate) fn new(now: Nanos) -> anyhow::Result<Self> {
        entropy::set_time(now);
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build()?;
        let origin = runtime.block_on(async { Instant::now() });
        let running = Running { began: now, origin, skew: 0 };
        Ok(Self { runtime, running, now: Cell::new(now), sent: Arc::default(), has_mail: Cell::new(true) })
    }

    pub(crate) fn sent(&self) -> Arc<Notify> {
        Arc::clone(&self.sent)
    }

    /// Returns its time, which may be ahead of the world's.
    pub(crate) fn now(&self) -> Nanos {
        self.now.get()
    }

    /// Records a delivery: the host runs in the next round, whatever its time.
    pub(crate) fn deliver(&self) {
        self.has_mail.set(true);
    }

    /// Sets the error of its wall clock.
    pub(crate) fn skew(&mut self, by: i64) {
        self.running.skew = by;
    }

    /// Moves its clock to `now` as after a standstill: everything that was due meanwhile is due at once.
    pub(crate) fn jump(&self, now: Nanos) {
        let by = now.saturating_sub(self.now.get());
        self.enter(tokio::time::advance(Duration::from_nanos(by)));
        self.deliver();
    }

    /// Runs its tasks until its time is `limit`, or until one of them has sent something.
    pub(crate) fn run_until(&self, limit: Nanos) {
        let left = limit.saturating_sub(self.now.get());
        if left < TICK && !self.has_mail.replace(false) {
            return;
        }
        self.enter(async {
            tokio::select! {
                biased;
                () = sleep(Duration::from_nanos(left.max(TICK))) => {}
                () = self.sent.notified() => {}
            }
        });
    }

    /// Runs a future on it to completion. The future must not wait for another host.
    pub(crate) fn enter<T>(&self, future: impl Future<Output = T>) -> T {
        entropy::set_time(self.now.get());
        entropy::enter(self.running);
        let (output, now) = self.runtime.block_on(async { (future.await, entropy::now()) });
        entropy::leave();
        self.now.set(now);
        output
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(task);
        self.deliver();
    }
}

thread_local! {
    static RECORDS: Cell<bool> = const { Cell::new(false) };
    static RECORDED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Records the panics of this thread instead of printing them.
pub(crate) fn record_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let default = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if RECORDS.get() {
                RECORDED.with_borrow_mut(|recorded| recorded.push(info.to_string()));
            } else {
                default(info);
            }
        }));
    });
    RECORDS.set(true);
}

/// Takes the panics since the last call.
pub(crate) fn taken_panics() -> Vec<String> {
    RECORDED.with_borrow_mut(std::mem::take)
}
