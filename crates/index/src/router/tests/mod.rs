//! Tests of the router, fed by informers of a test's own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod any_interleaving;
mod informer;
mod model;
mod rules;
mod world;
