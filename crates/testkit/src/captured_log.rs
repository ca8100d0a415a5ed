//! Captures the log of a test.

use std::{
    io::Write,
    sync::{Arc, LazyLock},
};

use parking_lot::Mutex;
use tracing::{Dispatch, subscriber::DefaultGuard};

/// Enables all levels for the lifetime of the process. tracing caches one maximum level for all subscribers of a
/// process. If concurrent tests set subscribers, the cached level can become stale, and log lines are lost.
static TAKES_ALL: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(tracing_subscriber::registry()));

/// The captured text. It is a writer for `tracing_subscriber`.
#[derive(Clone, Debug)]
pub struct CapturedLog(Arc<Mutex<Vec<u8>>>);

impl Default for CapturedLog {
    fn default() -> Self {
        LazyLock::force(&TAKES_ALL);
        Self(Arc::default())
    }
}

impl Write for CapturedLog {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl CapturedLog {
    /// Runs `work` with its own log at level info, and returns the text that it logged.
    pub fn of(work: impl FnOnce()) -> String {
        let captured = Self::default();
        let writer = captured.clone();
        let log = tracing_subscriber::fmt().without_time().with_ansi(false).with_writer(move || writer.clone());
        tracing::subscriber::with_default(log.finish(), work);
        captured.take()
    }

    /// Captures the log of this thread at level info until the guard is dropped.
    pub fn begin() -> (Self, DefaultGuard) {
        let captured = Self::default();
        let writer = captured.clone();
        let log = tracing_subscriber::fmt().without_time().with_ansi(false).with_writer(move || writer.clone());
        (captured, tracing::subscriber::set_default(log.finish()))
    }

    /// Returns the text logged since the last call.
    pub fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut *self.0.lock())).unwrap()
    }
}
