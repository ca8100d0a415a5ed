//! Cluster API for real: its core's controllers and webhooks on an API server.
//!
//! The infrastructure of a workload cluster is `crate::infrastructure`. Nothing here knows the program under test.

pub mod authority;
pub mod environment;
pub mod install;
pub mod manager;
