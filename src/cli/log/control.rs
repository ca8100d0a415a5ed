//! Changes the log filter at runtime, until the next start.

use std::fmt;

use parking_lot::Mutex;
use tracing_subscriber::{EnvFilter, layer::SubscriberExt as _};

use super::filter::parse;
use service::listen::{LogLevel, LogLevels};

/// Controls the log of this process.
pub(in crate::cli) struct LogControl {
    /// The filter at the start.
    start: String,
    apply: Box<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>,
    filter: Mutex<String>,
}

impl LogControl {
    pub(super) fn new(start: String, apply: impl Fn(EnvFilter) -> Result<(), String> + Send + Sync + 'static) -> Self {
        let filter = Mutex::new(start.clone());
        Self { start, apply: Box::new(apply), filter }
    }
}

impl fmt::Debug for LogControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogControl").field("filter", &self.filter.lock()).finish_non_exhaustive()
    }
}

impl LogLevels for LogControl {
    fn level(&self) -> LogLevel {
        LogLevel { filter: self.filter.lock().clone(), start: self.start.clone() }
    }

    fn change(&self, filter: &str) -> Result<(), String> {
        let filter = filter.trim();
        if filter.is_empty() {
            return Err("there is no filter: name a level, such as debug".to_owned());
        }
        let parsed = parse(filter)?;
        let mut current = self.filter.lock();
        let say = || tracing::info!(from = *current, to = filter, "the log level changes");
        // The line is logged while the filter that shows it is active. A separate subscriber evaluates the old filter:
        // the global subscriber would keep the result for the next line, and that line might be lost.
        let old = tracing_subscriber::registry().with(parse(&current)?);
        let shows = tracing::subscriber::with_default(old, || tracing::enabled!(tracing::Level::INFO));
        if shows {
            say();
        }
        (self.apply)(parsed)?;
        if !shows {
            say();
        }
        filter.clone_into(&mut current);
        Ok(())
    }
}
