//! Cluster API's development provider (CAPD) with its backend in memory: DevClusters and DevMachines that need no Docker, with kubeadm's
//! bootstrap and control plane. The API servers of its workload clusters are in its own process; they hold Nodes, but run no pods.

mod cluster;
mod environment;
mod managers;

pub(crate) use cluster::{in_memory, kubeconfig};
pub use environment::Environment;

/// Names a binary of CAPD's manager.
pub const VARIABLE: &str = "CAPD_MANAGER";

/// The kind of its machines' templates.
pub const TEMPLATE_KIND: &str = "DevMachineTemplate";

/// The version that its Machines are said to have. Those of kubeadm must say one.
pub const MACHINE_VERSION: &str = "v1.36.3";
