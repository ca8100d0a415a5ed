//! Changes the log filter at runtime, until the next start.

use std::{fmt, sync::Arc};

use parking_lot::Mutex;
use tracing_subscriber::{EnvFilter, layer::SubscriberExt as _};

use super::{Screen, filter::parse};
use app::LogHandle;
use service::listen::{LogLevel, LogLevels};

type Apply = dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync;

/// Controls the log of this process.
#[derive(Clone)]
pub struct LogControl {
    inner: Arc<Inner>,
}

struct Inner {
    /// The filter at the start.
    start: String,
    screen: Screen,
    apply: Box<Apply>,
    filter: Mutex<String>,
}

impl fmt::Debug for LogControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogControl").field("filter", &self.inner.filter.lock()).finish_non_exhaustive()
    }
}

impl LogControl {
    pub(super) fn new(
        start: String,
        screen: Screen,
        apply: impl Fn(EnvFilter) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        let filter = Mutex::new(start.clone());
        Self { inner: Arc::new(Inner { start, screen, apply: Box::new(apply), filter }) }
    }

    /// Returns the handle for the running program.
    #[must_use]
    pub fn handle(&self) -> LogHandle {
        LogHandle { levels: Arc::new(self.clone()), bars: self.inner.screen.bars().cloned() }
    }
}

impl LogLevels for LogControl {
    fn level(&self) -> LogLevel {
        LogLevel { filter: self.inner.filter.lock().clone(), start: self.inner.start.clone() }
    }

    fn change(&self, filter: &str) -> Result<(), String> {
        let filter = filter.trim();
        if filter.is_empty() {
            return Err("there is no filter: name a level, such as debug".to_owned());
        }
        let parsed = parse(filter)?;
        let mut current = self.inner.filter.lock();
        let say = || tracing::info!(from = *current, to = filter, "the log level changes");
        // The line is logged while the filter that shows it is active. A separate subscriber evaluates the old filter:
        // the global subscriber would keep the result for the next line, and that line might be lost.
        let old = tracing_subscriber::registry().with(parse(&current)?);
        let shows = tracing::subscriber::with_default(old, || tracing::enabled!(tracing::Level::INFO));
        if shows {
            say();
        }
        (self.inner.apply)(parsed)?;
        if !shows {
            say();
        }
        filter.clone_into(&mut current);
        Ok(())
    }
}
