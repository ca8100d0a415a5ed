//! From clusters to the picture: finds out how kinds are served, starts their informers, and feeds the index. What a
//! management cluster has stands in one value that may be shared, and what a workload cluster has in another, so that
//! one process can serve many.
//!
//! This room must never make anyone wait for an API server: whatever isn't there yet is retried in the background and
//! told by the checks of [`Workload`].

mod follow;
mod kinds;
mod management;
mod metrics;
mod reach;
mod templates;
#[cfg(test)]
mod tests;
mod workload;

pub use self::{
    management::{Management, ManagementOptions},
    metrics::{GroupMetrics, GroupSeries, InformerMetrics},
    workload::{Workload, WorkloadOptions},
};
