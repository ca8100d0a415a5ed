//! The registry that every module adds its metrics to, and its text formats. A scraper gets the format that it asks
//! for.

use std::{fmt, sync::Arc};

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

use super::{CheckState, Checks};

/// The metrics of this process. Modules register theirs with `write()` at any time; each scrape reads the registry.
pub type SharedRegistry = Arc<RwLock<Registry>>;

/// Returns a registry whose names all start with `capi_autoscaler_provider_`, with the version and the start of this
/// process.
#[must_use]
pub fn new_registry() -> SharedRegistry {
    let mut registry = Registry::with_prefix("capi_autoscaler_provider");
    let build = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
    registry.register("build", "The version that runs", build);
    let started = Gauge::<i64>::default();
    started.set(Timestamp::now().as_second());
    registry.register("start_timestamp_seconds", "When this process started, in Unix time", started);
    Arc::new(RwLock::new(registry))
}

/// A text format of metrics.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum TextForm {
    /// The Prometheus text format, which every scraper reads.
    Prometheus,
    /// OpenMetrics, for scrapers that ask for it.
    OpenMetrics,
}

impl TextForm {
    /// Returns the format for a request with this `Accept` header.
    pub(super) fn accepted(accept: Option<&str>) -> Self {
        let types = accept.unwrap_or_default().split(',').filter_map(|range| range.split(';').next());
        if types.map(str::trim).any(|it| it.eq_ignore_ascii_case("application/openmetrics-text")) {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    /// Returns the media type.
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Encodes all metrics as text.
pub(super) fn encode(registry: &SharedRegistry, form: TextForm) -> Result<String, fmt::Error> {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry.read())?;
    Ok(match form {
        TextForm::OpenMetrics => text,
        TextForm::Prometheus => to_prometheus(&text),
    })
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
    #[must_use]
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
        let ready = ConstGauge::new(i64::from(checks.iter().all(super::Check::is_ready)));
        let help = "1 while all that is waited for is in sync, so that Refresh succeeds, else 0";
        ready.encode(encoder.encode_descriptor("ready", help, None, ready.metric_type())?)?;
        let one = ConstGauge::new(1_i64);
        let help = "1 for each check of /readyz that isn't done; nothing waits for those of infrastructure templates";
        let mut family = encoder.encode_descriptor("failing_check", help, None, one.metric_type())?;
        for check in &checks {
            let waited_for = match check.state {
                CheckState::Ready | CheckState::Broken(_) => continue,
                CheckState::Pending(_) => "true",
                CheckState::Informational(_) => "false",
            };
            one.encode(family.encode_family(&[("check", check.name.as_str()), ("waited_for", waited_for)])?)?;
        }
        Ok(())
    }
}
