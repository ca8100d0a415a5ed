//! Changes the log filter at runtime, permanently or for a limited time. A filter must never stay in force beyond its
//! time limit.

use std::{
    fmt,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tracing_subscriber::{EnvFilter, layer::SubscriberExt as _};

use super::{Screen, filter::parse};
use crate::cli::values::duration;
use app::LogHandle;
use server::{LogLevel, LogLevelChange, LogLevels};

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
    current: Mutex<Current>,
}

/// The filter in force.
struct Current {
    filter: String,
    until: Option<Instant>,
    /// The number of changes so far, so that the time limit of an earlier change can be ignored.
    changes: u64,
}

impl fmt::Debug for LogControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogControl").field("filter", &self.inner.current.lock().filter).finish_non_exhaustive()
    }
}

impl LogControl {
    pub(super) fn new(
        start: String,
        screen: Screen,
        apply: impl Fn(EnvFilter) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        let current = Mutex::new(Current { filter: start.clone(), until: None, changes: 0 });
        Self { inner: Arc::new(Inner { start, screen, apply: Box::new(apply), current }) }
    }

    /// Returns the handle for the running program.
    #[must_use]
    pub fn handle(&self) -> LogHandle {
        LogHandle { levels: Arc::new(self.clone()), bars: self.inner.screen.bars().cloned() }
    }
}

impl Inner {
    /// Applies a filter, and returns the number of this change.
    fn put(&self, filter: &str, limit: Option<Duration>) -> Result<u64, String> {
        let parsed = parse(filter)?;
        let mut current = self.current.lock();
        let say = || tracing::info!(from = current.filter, to = filter, ?limit, "the log level changes");
        // The line is logged while the filter that shows it is active. A separate subscriber evaluates the old filter:
        // the global subscriber would keep the result for the next line, and that line might be lost.
        let old = tracing_subscriber::registry().with(parse(&current.filter)?);
        let shows = tracing::subscriber::with_default(old, || tracing::enabled!(tracing::Level::INFO));
        if shows {
            say();
        }
        (self.apply)(parsed)?;
        if !shows {
            say();
        }
        let until = limit.map(|limit| Instant::now() + limit);
        *current = Current { filter: filter.to_owned(), until, changes: current.changes + 1 };
        Ok(current.changes)
    }

    /// Restores the initial filter after the time limit, unless another change followed.
    fn end_of_time(&self, change: u64) {
        if self.current.lock().changes == change
            && let Err(error) = self.put(&self.start, None)
        {
            tracing::error!("the log level of the start can't be put in force again: {error}");
        }
    }
}

impl LogLevels for LogControl {
    fn level(&self) -> LogLevel {
        let current = self.inner.current.lock();
        LogLevel {
            filter: current.filter.clone(),
            start: self.inner.start.clone(),
            remaining_seconds: current.until.map(|until| until.saturating_duration_since(Instant::now()).as_secs()),
        }
    }

    fn change(&self, change: LogLevelChange<'_>) -> Result<(), String> {
        let (filter, limit) = match change {
            LogLevelChange::Start => (self.inner.start.as_str(), None),
            LogLevelChange::Set { filter, limit } => (filter.trim(), limit.map(limited).transpose()?),
        };
        if filter.is_empty() {
            return Err("there is no filter: name a level, such as debug".to_owned());
        }
        let change = self.inner.put(filter, limit)?;
        if let Some(limit) = limit {
            let inner: Weak<_> = Arc::downgrade(&self.inner);
            tokio::spawn(async move {
                tokio::time::sleep(limit).await;
                if let Some(inner) = inner.upgrade() {
                    inner.end_of_time(change);
                }
            });
        }
        Ok(())
    }
}

/// Parses the time limit of a change. A limit above one day is refused: it is a mistake, or means a permanent change.
fn limited(text: &str) -> Result<Duration, String> {
    let limit = duration(text).map_err(|why| format!("for={text:?}: {why}"))?;
    if limit > Duration::from_secs(24 * 60 * 60) {
        return Err(format!(
            "for={text:?}: it has to be at most 24h; without it the change lasts until the next start"
        ));
    }
    Ok(limit)
}
