//! Counts RPCs by name and code, and records their latencies and the times of their last calls. All labels are closed
//! sets. The metrics must never slow down a read: a call reads the clock twice and updates a few counters, without a
//! map lookup.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use jiff::Timestamp;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric},
    metrics::{counter::Counter, family::Family, gauge::ConstGauge, histogram::Histogram},
    registry::Registry,
};
use tonic::Code;

/// The upper bounds of the latency buckets, in seconds: reads take some microseconds, a write takes as long as the API
/// server does, and Cluster Autoscaler gives up after 5 seconds.
const LATENCIES: [f64; 12] = [0.000_1, 0.000_5, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0];

/// The RPCs of the service.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Rpc {
    NodeGroups,
    NodeGroupForNode,
    PricingNodePrice,
    PricingPodPrice,
    GpuLabel,
    GetAvailableGpuTypes,
    Cleanup,
    Refresh,
    NodeGroupTargetSize,
    NodeGroupIncreaseSize,
    NodeGroupDeleteNodes,
    NodeGroupDecreaseTargetSize,
    NodeGroupNodes,
    NodeGroupTemplateNodeInfo,
    NodeGroupGetOptions,
}

impl Rpc {
    pub(super) const ALL: [Self; 15] = [
        Self::NodeGroups,
        Self::NodeGroupForNode,
        Self::PricingNodePrice,
        Self::PricingPodPrice,
        Self::GpuLabel,
        Self::GetAvailableGpuTypes,
        Self::Cleanup,
        Self::Refresh,
        Self::NodeGroupTargetSize,
        Self::NodeGroupIncreaseSize,
        Self::NodeGroupDeleteNodes,
        Self::NodeGroupDecreaseTargetSize,
        Self::NodeGroupNodes,
        Self::NodeGroupTemplateNodeInfo,
        Self::NodeGroupGetOptions,
    ];

    /// Returns the RPC's name in the protocol.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::NodeGroups => "NodeGroups",
            Self::NodeGroupForNode => "NodeGroupForNode",
            Self::PricingNodePrice => "PricingNodePrice",
            Self::PricingPodPrice => "PricingPodPrice",
            Self::GpuLabel => "GPULabel",
            Self::GetAvailableGpuTypes => "GetAvailableGPUTypes",
            Self::Cleanup => "Cleanup",
            Self::Refresh => "Refresh",
            Self::NodeGroupTargetSize => "NodeGroupTargetSize",
            Self::NodeGroupIncreaseSize => "NodeGroupIncreaseSize",
            Self::NodeGroupDeleteNodes => "NodeGroupDeleteNodes",
            Self::NodeGroupDecreaseTargetSize => "NodeGroupDecreaseTargetSize",
            Self::NodeGroupNodes => "NodeGroupNodes",
            Self::NodeGroupTemplateNodeInfo => "NodeGroupTemplateNodeInfo",
            Self::NodeGroupGetOptions => "NodeGroupGetOptions",
        }
    }
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct AnswerLabels {
    rpc: &'static str,
    code: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct RpcLabels {
    rpc: &'static str,
}

/// Counts and times every answer of the service.
#[derive(Clone, Debug)]
pub struct RpcMetrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    answers: Family<AnswerLabels, Counter>,
    /// The counters in the order of [`Rpc::ALL`], which is also the order of the variants.
    rpcs: [RpcCounts; Rpc::ALL.len()],
}

/// The counters of one RPC.
#[derive(Debug)]
struct RpcCounts {
    ok: Counter,
    took: Histogram,
    /// The time of the last call in Unix time; 0 until the first call.
    last_call: AtomicI64,
}

impl RpcMetrics {
    /// Registers the metrics. The counters of OK answers start at 0.
    pub fn register(registry: &mut Registry) -> Self {
        let answers = Family::<AnswerLabels, Counter>::default();
        let latencies =
            Family::<RpcLabels, Histogram, fn() -> Histogram>::new_with_constructor(|| Histogram::new(LATENCIES));
        registry.register("grpc_answers", "RPCs answered, by RPC and gRPC code", answers.clone());
        registry.register("grpc_answer_seconds", "How long answers to RPCs took here, by RPC", latencies.clone());
        let rpcs = Rpc::ALL.map(Rpc::as_str).map(|rpc| RpcCounts {
            ok: answers.get_or_create_owned(&AnswerLabels { rpc, code: code_name(Code::Ok) }),
            took: latencies.get_or_create_owned(&RpcLabels { rpc }),
            last_call: AtomicI64::new(0),
        });
        let inner = Arc::new(Inner { answers, rpcs });
        registry.register_collector(Box::new(LastCalls(Arc::clone(&inner))));
        Self(inner)
    }

    /// Begins to time a call.
    pub(super) fn begin(&self, rpc: Rpc) -> Call<'_> {
        let counts = &self.0.rpcs[rpc as usize];
        counts.last_call.store(Timestamp::now().as_second(), Ordering::Relaxed);
        Call { metrics: &self.0, rpc, begun: Instant::now(), is_answered: false }
    }
}

/// A call that is being answered. If it is dropped before its answer, it counts as cancelled by the caller.
#[derive(Debug)]
pub(super) struct Call<'a> {
    metrics: &'a Inner,
    rpc: Rpc,
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
        let counts = &self.metrics.rpcs[self.rpc as usize];
        let took = self.begun.elapsed();
        counts.took.observe(took.as_secs_f64());
        if code == Code::Ok {
            counts.ok.inc();
        } else {
            let labels = AnswerLabels { rpc: self.rpc.as_str(), code: code_name(code) };
            self.metrics.answers.get_or_create(&labels).inc();
        }
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

/// The times of the last calls; an RPC that was never called has no series.
#[derive(Debug)]
struct LastCalls(Arc<Inner>);

impl Collector for LastCalls {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let kind = ConstGauge::new(0_i64).metric_type();
        let help = "When an RPC was last called, in Unix time, by RPC";
        let mut family = encoder.encode_descriptor("grpc_last_call_timestamp_seconds", help, None, kind)?;
        for (rpc, counts) in Rpc::ALL.iter().zip(&self.0.rpcs) {
            let last_call = counts.last_call.load(Ordering::Relaxed);
            if last_call != 0 {
                ConstGauge::new(last_call).encode(family.encode_family(&RpcLabels { rpc: rpc.as_str() })?)?;
            }
        }
        Ok(())
    }
}

pub(super) fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}
