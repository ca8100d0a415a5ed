//! The generated types, client and server of `proto/externalgrpc.proto`. This crate must hold nothing of its own.
#![allow(missing_docs, unreachable_pub, rustdoc::invalid_html_tags, clippy::pedantic)]

tonic::include_proto!("clusterautoscaler.cloudprovider.v1.externalgrpc");

/// The encoded FileDescriptorSet, for gRPC reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/externalgrpc.bin"));
