//! The link from clusters to the index: discovers the served kinds, starts their informers, and feeds the index.
//! [`Management`] is the state of a management cluster, [`Workload`] that of a single workload cluster, and [`Fleet`]
//! that of many. Both follow the core kinds, Nodes and templates by the same code. This crate must never block a
//! caller on an API server: failures are retried in the background and reported by checks.

mod core_kinds;
#[cfg(any(test, feature = "test-support"))]
#[doc(hidden)]
pub mod fake;
mod fleet;
mod follow;
mod kinds;
mod management;
mod metrics;
mod reach;
mod templates;
mod templates_at_start;
#[cfg(test)]
mod tests;
mod workload;
mod workload_nodes;

pub use self::{
    fleet::{Fleet, FleetOptions, Left, Member, MemberSync, Tenants},
    management::{Management, ManagementOptions},
    metrics::InformerMetrics,
    workload::{Workload, WorkloadOptions},
};
