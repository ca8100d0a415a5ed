//! The link from clusters to the index: discovers the served kinds, starts their informers, and feeds the index.
//! [`Management`] is the state of a management cluster, which workload clusters may share, and [`Workload`] that of one
//! workload cluster, so that one process can serve many. This crate must never block a caller on an API server:
//! failures are retried in the background and reported by the checks of [`Workload`].

mod core_kinds;
#[cfg(any(test, feature = "test-support"))]
#[doc(hidden)]
pub mod fake;
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
    management::{Management, ManagementOptions},
    metrics::InformerMetrics,
    workload::{Workload, WorkloadOptions},
};
