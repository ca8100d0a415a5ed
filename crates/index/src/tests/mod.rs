//! Tests of the index, which is given objects without any cluster.
mod any_order;
mod feeds;
mod first_sync;
mod metrics;
mod notices;
mod observed;
mod prices;
mod remembered;
mod resolve;
mod rollouts;
mod shortages;
mod stories;

use super::objects;
