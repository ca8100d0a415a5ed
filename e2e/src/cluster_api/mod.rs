//! Cluster API for real: its core's controllers and webhooks on an API server.
//!
//! What a workload cluster runs on is `crate::infrastructure`. Nothing here knows the program under test.

pub mod authority;
pub mod environment;
pub mod install;
pub mod manager;
