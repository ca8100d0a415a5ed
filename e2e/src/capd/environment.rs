//! A management cluster with Cluster API's core, kubeadm's providers and CAPD, each as a process.

use std::{path::Path, sync::Arc};

use anyhow::Result;

use super::Managers;
use crate::{
    cluster_api::manager::Site,
    control_plane::ControlPlane,
    crds::Installed,
    go::Components,
    objects::{Contract, Objects},
};

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
