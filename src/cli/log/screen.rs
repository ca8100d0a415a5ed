//! Standard error, shared by the log and by progress bars: a line of the log takes the bars off, and they are drawn again
//! below it.

use std::io::{self, Write};

use indicatif::MultiProgress;
use tracing_subscriber::fmt::MakeWriter;

/// Where the log goes.
#[derive(Clone, Debug)]
pub struct Screen {
    bars: Option<MultiProgress>,
}

impl Screen {
    /// Without bars.
    #[must_use]
    pub fn plain() -> Self {
        Self { bars: None }
    }

    /// A terminal, on which there may be bars.
    #[must_use]
    pub fn with_bars() -> Self {
        Self { bars: Some(MultiProgress::new()) }
    }

    /// Where bars can be drawn.
    #[must_use]
    pub fn bars(&self) -> Option<&MultiProgress> {
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
