//! The real Cluster API: its core's controllers and webhooks on an API server.
//!
//! The infrastructure of a workload cluster is `crate::infrastructure`. This module must know nothing of the program
//! under test.

pub mod authority;
pub mod environment;
pub mod install;
pub mod manager;

use std::time::Duration;

/// The time within which idle controllers react on a machine that is not busy.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// The interval of polling many objects: polling must not keep the machine busy.
pub const POLL_INTERVAL: Duration = Duration::from_millis(250);
