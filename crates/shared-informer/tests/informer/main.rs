//! The informer over real connections, to APIs that fail on demand.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod connections;
mod semantics;
mod soak;
mod world;
