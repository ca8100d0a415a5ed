//! The registry that every room adds its metrics to, and its text form.

use std::{fmt, sync::Arc};

use parking_lot::RwLock;
use prometheus_client::{metrics::info::Info, registry::Registry};

/// The media type of the text form: OpenMetrics.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The metrics of this process. Rooms add theirs with `write()`, at any time; it is read on each scrape.
pub type SharedRegistry = Arc<RwLock<Registry>>;

/// A registry whose names all start with `capi_autoscaler_provider_`; it holds which version runs.
#[must_use]
pub fn new_registry() -> SharedRegistry {
    let mut registry = Registry::with_prefix("capi_autoscaler_provider");
    let build = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
    registry.register("build", "The version that runs", build);
    Arc::new(RwLock::new(registry))
}

/// The text form of all metrics.
pub(super) fn encode(registry: &SharedRegistry) -> Result<String, fmt::Error> {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry.read())?;
    Ok(text)
}
