//! A cloud provider for the Kubernetes Cluster Autoscaler that scales Cluster API's node groups over the
//! `externalgrpc` protocol and answers every read from memory. [`cli`] also has read-only commands: `groups` prints
//! the node groups of a running server, `explain` shows the answers for node groups and the sources of their values,
//! and `watch` shows the changes in a cluster.
//!
//! `docs/design/architecture.md` shows the modules of this crate and the flow of data through them.

pub mod app;
pub mod cli;
pub mod cluster;
pub mod discovery;
mod families;
pub mod grpc;
pub mod index;
pub mod page;
pub mod prices;
pub mod rights;
pub mod scale;
pub mod server;
pub mod state;
pub mod traces;

// Callers of this crate name clients and texts, so that these crates are part of its interface.
pub use {connect, text};

/// The generated types, client and server of `proto/externalgrpc.proto`.
#[allow(missing_docs, unreachable_pub, rustdoc::invalid_html_tags, clippy::pedantic)]
pub mod proto {
    tonic::include_proto!("clusterautoscaler.cloudprovider.v1.externalgrpc");

    /// The encoded FileDescriptorSet, for gRPC reflection.
    pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/externalgrpc.bin"));
}
