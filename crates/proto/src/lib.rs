//! The generated types, client and server of `proto/externalgrpc.proto`, and the bounds of requests that they decode.
//! This crate must hold nothing else: a test generates the code again, and compares.
#![allow(missing_docs, unreachable_pub, rustdoc::invalid_html_tags, clippy::pedantic)]

pub mod bounds;
pub mod codec;

include!("generated.rs");

/// The encoded FileDescriptorSet, for gRPC reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("externalgrpc.bin");
