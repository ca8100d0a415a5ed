//! Clusters that are there already, with Cluster API, the program and Cluster Autoscaler installed: scenarios make groups in one of their
//! Clusters and take them away again. Nothing here may touch what a scenario hasn't made.

mod clusters;
mod guest;
mod host;
mod model;
mod status;

pub use clusters::{CLUSTER, Clusters, MANAGEMENT, WORKERS, WORKLOAD};
pub use guest::Guest;
pub(crate) use guest::PATIENCE;
pub use host::Host;
pub(crate) use status::Status;
