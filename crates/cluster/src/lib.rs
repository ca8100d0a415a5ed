//! The link from clusters to the indexes: discovers the served kinds, starts their informers, and feeds the indexes.
//! [`Management`] is the state of a management cluster, [`WorkloadCluster`] that of a workload cluster, and [`Fleet`] all
//! workload clusters that are served, be it one or many. This crate must never block a caller on an API server: failures
//! are retried in the background and reported by checks.

mod core_kinds;
mod dispatch;
#[cfg(any(test, feature = "test-support"))]
#[doc(hidden)]
pub mod fake;
mod fleet;
mod follow;
mod management;
mod metrics;
mod node_drivers;
mod reach;
mod remembered;
mod template_store;
mod templates;
#[cfg(test)]
mod tests;
mod workload_cluster;
mod workload_nodes;

pub use self::{
    fleet::{Fleet, FleetOptions, Left, Serve, Tenants},
    management::{Management, ManagementOptions},
    metrics::InformerMetrics,
    workload_cluster::{ClusterSync, WorkloadCluster},
};
