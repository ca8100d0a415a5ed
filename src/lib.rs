//! skeleton
#[allow(missing_docs, unreachable_pub, clippy::pedantic)]
pub mod proto {
    tonic::include_proto!("clusterautoscaler.cloudprovider.v1.externalgrpc");
}
