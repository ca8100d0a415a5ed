//! Tests of the Helm chart: its output for each topology and switch, the values that its schema refuses, its notes for
//! users, and the objects that survive an upgrade on a real API server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends with what is wrong")]

mod approver;
mod cluster_chart;
mod fleet;
mod fleet_nodes;
mod fleet_serving;
mod install;
mod issuers;
mod labels;
mod metrics;
mod rights;
mod switches;
mod topologies;
mod values;

use std::sync::OnceLock;

use e2e::helm::Helm;

/// Returns helm for tests without a cluster; it is built once.
fn helm() -> Helm {
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| drop(e2e::go::helm().unwrap()));
    Helm::offline().unwrap()
}
