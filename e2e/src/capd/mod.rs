//! Cluster API's development provider (CAPD) with its in-memory backend: DevClusters and DevMachines that need no
//! Docker, with kubeadm's bootstrap and control plane. The API servers of its workload clusters run in its own process;
//! they store Nodes, but run no Pods.

mod cluster;
mod managers;

use std::{path::Path, sync::Arc};

use anyhow::Result;

use crate::{
    cluster_api::manager::Site,
    control_plane::ControlPlane,
    crds::Installed,
    go::Components,
    objects::{Contract, Objects},
};

pub(crate) use cluster::{in_memory, kubeconfig};
pub use managers::Managers;

/// The environment variable that names a binary of CAPD's manager.
pub const VARIABLE: &str = "CAPD_MANAGER";

/// The kind of its machine templates.
pub(crate) const TEMPLATE_KIND: &str = "DevMachineTemplate";

/// The version in the spec of its Machines, which kubeadm requires.
pub(crate) const MACHINE_VERSION: &str = "v1.36.3";

/// All processes around the program. Dropping it ends them.
pub struct Environment {
    // Declared in the order in which they are ended.
    managers: Managers,
    /// The management cluster.
    pub management: Arc<ControlPlane>,
}

impl Environment {
    /// Starts all processes with this manager of CAPD, and waits until they are ready. Built binaries go to a
    /// directory.
    pub async fn start(components: Arc<Components>, capd: &Path, directory: &Path) -> Result<Self> {
        let management = ControlPlane::start(Arc::clone(&components), Contract::V1Beta2, Installed::Nothing).await?;
        let managers = Managers::start(&Site::of(&management), &components, capd, directory).await?;
        Ok(Self { managers, management: Arc::new(management) })
    }

    /// Returns access to the objects of a namespace of the management cluster.
    #[must_use]
    pub fn objects(&self, namespace: &str) -> Objects {
        self.management.objects(namespace)
    }

    /// Returns the log files of its processes, by name.
    #[must_use]
    pub fn logs(&self) -> Vec<(&'static str, &Path)> {
        self.managers.logs()
    }
}
