//! Standard error, shared by the log and by progress bars: the bars are removed for a line of the log, and redrawn
//! below it.

use std::io::{self, Write};

use indicatif::MultiProgress;
use tracing_subscriber::fmt::MakeWriter;

/// The destination of the log.
#[derive(Clone, Debug)]
pub struct Screen {
    bars: Option<MultiProgress>,
}

impl Screen {
    /// Returns a destination without bars.
    #[must_use]
    pub fn plain() -> Self {
        Self { bars: None }
    }

    /// Returns a terminal, which can have bars.
    #[must_use]
    pub(crate) fn with_bars() -> Self {
        Self { bars: Some(MultiProgress::new()) }
    }

    /// Returns the container of bars, if there can be any.
    #[must_use]
    pub(crate) fn bars(&self) -> Option<&MultiProgress> {
        self.bars.as_ref()
    }
}

impl Write for Screen {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        match &self.bars {
            None => io::stderr().write(text),
            Some(bars) => bars.suspend(|| io::stderr().write(text)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

impl MakeWriter<'_> for Screen {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}
