//! The real Cluster API: its core's controllers and webhooks on an API server.
//!
//! The infrastructure of a workload cluster is `crate::infrastructure`. This module must know nothing of the program
//! under test.

pub mod authority;
pub mod environment;
pub mod install;
pub mod manager;
