//! Existing clusters with Cluster API, the program and Cluster Autoscaler installed: scenarios create groups in one of
//! their Clusters and remove them again. This module must not touch objects that no scenario has created.

mod clusters;
mod guest;
mod model;
mod status;

pub use clusters::{CLUSTER, Clusters, MANAGEMENT, WORKERS, WORKLOAD};
pub use guest::Guest;
pub use guest::PATIENCE;
pub(crate) use guest::PODS;
pub(crate) use status::Status;
pub use status::write_status;
