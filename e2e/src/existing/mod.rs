//! Existing clusters with Cluster API, the program and Cluster Autoscaler installed: scenarios create groups in one of
//! their Clusters and remove them again. This module must not touch objects that no scenario has created.

mod clusters;
mod model;
mod status;
mod tenant;

pub use clusters::{CLUSTER, Clusters, MANAGEMENT, WORKERS, WORKLOAD};
pub(crate) use status::Status;
pub use status::write_status;
pub use tenant::TIMEOUT;
pub use tenant::Tenant;
