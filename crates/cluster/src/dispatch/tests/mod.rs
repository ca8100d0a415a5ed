//! Tests of the dispatch, fed by informers of a test's own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod any_interleaving;
mod objects;
mod rules;
mod world;
