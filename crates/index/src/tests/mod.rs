//! Tests of the index, which is given objects without any cluster.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod any_order;
mod feeds;
mod first_sync;
mod gone;
mod members;
mod metrics;
mod nodes;
mod notices;
mod observed;
mod observed_resources;
mod prices;
mod rollouts;
mod shared_templates;
mod shortages;
mod snapshots;
mod stories;

use super::objects;
