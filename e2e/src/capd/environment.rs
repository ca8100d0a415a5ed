//! A management cluster with Cluster API's core, kubeadm's providers and CAPD, each as a process.

use std::{path::Path, sync::Arc};

use anyhow::{Context as _, Result};

use super::managers;
use crate::{
    cluster_api::manager::{Manager, Settings},
    control_plane::ControlPlane,
    crds::Installed,
    go::Components,
    infrastructure::kinds,
    objects::{Contract, Objects},
};

/// CAPD's kinds, including those of its Docker backend: its manager watches all.
const KINDS: [&str; 12] = [
    "DevCluster",
    "DevClusterTemplate",
    "DevMachine",
    "DevMachinePool",
    "DevMachinePoolTemplate",
    "DevMachineTemplate",
    "DockerCluster",
    "DockerClusterTemplate",
    "DockerMachine",
    "DockerMachinePool",
    "DockerMachinePoolTemplate",
    "DockerMachineTemplate",
];

/// All processes around the program. Dropping it ends them.
pub struct Environment {
    // Declared in the order in which they are ended.
    capd: Manager,
    control_plane: Manager,
    bootstrap: Manager,
    core: Manager,
    /// The management cluster.
    pub management: Arc<ControlPlane>,
}

impl Environment {
    /// Starts all processes with this manager of CAPD, and waits until they are ready. Built binaries go to a
    /// directory.
    ///
    /// CAPD's manifests aren't available, so its kinds are installed without validation and defaults; the program
    /// depends on neither.
    pub async fn start(components: Arc<Components>, capd: &Path, directory: &Path) -> Result<Self> {
        let managers = managers::build(directory)?;
        let management = ControlPlane::start(Arc::clone(&components), Contract::V1Beta2, Installed::Nothing).await?;
        let core = Manager::core(&management, &components).await?;
        let module = components.manifests.parent().and_then(Path::parent).context("manifests outside of a module")?;
        let kubeadm = async |name, binary: &Path, directory: &str| {
            let manifests = module.join(directory);
            let settings = Settings { name, binary, manifests: Some(&manifests), arguments: &[], environment: &[] };
            Manager::start(&management, settings).await
        };
        let bootstrap = kubeadm("bootstrap", &managers.bootstrap, "bootstrap/kubeadm/config").await?;
        let control_plane = kubeadm("control-plane", &managers.control_plane, "controlplane/kubeadm/config").await?;
        kinds::install(&management.objects("default"), &KINDS).await?;
        let settings = Settings {
            name: "capd",
            binary: capd,
            manifests: None,
            arguments: &["--skip-crd-migration-phases=StorageVersionMigration,CleanupManagedFields"],
            // The address on which the API servers of its workload clusters listen.
            environment: &[("POD_IP", "127.0.0.1")],
        };
        let capd = Manager::start(&management, settings).await?;
        Ok(Self { capd, control_plane, bootstrap, core, management: Arc::new(management) })
    }

    /// Returns access to the objects of a namespace of the management cluster.
    #[must_use]
    pub fn objects(&self, namespace: &str) -> Objects {
        self.management.objects(namespace)
    }

    /// Returns the log files of its processes, by name.
    #[must_use]
    pub fn logs(&self) -> Vec<(&'static str, &Path)> {
        vec![
            ("cluster-api", self.core.log()),
            ("bootstrap", self.bootstrap.log()),
            ("control-plane", self.control_plane.log()),
            ("capd", self.capd.log()),
        ]
    }
}
