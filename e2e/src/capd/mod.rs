//! Cluster API's development provider (CAPD) with its in-memory backend: DevClusters and DevMachines that need no
//! Docker, with kubeadm's bootstrap and control plane. The API servers of its workload clusters run in its own process;
//! they store Nodes, but run no Pods.

mod cluster;
mod environment;
mod managers;

pub(crate) use cluster::{in_memory, kubeconfig};
pub use environment::Environment;
pub use managers::Managers;

/// The environment variable that names a binary of CAPD's manager.
pub const VARIABLE: &str = "CAPD_MANAGER";

/// The kind of its machine templates.
pub(crate) const TEMPLATE_KIND: &str = "DevMachineTemplate";

/// The version in the spec of its Machines, which kubeadm requires.
pub(crate) const MACHINE_VERSION: &str = "v1.36.3";
