//! The price file. It is read at the start, where a bad file is an error, and followed afterwards, where a bad file
//! leaves the previous prices in force. After the start, only the task that follows it may wait for a disk.

mod form;

use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::anyhow;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use rules::PriceList;

/// The maximum size of a file in bytes. A ConfigMap can't hold more, and the prices of a cloud's instance types need
/// only a tenth of it.
const LARGEST: u64 = 1 << 20;

/// A price file that was read.
#[derive(Debug)]
pub struct PriceFile {
    path: PathBuf,
    /// The text of the prices in force.
    text: String,
}

impl PriceFile {
    /// Reads a price file.
    ///
    /// # Errors
    /// If the file can't be read, or holds no price list.
    pub fn open(path: &Path) -> anyhow::Result<(Self, Arc<PriceList>)> {
        let text = read(path)?;
        let prices = parse(path, &text)?;
        Ok((Self { path: path.to_owned(), text }, Arc::new(prices)))
    }
}

fn read(path: &Path) -> anyhow::Result<String> {
    let form = |reason: String| anyhow!("price file {}: {reason}", path.display());
    let failed = |error| form(format!("it can't be read: {error}"));
    // Opening a pipe would block until somebody writes to it.
    if !path.metadata().map_err(failed)?.is_file() {
        return Err(form("it is no file".to_owned()));
    }
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(LARGEST + 1).read_to_end(&mut bytes)).map_err(failed)?;
    if bytes.len() as u64 > LARGEST {
        return Err(form(format!("it is longer than {LARGEST} bytes")));
    }
    String::from_utf8(bytes).map_err(|error| form(format!("it is no UTF-8 text: {error}")))
}

fn parse(path: &Path, text: &str) -> anyhow::Result<PriceList> {
    form::parse(text).map_err(|reason| anyhow!("price file {}: {reason}", path.display()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::float_cmp)]
mod tests;

// Follows a price file: reads it every few seconds, and applies its prices as soon as two reads in a row were the
// same, so that a half-written file is never applied.

/// The time between two reads. A mounted ConfigMap changes up to a minute after the write, so seconds don't matter.
pub(super) const INTERVAL: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ResultLabels {
    result: &'static str,
}

/// The metrics of following a price file.
#[derive(Clone, Debug, Default)]
pub struct PriceMetrics {
    changes: Family<ResultLabels, Counter>,
    stale: Gauge,
}

impl PriceMetrics {
    /// Registers the metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register("price_file_changes", "Changes of the price file, by result", metrics.changes.clone());
        registry.register(
            "price_file_stale",
            "Whether the price file can't be used and the prices from before are in force (1) or not (0)",
            metrics.stale.clone(),
        );
        // Counters start at 0, so that the first failure is an increase.
        for result in ["ok", "error"] {
            let _ = metrics.count(result);
        }
        metrics
    }

    fn count(&self, result: &'static str) -> Counter {
        self.changes.get_or_create_owned(&ResultLabels { result })
    }
}

#[derive(Default)]
pub(super) struct Pending {
    /// A new text, which is applied if the next read returns it again.
    candidate: Option<String>,
    /// The current problem, as logged.
    problem: Option<String>,
}

impl PriceFile {
    /// Follows the file for ever, and calls `apply` with its prices whenever they change.
    pub(super) async fn follow(mut self, interval: Duration, metrics: PriceMetrics, apply: impl Fn(Arc<PriceList>)) {
        let mut pending = Pending::default();
        loop {
            tokio::time::sleep(interval).await;
            match self.reload(&mut pending).await {
                Ok(None) => {}
                Ok(Some(prices)) => {
                    metrics.count("ok").inc();
                    tracing::info!(file = %self.path.display(), "prices have changed");
                    apply(prices);
                }
                Err(error) => {
                    let problem = error.to_string();
                    // Each problem is logged once, not at every read.
                    if pending.problem.as_ref() != Some(&problem) {
                        metrics.count("error").inc();
                        tracing::warn!("{problem}; the prices from before stay in force");
                        pending.problem = Some(problem);
                    }
                }
            }
            metrics.stale.set(i64::from(pending.problem.is_some()));
        }
    }

    /// Reads the file once. Returns new prices, or `None` if they haven't changed or were read only once.
    pub(super) async fn reload(&mut self, pending: &mut Pending) -> anyhow::Result<Option<Arc<PriceList>>> {
        let text = read_apart(self.path.clone()).await?;
        if text == self.text {
            if pending.problem.take().is_some() {
                tracing::info!(file = %self.path.display(), "the price file is as before again");
            }
            pending.candidate = None;
            return Ok(None);
        }
        if pending.candidate.as_ref() != Some(&text) {
            pending.candidate = Some(text);
            return Ok(None);
        }
        let prices = parse(&self.path, &text)?;
        self.text = text;
        *pending = Pending::default();
        Ok(Some(Arc::new(prices)))
    }
}

/// Reads the file on a blocking thread, so that a slow disk blocks no async task.
async fn read_apart(path: PathBuf) -> anyhow::Result<String> {
    tokio::task::spawn_blocking(move || read(&path)).await?
}
