//! Counters of spans by outcome. The label is a closed set.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

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
