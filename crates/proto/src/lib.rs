//! The generated types, client and server of `proto/externalgrpc.proto`. This crate must hold nothing of its own: a
//! test generates the code again, and compares.
#![allow(missing_docs, unreachable_pub, rustdoc::invalid_html_tags, clippy::pedantic)]

include!("generated.rs");

/// The encoded FileDescriptorSet, for gRPC reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("externalgrpc.bin");
