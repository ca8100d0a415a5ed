//! Captures the log of a test.

#![allow(clippy::unwrap_used)]

use std::{io::Write, sync::Arc};

use parking_lot::Mutex;

#[derive(Clone, Default)]
pub(crate) struct Said(Arc<Mutex<Vec<u8>>>);

impl Write for Said {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Said {
    /// Runs `work` with its own log at level info, and returns the text that it logged.
    pub(crate) fn of(work: impl FnOnce()) -> String {
        let said = Self::default();
        let writer = said.clone();
        let log = tracing_subscriber::fmt().without_time().with_ansi(false).with_writer(move || writer.clone());
        tracing::subscriber::with_default(log.finish(), work);
        said.take()
    }

    /// Returns the text logged since the last call.
    pub(crate) fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut *self.0.lock())).unwrap()
    }
}
