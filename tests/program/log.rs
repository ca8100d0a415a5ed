//! The log of the programs that run in this process. All tests share it, so they search for lines that name their own
//! group or client.

use std::{
    io,
    sync::{Arc, LazyLock},
};

use parking_lot::Mutex;

/// A captured log.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Captures all that is logged in this process from the first call on.
    pub(crate) fn keep() -> Self {
        static LOG: LazyLock<Log> = LazyLock::new(|| {
            let log = Log::default();
            let writer = log.clone();
            let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone());
            subscriber.with_max_level(tracing::Level::INFO).init();
            log
        });
        LOG.clone()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).unwrap()
    }

    /// Returns the lines that contain all of these parts.
    pub(crate) fn lines(&self, parts: &[&str]) -> Vec<String> {
        let text = self.text();
        text.lines().filter(|line| parts.iter().all(|part| line.contains(part))).map(str::to_owned).collect()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
