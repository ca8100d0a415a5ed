//! The Helm chart: what it renders for each topology and switch, what its schema refuses, what it tells its users, and what stays
//! when it is installed and upgraded on a real API server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends with what is wrong")]

mod authorities;
mod install;
mod issuers;
mod metrics;
mod policies;
mod rights;
mod switches;
mod topologies;
mod values;

use std::sync::OnceLock;

use e2e::helm::Helm;

/// One helm for all that needs no cluster; it is built once.
fn helm() -> Helm {
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| drop(e2e::go::helm().unwrap()));
    Helm::offline().unwrap()
}
