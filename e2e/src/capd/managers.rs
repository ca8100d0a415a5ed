//! The managers of a management cluster with Cluster API's development provider: the core's, kubeadm's bootstrap and
//! control plane from the Go module in `capd`, and CAPD's, which must be named. They are built for this alone: nothing
//! uses them by default.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};

use crate::{
    cluster_api::manager::{Manager, Settings, Site},
    go::Components,
    infrastructure::kinds,
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

/// All managers, each as a process. Dropping it ends them.
pub struct Managers {
    // Declared in the order in which they are ended.
    capd: Manager,
    control_plane: Manager,
    bootstrap: Manager,
    core: Manager,
}

impl Managers {
    /// Starts all of them with this manager of CAPD, and waits until they are ready. Built binaries go to a directory.
    ///
    /// CAPD's manifests aren't available, so its kinds are installed without validation and defaults; the program
    /// depends on neither.
    pub async fn start(site: &Site, components: &Components, capd: &Path, directory: &Path) -> Result<Self> {
        let binaries = build(directory)?;
        let core = Manager::core(site, components).await?;
        let module = components.manifests.parent().and_then(Path::parent).context("manifests outside of a module")?;
        let kubeadm = async |name, binary: &Path, directory: &str| {
            let manifests = module.join(directory);
            let settings = Settings { name, binary, manifests: Some(&manifests), arguments: &[], environment: &[] };
            Manager::start(site, settings).await
        };
        let bootstrap = kubeadm("bootstrap", &binaries.bootstrap, "bootstrap/kubeadm/config").await?;
        let control_plane = kubeadm("control-plane", &binaries.control_plane, "controlplane/kubeadm/config").await?;
        kinds::install(&site.objects, &KINDS).await?;
        let docker = env::var("DOCKER_HOST").unwrap_or_default();
        let mut environment = vec![
            // The address on which the API servers of its workload clusters in memory listen.
            ("POD_IP", "127.0.0.1"),
        ];
        if !docker.is_empty() {
            environment.push(("DOCKER_HOST", docker.as_str()));
        }
        let settings = Settings {
            name: "capd",
            binary: capd,
            manifests: None,
            arguments: &["--skip-crd-migration-phases=StorageVersionMigration,CleanupManagedFields"],
            environment: &environment,
        };
        let capd = Manager::start(site, settings).await?;
        Ok(Self { capd, control_plane, bootstrap, core })
    }

    /// Returns their log files, by name.
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

/// The two binaries of kubeadm's providers.
#[derive(Debug)]
struct Binaries {
    bootstrap: PathBuf,
    control_plane: PathBuf,
}

/// Builds both into a directory; Go itself detects up-to-date binaries.
fn build(directory: &Path) -> Result<Binaries> {
    let binaries = Binaries { bootstrap: directory.join("bootstrap"), control_plane: directory.join("control-plane") };
    for (binary, package) in [
        (&binaries.bootstrap, "sigs.k8s.io/cluster-api/bootstrap/kubeadm"),
        (&binaries.control_plane, "sigs.k8s.io/cluster-api/controlplane/kubeadm"),
    ] {
        let status = Command::new("go")
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("capd"))
            .env("CGO_ENABLED", "0")
            .args(["build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o"])
            .arg(binary)
            .arg(package)
            .stdin(Stdio::null())
            .status()
            .context("running go")?;
        ensure!(status.success(), "go build of {package}: {status}");
    }
    Ok(binaries)
}
