//! The fuzz targets as plain functions of bytes: cargo-fuzz calls them with bytes that it makes up, and `cargo test` with
//! those that are kept. A finding is a panic. Nothing here may depend on what came before.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a finding is a panic"
)]

mod groups;
mod objects;
mod requests;
mod texts;

pub use self::{
    groups::annotations,
    objects::{objects, watches},
    requests::requests,
    texts::{deletion_log, duration, provider_id, quantity, replaced, taint},
};

/// A fuzz target: its name and what it does.
pub type Target = (&'static str, fn(&[u8]));

/// All of them. Each has a folder of its name in `fuzz/corpus-kept`.
pub const TARGETS: [Target; 10] = [
    ("annotations", annotations),
    ("quantity", quantity),
    ("duration", duration),
    ("taint", taint),
    ("provider_id", provider_id),
    ("requests", requests),
    ("deletion_log", deletion_log),
    ("replaced", replaced),
    ("objects", objects),
    ("watches", watches),
];
