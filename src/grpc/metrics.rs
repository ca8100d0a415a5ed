//! Counts of RPCs by name and code. The labels are closed sets.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};
use tonic::Code;

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct Labels {
    rpc: &'static str,
    code: &'static str,
}

/// Counts every answer of the service.
#[derive(Clone, Debug, Default)]
pub struct RpcMetrics {
    answers: Family<Labels, Counter>,
}

impl RpcMetrics {
    /// Registers the metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register("grpc_answers", "RPCs answered, by RPC and gRPC code", metrics.answers.clone());
        metrics
    }

    pub(super) fn count(&self, rpc: &'static str, code: Code) {
        self.answers.get_or_create(&Labels { rpc, code: code_name(code) }).inc();
    }
}

fn code_name(code: Code) -> &'static str {
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
