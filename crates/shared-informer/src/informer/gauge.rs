//! The counters of a handler. Must never hold an event: a status is read while handlers run.

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use tokio::sync::watch;

use super::status::HandlerStatus;

/// The counters of a handler, read for its status.
#[derive(Debug)]
pub(super) struct Gauge {
    pub(super) name: Arc<str>,
    pub(super) queued: AtomicUsize,
    pub(super) resyncs: AtomicU64,
    pub(super) synced: watch::Sender<bool>,
}

impl Gauge {
    pub(super) fn new(name: Arc<str>) -> Self {
        Self { name, queued: AtomicUsize::new(0), resyncs: AtomicU64::new(0), synced: watch::Sender::new(false) }
    }

    pub(super) fn status(&self) -> HandlerStatus {
        HandlerStatus {
            name: Arc::clone(&self.name),
            queued: self.queued.load(Ordering::Relaxed),
            synced: *self.synced.borrow(),
            resyncs: self.resyncs.load(Ordering::Relaxed),
        }
    }
}
