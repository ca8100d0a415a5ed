//! The queue of ended spans. The SDK's own queue reports dropped spans only in its log; here they are counted. It
//! must never block a caller that ends a span.

use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_sdk::{
    error::OTelSdkResult,
    trace::{Span, SpanData, SpanExporter, SpanProcessor},
};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};
use tokio::{
    runtime::Handle,
    sync::mpsc::{Receiver, Sender, channel},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

/// The maximum number of queued spans: one minute of 8 writes per second, with the spans of their API calls.
const LONGEST: usize = 2048;
/// The maximum number of spans in one request.
const BATCH: usize = 512;
/// The time that the first span of a batch waits for more spans.
const GATHER: Duration = Duration::from_secs(1);

/// The input of the queue.
#[derive(Debug)]
pub(super) struct Queue {
    spans: Sender<SpanData>,
    metrics: TraceMetrics,
}

/// Returns a queue, and the task that sends its spans until `ending` is cancelled and the queue is empty.
pub(super) fn start(
    exporter: impl SpanExporter + 'static,
    metrics: TraceMetrics,
    ending: CancellationToken,
    runtime: &Handle,
) -> (Queue, JoinHandle<()>) {
    let (spans, waiting) = channel(LONGEST);
    let task = runtime.spawn(send_all(exporter, waiting, metrics.clone(), ending));
    (Queue { spans, metrics }, task)
}

impl SpanProcessor for Queue {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if span.span_context.is_sampled() && self.spans.try_send(span).is_err() {
            self.metrics.count(Fate::Dropped, 1);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

async fn send_all(
    exporter: impl SpanExporter,
    mut waiting: Receiver<SpanData>,
    metrics: TraceMetrics,
    ending: CancellationToken,
) {
    let mut fails = false;
    loop {
        let mut batch = Vec::new();
        tokio::select! {
            biased;
            spans = waiting.recv_many(&mut batch, BATCH) => if spans == 0 { return },
            () = ending.cancelled(), if !waiting.is_closed() => {
                // Waiting spans are still received after the close.
                waiting.close();
                continue;
            }
        }
        if ending.run_until_cancelled(tokio::time::sleep(GATHER)).await.is_some() {
            while batch.len() < BATCH
                && let Ok(span) = waiting.try_recv()
            {
                batch.push(span);
            }
        }
        let count = batch.len();
        match exporter.export(batch).await {
            Ok(()) => {
                metrics.count(Fate::Sent, count);
                if std::mem::take(&mut fails) {
                    info!("traces are sent again");
                }
            }
            Err(error) => {
                metrics.count(Fate::Failed, count);
                if std::mem::replace(&mut fails, true) {
                    debug!(spans = count, "traces still can't be sent: {error}");
                } else {
                    warn!(spans = count, "traces can't be sent and are lost: {error}");
                }
            }
        }
    }
}

// Counters of spans by outcome. The label is a closed set.

/// The outcome of a span.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Fate {
    /// The collector accepted it.
    Sent,
    /// The collector refused it, or didn't answer.
    Failed,
    /// The queue was full.
    Dropped,
}

impl Fate {
    const ALL: [Self; 3] = [Self::Sent, Self::Failed, Self::Dropped];

    fn as_str(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Failed => "failed",
            Self::Dropped => "dropped",
        }
    }
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct Labels {
    result: &'static str,
}

/// The counters of spans.
#[derive(Clone, Debug, Default)]
pub struct TraceMetrics {
    spans: Family<Labels, Counter>,
}

impl TraceMetrics {
    /// Registers the metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register("trace_spans", "Spans of traces, by outcome", metrics.spans.clone());
        for fate in Fate::ALL {
            metrics.count(fate, 0);
        }
        metrics
    }

    pub(super) fn count(&self, fate: Fate, spans: usize) {
        let spans = u64::try_from(spans).unwrap_or(u64::MAX);
        self.spans.get_or_create(&Labels { result: fate.as_str() }).inc_by(spans);
    }

    #[cfg(test)]
    pub(super) fn counted(&self, fate: Fate) -> u64 {
        self.spans.get_or_create(&Labels { result: fate.as_str() }).get()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use opentelemetry::trace::{Tracer as _, TracerProvider as _};
    use opentelemetry_sdk::{error::OTelSdkError, trace::SdkTracerProvider};
    use parking_lot::Mutex;

    use super::*;

    /// Records the sizes of batches; it can be set to fail, or to never answer.
    #[derive(Clone, Debug, Default)]
    struct Collector {
        batches: Arc<Mutex<Vec<usize>>>,
        fails: bool,
        hangs: bool,
    }

    impl SpanExporter for Collector {
        async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
            if self.hangs {
                std::future::pending::<()>().await;
            }
            self.batches.lock().push(batch.len());
            if self.fails { Err(OTelSdkError::InternalFailure("down".to_owned())) } else { Ok(()) }
        }
    }

    /// Ends this many spans, then cancels `ending`.
    async fn spans(count: usize, collector: &Collector, metrics: &TraceMetrics) -> JoinHandle<()> {
        let ending = CancellationToken::new();
        let (queue, task) = start(collector.clone(), metrics.clone(), ending.clone(), &Handle::current());
        let provider = SdkTracerProvider::builder().with_span_processor(queue).build();
        let tracer = provider.tracer("test");
        for _ in 0..count {
            drop(tracer.start("span"));
        }
        // The first batch is being sent, or waits for more.
        tokio::task::yield_now().await;
        ending.cancel();
        task
    }

    #[tokio::test(start_paused = true)]
    async fn at_the_end_all_that_wait_are_sent() {
        let (collector, metrics) = (Collector::default(), TraceMetrics::default());
        spans(1_200, &collector, &metrics).await.await.unwrap();
        assert_eq!(collector.batches.lock().iter().sum::<usize>(), 1_200);
        assert!(collector.batches.lock().iter().all(|&batch| batch <= BATCH));
        assert_eq!(metrics.counted(Fate::Sent), 1_200);
    }

    #[tokio::test(start_paused = true)]
    async fn a_collector_that_hangs_holds_up_nobody_and_what_is_dropped_is_counted() {
        let (collector, metrics) = (Collector { hangs: true, ..Collector::default() }, TraceMetrics::default());
        let task = spans(LONGEST + 10, &collector, &metrics).await;
        assert_eq!(metrics.counted(Fate::Dropped), 10);
        task.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_that_the_collector_refuses_is_counted_as_failed_and_not_sent_again() {
        let (collector, metrics) = (Collector { fails: true, ..Collector::default() }, TraceMetrics::default());
        spans(3, &collector, &metrics).await.await.unwrap();
        assert_eq!(*collector.batches.lock(), [3]);
        assert_eq!((metrics.counted(Fate::Failed), metrics.counted(Fate::Sent)), (3, 0));
    }
}
