//! The registry that every module adds its metrics to, and its text. One encoding serves all scrapers that ask at the same
//! time, and few texts are held for those that read slowly, since each may have many megabytes.

use std::{
    fmt,
    sync::{Arc, Weak},
};

use axum::body::Bytes;
use jiff::Timestamp;
use parking_lot::RwLock;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{
        gauge::{ConstGauge, Gauge},
        info::Info,
    },
    registry::Registry,
};
use thiserror::Error;
use tokio::{
    sync::{Mutex, OwnedSemaphorePermit, Semaphore},
    task::JoinError,
    time::Instant,
};

use super::{Check, CheckState, Checks};

/// The metrics of this process. Modules register theirs with `write()` at any time; each scrape reads the registry.
pub type SharedRegistry = Arc<RwLock<Registry>>;

/// Returns a registry whose names all start with `capi_autoscaler_provider_`, with the version and the start of this
/// process.
pub fn new_registry() -> SharedRegistry {
    let mut registry = Registry::with_prefix("capi_autoscaler_provider");
    let build = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
    registry.register("build", "The version that runs", build);
    let started = Gauge::<i64>::default();
    started.set(Timestamp::now().as_second());
    registry.register("start_timestamp_seconds", "When this process started, in Unix time", started);
    Arc::new(RwLock::new(registry))
}

/// The media type of the Prometheus text format, which every scraper reads.
pub(super) const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Encodes all metrics as text.
fn encode(registry: &SharedRegistry) -> Result<String, fmt::Error> {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry.read())?;
    Ok(to_prometheus(&text))
}

/// Converts OpenMetrics to the Prometheus format. The samples are equal. OpenMetrics names a family without the suffix
/// of its samples, and only OpenMetrics has the type `info`, units and an end marker.
fn to_prometheus(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let mut help = None;
    for line in open_metrics.lines() {
        let words = line.strip_prefix("# ").and_then(|rest| rest.split_once(' '));
        match words {
            // HELP comes before TYPE, which gives the name of the family.
            Some(("HELP", rest)) => help = rest.split_once(' '),
            Some(("TYPE", rest)) => {
                let (name, kind) = rest.rsplit_once(' ').unwrap_or((rest, "unknown"));
                let (suffix, kind) = match kind {
                    "counter" => ("_total", kind),
                    "info" => ("_info", "gauge"),
                    "unknown" => ("", "untyped"),
                    _ => ("", kind),
                };
                if let Some((_, help)) = help.take() {
                    text.extend(["# HELP ", name, suffix, " ", help, "\n"]);
                }
                text.extend(["# TYPE ", name, suffix, " ", kind, "\n"]);
            }
            Some(("UNIT", _)) => {}
            Some(_) | None if line == "# EOF" => {}
            Some(_) | None => text.extend([line, "\n"]),
        }
    }
    text
}

/// The checks of `/readyz`, as metrics.
pub struct ReadinessMetrics(Arc<dyn Checks>);

impl ReadinessMetrics {
    /// Returns the metrics of these checks.
    pub fn new(checks: Arc<dyn Checks>) -> Self {
        Self(checks)
    }
}

impl fmt::Debug for ReadinessMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReadinessMetrics")
    }
}

impl Collector for ReadinessMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let checks = self.0.checks();
        let ready = ConstGauge::new(i64::from(checks.iter().all(Check::is_ready)));
        let help = "1 while all that is waited for is in sync, so that Refresh succeeds, else 0";
        ready.encode(encoder.encode_descriptor("ready", help, None, ready.metric_type())?)?;
        let one = ConstGauge::new(1_i64);
        let help = "1 for each check of /readyz that isn't done; nothing waits for those of infrastructure templates";
        let mut family = encoder.encode_descriptor("failing_check", help, None, one.metric_type())?;
        for check in &checks {
            let waited_for = match check.state {
                CheckState::Ready => continue,
                CheckState::Pending => "true",
                CheckState::Informational => "false",
            };
            one.encode(family.encode_family(&[("check", check.name.as_str()), ("waited_for", waited_for)])?)?;
        }
        Ok(())
    }
}

/// The maximum number of texts that are held at a time.
pub(super) const MOST_TEXTS: usize = 4;

/// A text, until the last answer with it has been sent or its client is gone.
struct Text {
    text: String,
    _permit: OwnedSemaphorePermit,
}

/// A text as the body of one answer.
struct Shared(Arc<Text>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        self.0.text.as_bytes()
    }
}

/// The newest text, while an answer with it is being sent, and the time at which its encoding began.
#[derive(Default)]
struct Newest(Option<(Instant, Weak<Text>)>);

impl Newest {
    fn get(&self, since: Option<Instant>) -> Option<Bytes> {
        let (began, text) = self.0.as_ref()?;
        let is_new = since.is_none_or(|since| *began >= since);
        text.upgrade().filter(|_| is_new).map(|text| Bytes::from_owner(Shared(text)))
    }
}

/// The reason why there is no text.
#[derive(Debug, Error)]
pub(super) enum ScrapeError {
    #[error(
        "{MOST_TEXTS} texts of the metrics are being sent to clients that don't read them; try again in some seconds"
    )]
    Unread,
    #[error("can't write the metrics: {0}")]
    Encode(#[from] fmt::Error),
    #[error("can't write the metrics: {0}")]
    Task(#[from] JoinError),
}

pub(super) struct Scrapes {
    registry: SharedRegistry,
    permits: Arc<Semaphore>,
    newest: Mutex<Newest>,
}

impl Scrapes {
    pub(super) fn new(registry: SharedRegistry) -> Self {
        Self { registry, permits: Arc::new(Semaphore::new(MOST_TEXTS)), newest: Mutex::default() }
    }

    /// Returns a text that is no older than this call or, if the maximum number is unread, the newest of those.
    pub(super) async fn text(&self) -> Result<Bytes, ScrapeError> {
        let asked = Instant::now();
        // All requests that wait for this lock while another one encodes are served by the next encoding. A request
        // that is dropped meanwhile leaves the newest text as it was.
        let mut newest = self.newest.lock().await;
        if let Some(text) = newest.get(Some(asked)) {
            return Ok(text);
        }
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
            return newest.get(None).ok_or(ScrapeError::Unread);
        };
        let (registry, began) = (Arc::clone(&self.registry), Instant::now());
        // Encoding a large fleet takes some milliseconds, for which watches and writes on this runtime must not wait.
        // It goes on if its client is gone, and keeps its permit until then.
        let made = tokio::task::spawn_blocking(move || Ok(Text { text: encode(&registry)?, _permit: permit }));
        let text = Arc::new(made.await?.map_err(ScrapeError::Encode)?);
        newest.0 = Some((began, Arc::downgrade(&text)));
        Ok(Bytes::from_owner(Shared(text)))
    }
}
