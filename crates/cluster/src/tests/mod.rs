//! Tests of followed clusters over a minimal API server. With in-process requests the clock is tokio's paused one: it
//! jumps as soon as all tasks are idle, so that long intervals cost no time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod fleet_bounds;
mod fleet_nodes;
mod fleet_world;
mod fleets;
mod following;
mod health;
mod hostile_kinds;
mod machine_api;
mod metrics;
mod misbehaving;
mod namespaces;
mod remembered;
mod start;
mod templates;

use super::fake::{self, MOST_OBJECTS, PATIENCE, WORKERS, World, scalable};
