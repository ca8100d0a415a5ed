//! Counts the spans that are sent, and logs when that begins or ceases to fail.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    trace::{SpanData, SpanExporter},
};
use prometheus_client::{
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};
use tracing::{debug, info, warn};

/// Sends spans, and reports what becomes of them.
#[derive(Debug)]
pub(super) struct ReportingExporter<E> {
    exporter: E,
    metrics: TraceMetrics,
    fails: AtomicBool,
}

impl<E: SpanExporter> ReportingExporter<E> {
    pub(super) fn new(exporter: E, metrics: TraceMetrics) -> Self {
        Self { exporter, metrics, fails: AtomicBool::new(false) }
    }
}

impl<E: SpanExporter> SpanExporter for ReportingExporter<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let sent = self.exporter.export(batch).await;
        self.metrics.count(if sent.is_ok() { "sent" } else { "failed" }, spans);
        match (&sent, self.fails.swap(sent.is_err(), Ordering::Relaxed)) {
            (Ok(()), false) => {}
            (Ok(()), true) => info!("traces are sent again"),
            (Err(error), false) => warn!(spans, "traces can't be sent and are lost: {error}"),
            (Err(error), true) => debug!(spans, "traces still can't be sent: {error}"),
        }
        sent
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

/// The counters of spans: those that the collector accepted, and those that it refused or didn't answer.
#[derive(Clone, Debug, Default)]
pub struct TraceMetrics {
    spans: Family<[(&'static str, &'static str); 1], Counter>,
}

impl TraceMetrics {
    /// Registers the metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register("trace_spans", "Spans of traces, by outcome", metrics.spans.clone());
        for result in ["sent", "failed"] {
            metrics.count(result, 0);
        }
        metrics
    }

    fn count(&self, result: &'static str, spans: usize) {
        self.spans.get_or_create(&[("result", result)]).inc_by(u64::try_from(spans).unwrap_or(u64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_sdk::error::OTelSdkError;
    use testkit::CapturedLog;

    use super::*;

    /// Answers each batch as it is set to.
    #[derive(Debug, Default)]
    struct Collector {
        fails: AtomicBool,
    }

    impl SpanExporter for Collector {
        async fn export(&self, _: Vec<SpanData>) -> OTelSdkResult {
            let fails = self.fails.load(Ordering::Relaxed);
            if fails { Err(OTelSdkError::InternalFailure("down".to_owned())) } else { Ok(()) }
        }
    }

    #[tokio::test]
    async fn a_collector_that_refuses_is_counted_and_logged_once() {
        let exporter = ReportingExporter::new(Collector::default(), TraceMetrics::default());
        let (said, _log) = CapturedLog::begin();
        for fails in [false, true, true, false] {
            exporter.exporter.fails.store(fails, Ordering::Relaxed);
            assert_eq!(exporter.export(Vec::new()).await.is_err(), fails);
        }
        let said = said.take();
        let warned = said.lines().filter(|line| line.contains("traces can't be sent")).count();
        assert_eq!((warned, said.contains("traces are sent again")), (1, true), "{said}");
    }
}
