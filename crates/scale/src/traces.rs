//! Traces over OTLP: a span for each write command, for each API call under it, and for each read that is logged as
//! slow or failed. It must never wait for a collector, nor send it the content of an object or a header.
//!
//! Spans use OpenTelemetry's API and not `tracing`: a span passes from the gRPC thread through a lane's queue to
//! another runtime, and may belong to several callers. The span of a read starts before the program knows that it will
//! record one. A task finds its span in its OpenTelemetry context, so modules in between needn't pass it on.

use std::{
    fmt,
    str::FromStr,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, SystemTime},
};

use http::Uri;
use opentelemetry::{
    Context, KeyValue, Value,
    propagation::{Extractor, TextMapPropagator as _},
    trace::{SpanContext, SpanKind, Status, TraceContextExt as _, Tracer as _, TracerProvider as _},
};
use opentelemetry_otlp::{ExporterBuildError, WithExportConfig as _, WithTonicConfig as _};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    propagation::TraceContextPropagator,
    trace::{
        self, BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracer, SdkTracerProvider, SpanData, SpanExporter,
    },
};
use prometheus_client::{
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};
use thiserror::Error;
use tokio::task::spawn_blocking;
use tonic::{metadata::MetadataMap, transport::ClientTlsConfig};
use tracing::{debug, info, warn};

const SERVICE: &str = "capi-autoscaler-provider";
/// The time that the first span of a batch waits for more spans.
const GATHERED_FOR: Duration = Duration::from_secs(1);

/// The reason why traces can't be sent.
#[derive(Debug, Error)]
#[error("traces can't be sent to {endpoint}")]
pub struct TracesError {
    endpoint: OtlpEndpoint,
    source: ExporterBuildError,
}

/// The source of spans. The default creates none, at no cost.
#[derive(Clone, Debug, Default)]
pub struct Traces(Option<SdkTracer>);

/// Sends spans, from a thread of its own.
#[derive(Debug)]
pub struct Sender(SdkTracerProvider);

impl Sender {
    /// Sends the remaining spans, for at most `limit`.
    pub async fn finish(self, limit: Duration) {
        // What fails is logged and counted where it is sent.
        let _ = spawn_blocking(move || self.0.shutdown_with_timeout(limit)).await;
    }
}

impl Traces {
    /// Sends spans to a collector. The function needs a running Tokio runtime, and doesn't wait for the collector to
    /// respond. The standard variables `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_EXPORTER_OTLP_TIMEOUT`, `OTEL_SERVICE_NAME` and
    /// `OTEL_RESOURCE_ATTRIBUTES` are respected.
    ///
    /// # Errors
    /// If these variables are invalid, or there are no certificates to trust.
    pub fn start(endpoint: &OtlpEndpoint, metrics: TraceMetrics) -> Result<(Self, Sender), TracesError> {
        let mut builder = opentelemetry_otlp::SpanExporter::builder().with_tonic().with_endpoint(endpoint.as_str());
        if endpoint.has_tls() {
            builder = builder.with_tls_config(ClientTlsConfig::new().with_enabled_roots());
        }
        let exporter = builder.build();
        let exporter = exporter.map_err(|source| TracesError { endpoint: endpoint.clone(), source })?;
        let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
        let mut resource = Resource::builder().with_attribute(version);
        if std::env::var_os("OTEL_SERVICE_NAME").is_none_or(|name| name.is_empty()) {
            resource = resource.with_service_name(SERVICE);
        }
        let batches = BatchConfigBuilder::default().with_scheduled_delay(GATHERED_FOR).build();
        let exporter = ReportingExporter::new(exporter, metrics);
        let provider = SdkTracerProvider::builder()
            .with_span_processor(BatchSpanProcessor::builder(exporter).with_batch_config(batches).build())
            .with_resource(resource.build())
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::AlwaysOn)))
            .build();
        Ok((Self(Some(provider.tracer(SERVICE))), Sender(provider)))
    }

    /// Begins the span of a write call. It is part of the caller's trace, if there is one.
    pub fn call(&self, rpc: &'static str, metadata: &MetadataMap) -> Span {
        let Some(tracer) = &self.0 else { return Span::default() };
        let builder = tracer.span_builder(rpc).with_kind(SpanKind::Server).with_attributes(of_rpc(rpc));
        Span::begun(tracer.build_with_context(builder, &caller_of(metadata)))
    }

    /// Begins the span of a call that has just finished, with its start `took` ago.
    pub fn past_call(&self, rpc: &'static str, metadata: &MetadataMap, took: Duration) -> Span {
        let Some(tracer) = &self.0 else { return Span::default() };
        let begun = SystemTime::now().checked_sub(took).unwrap_or(SystemTime::UNIX_EPOCH);
        let builder = tracer.span_builder(rpc).with_kind(SpanKind::Server).with_attributes(of_rpc(rpc));
        Span::begun(tracer.build_with_context(builder.with_start_time(begun), &caller_of(metadata)))
    }

    /// Begins a child span of the current context.
    pub fn part(&self, name: String, kind: SpanKind, attributes: Vec<KeyValue>) -> Span {
        let Some(tracer) = &self.0 else { return Span::default() };
        let builder = tracer.span_builder(name).with_kind(kind).with_attributes(attributes);
        Span::begun(tracer.build_with_context(builder, &Context::current()))
    }

    /// Begins the span of work for several callers: part of the first one's trace, linked to the others'.
    pub fn work<'a>(&self, name: &'static str, mut asked: impl Iterator<Item = &'a Context>) -> Span {
        let Some(tracer) = &self.0 else { return Span::default() };
        let builder = tracer.span_builder(name).with_kind(SpanKind::Internal);
        let context = asked.next().cloned().unwrap_or_default();
        let span = Span::begun(tracer.build_with_context(builder, &context));
        for other in asked {
            span.link(other.span().span_context());
        }
        span
    }

    /// Returns true if spans are sent.
    pub fn are_on(&self) -> bool {
        self.0.is_some()
    }
}

fn of_rpc(rpc: &'static str) -> [KeyValue; 2] {
    [KeyValue::new("rpc.system", "grpc"), KeyValue::new("rpc.method", rpc)]
}

fn caller_of(metadata: &MetadataMap) -> Context {
    TraceContextPropagator::new().extract_with_context(&Context::new(), &Metadata(metadata))
}

struct Metadata<'a>(&'a MetadataMap);

impl Extractor for Metadata<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.as_ref().keys().map(http::HeaderName::as_str).collect()
    }
}

// A span in progress, or nothing if traces are off. Code that holds a span needn't know the difference.

/// A span in progress. If it is dropped before its end, it is marked as cancelled by the caller.
#[derive(Debug, Default)]
pub struct Span(Option<Context>);

/// Adds attributes to the span of the current task, as [`Span::set`] does.
pub fn set(attributes: &[(&'static str, i64)]) {
    Context::map_current(|context| {
        for &(key, value) in attributes {
            context.span().set_attribute(KeyValue::new(key, value));
        }
    });
}

/// Links the current task's span to the trace of another caller that the task serves, as [`Traces::work`] does.
pub fn asked_by(other: &Context) {
    let other = other.span().span_context().clone();
    if other.is_valid() {
        Context::map_current(|context| context.span().add_link(other, Vec::new()));
    }
}

impl Span {
    fn begun(span: trace::Span) -> Self {
        Self(Some(Context::new().with_span(span)))
    }

    /// Returns the context under which the work of this span runs.
    pub fn context(&self) -> Context {
        self.0.clone().unwrap_or_default()
    }

    /// Adds an attribute.
    pub fn set(&self, key: &'static str, value: impl Into<Value>) {
        if let Some(context) = &self.0 {
            context.span().set_attribute(KeyValue::new(key, value));
        }
    }

    fn link(&self, other: &SpanContext) {
        if let Some(context) = self.0.as_ref().filter(|_| other.is_valid()) {
            context.span().add_link(other.clone(), Vec::new());
        }
    }

    /// Returns the id of its trace; `None` if the span isn't sent.
    pub fn trace_id(&self) -> Option<String> {
        let span = self.0.as_ref()?.span().span_context().clone();
        span.is_sampled().then(|| span.trace_id().to_string())
    }

    /// Ends the span with this code and, if it failed, the error.
    pub fn end(mut self, code: &'static str, error: Option<String>) {
        if let Some(context) = self.0.take() {
            let span = context.span();
            span.set_attribute(KeyValue::new("code", code));
            if let Some(error) = error {
                span.set_status(Status::error(error));
            }
            span.end();
        }
    }

    /// Ends the span; its outcome is reported elsewhere.
    pub fn close(mut self) {
        if let Some(context) = self.0.take() {
            context.span().end();
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if let Some(context) = self.0.take() {
            let span = context.span();
            span.set_attribute(KeyValue::new("code", "CANCELLED"));
            span.set_status(Status::error("the caller has left"));
            span.end();
        }
    }
}

/// Sends spans, and reports what becomes of them.
#[derive(Debug)]
struct ReportingExporter<E> {
    exporter: E,
    metrics: TraceMetrics,
    fails: AtomicBool,
}

impl<E: SpanExporter> ReportingExporter<E> {
    fn new(exporter: E, metrics: TraceMetrics) -> Self {
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

// The address of a collector.

/// The URL of an OTLP collector over gRPC. It must never hold credentials.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OtlpEndpoint {
    url: String,
    tls: bool,
}

impl OtlpEndpoint {
    fn as_str(&self) -> &str {
        &self.url
    }

    fn has_tls(&self) -> bool {
        self.tls
    }
}

impl fmt::Display for OtlpEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

impl FromStr for OtlpEndpoint {
    type Err = &'static str;

    /// Parses the URL. The error never quotes it, since it may hold a password.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let rule = "it has to be a URL such as http://otel-collector:4317 or https://otel.example.com:4317, of a collector \
                    that takes OTLP by gRPC";
        let uri: Uri = text.parse().map_err(|_| rule)?;
        let authority = uri.authority().ok_or(rule)?;
        if authority.as_str().contains('@') {
            return Err("it must not hold credentials: give them as headers in OTEL_EXPORTER_OTLP_HEADERS");
        }
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err("it must not have a path or query: traces are sent by gRPC, not by HTTP");
        }
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(rule),
        };
        let scheme = if tls { "https" } else { "http" };
        Ok(Self { url: format!("{scheme}://{authority}"), tls })
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_sdk::error::OTelSdkError;
    use rstest::rstest;
    use testkit::CapturedLog;

    use super::*;

    #[rstest]
    #[case::plain("http://127.0.0.1:4317", Ok(("http://127.0.0.1:4317", false)))]
    #[case::tls("https://otel.example.com/", Ok(("https://otel.example.com", true)))]
    #[case::no_scheme("otel:4317", Err("it has to be a URL"))]
    #[case::another_scheme("grpc://otel:4317", Err("it has to be a URL"))]
    #[case::a_path("http://otel:4318/v1/traces", Err("must not have a path"))]
    #[case::a_password("https://me:secret@otel:4317", Err("must not hold credentials"))]
    #[case::nothing("", Err("it has to be a URL"))]
    fn an_endpoint_is_a_url_without_credentials(#[case] text: &str, #[case] expected: Result<(&str, bool), &str>) {
        match (text.parse::<OtlpEndpoint>(), expected) {
            (Ok(endpoint), Ok(expected)) => assert_eq!((endpoint.as_str(), endpoint.has_tls()), expected),
            (Err(why), Err(part)) => assert!(why.contains(part) && !why.contains("secret"), "{why}"),
            (parsed, expected) => panic!("{parsed:?} instead of {expected:?}"),
        }
    }

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
