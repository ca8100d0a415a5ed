//! Counts RPCs by name and code, and records their latencies and the times of their last calls. All labels are closed
//! sets.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use rules::named_enum;
use scale::code_name;
use tonic::Code;

/// The upper bounds of the latency buckets, in seconds: reads take some microseconds, a write takes as long as the API
/// server does, and Cluster Autoscaler gives up after 5 seconds.
const LATENCIES: [f64; 12] = [0.000_1, 0.000_5, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0];

named_enum! {
    /// The RPCs of the service.
    #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
    pub(super) enum Rpc {
        NodeGroups = "NodeGroups",
        NodeGroupForNode = "NodeGroupForNode",
        PricingNodePrice = "PricingNodePrice",
        PricingPodPrice = "PricingPodPrice",
        GpuLabel = "GPULabel",
        GetAvailableGpuTypes = "GetAvailableGPUTypes",
        Cleanup = "Cleanup",
        Refresh = "Refresh",
        NodeGroupTargetSize = "NodeGroupTargetSize",
        NodeGroupIncreaseSize = "NodeGroupIncreaseSize",
        NodeGroupDeleteNodes = "NodeGroupDeleteNodes",
        NodeGroupDecreaseTargetSize = "NodeGroupDecreaseTargetSize",
        NodeGroupNodes = "NodeGroupNodes",
        NodeGroupTemplateNodeInfo = "NodeGroupTemplateNodeInfo",
        NodeGroupGetOptions = "NodeGroupGetOptions",
    }
}

/// Labels, as names and values.
type Labels<const N: usize> = [(&'static str, &'static str); N];

/// Counts and times every answer of the service.
#[derive(Clone, Debug)]
pub struct RpcMetrics {
    answers: Family<Labels<2>, Counter>,
    latencies: Family<Labels<1>, Histogram, fn() -> Histogram>,
    /// The times of the last calls in Unix time; an RPC that was never called has no series.
    last_calls: Family<Labels<1>, Gauge>,
}

impl RpcMetrics {
    /// Registers the metrics. The counters of OK answers start at 0.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            answers: Family::default(),
            latencies: Family::new_with_constructor(|| Histogram::new(LATENCIES)),
            last_calls: Family::default(),
        };
        let Self { answers, latencies, last_calls } = metrics.clone();
        registry.register("grpc_answers", "RPCs answered, by RPC and gRPC code", answers);
        registry.register("grpc_answer_seconds", "How long answers to RPCs took here, by RPC", latencies);
        registry.register(
            "grpc_last_call_timestamp_seconds",
            "When an RPC was last called, in Unix time, by RPC",
            last_calls,
        );
        for rpc in Rpc::ALL.map(Rpc::as_str) {
            let _ = metrics.answers.get_or_create(&[("rpc", rpc), ("code", code_name(Code::Ok))]);
            let _ = metrics.latencies.get_or_create(&[("rpc", rpc)]);
        }
        metrics
    }

    /// Begins to time a call.
    pub(super) fn begin(&self, rpc: Rpc) -> Call<'_> {
        let rpc = rpc.as_str();
        self.last_calls.get_or_create(&[("rpc", rpc)]).set(Timestamp::now().as_second());
        Call { metrics: self, rpc, begun: Instant::now(), is_answered: false }
    }
}

/// A call that is being answered. If it is dropped before its answer, it counts as cancelled by the caller.
#[derive(Debug)]
pub(super) struct Call<'a> {
    metrics: &'a RpcMetrics,
    rpc: &'static str,
    begun: Instant,
    is_answered: bool,
}

impl Call<'_> {
    /// Counts the answer. Returns the time that it took.
    pub(super) fn answered(mut self, code: Code) -> Duration {
        self.is_answered = true;
        self.count(code)
    }

    fn count(&self, code: Code) -> Duration {
        let took = self.begun.elapsed();
        self.metrics.latencies.get_or_create(&[("rpc", self.rpc)]).observe(took.as_secs_f64());
        self.metrics.answers.get_or_create(&[("rpc", self.rpc), ("code", code_name(code))]).inc();
        took
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.count(Code::Cancelled);
        }
    }
}
