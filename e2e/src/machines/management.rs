//! The management cluster: one Node of kind with Cluster API and CAPD in it, or beside it as processes.

use std::{env, fs, path::Path, process::Command};

use anyhow::Result;
use tempfile::TempDir;

use crate::{
    capd::{self, Managers},
    cluster_api::manager::Site,
    go::{self, Components},
    nodes::{Cluster, Purpose},
    process::output,
};

/// A management cluster. Dropping it removes it.
pub struct Management {
    // Declared in the order in which they are ended.
    managers: Option<Managers>,
    /// The cluster.
    pub cluster: Cluster,
    directory: TempDir,
}

impl Management {
    /// Makes the cluster. Cluster API's managers are processes if the environment names CAPD's; otherwise clusterctl
    /// installs all of them.
    pub(super) async fn start(logs: &Path) -> Result<Self> {
        let components = go::components()?;
        let cluster = Cluster::start(Purpose::Management, logs).await?;
        let directory = tempfile::Builder::new().prefix("capi-e2e-").tempdir()?;
        fs::write(directory.path().join("management.kubeconfig"), cluster.kubeconfig().to_string())?;
        let mut management = Self { managers: None, cluster, directory };
        let made = management.add_managers(&components).await;
        if made.is_err() {
            // The logs have the reason, and would be removed with the cluster.
            let _ = management.keep_logs(logs);
        }
        made?;
        Ok(management)
    }

    async fn add_managers(&mut self, components: &Components) -> Result<()> {
        if let Some(capd) = env::var_os(capd::VARIABLE).filter(|named| !named.is_empty()) {
            let site = Site {
                directory: self.directory().to_owned(),
                kubeconfig: self.cluster.kubeconfig().clone(),
                objects: self.cluster.objects("default"),
                address: self.cluster.gateway()?,
            };
            let built = self.directory().join("managers");
            fs::create_dir(&built)?;
            self.managers = Some(Managers::start(&site, components, Path::new(&capd), &built).await?);
        } else {
            self.install()?;
        }
        Ok(())
    }

    /// Installs Cluster API and CAPD by clusterctl, and waits until they are ready.
    fn install(&self) -> Result<()> {
        let clusterctl = go::clusterctl()?;
        let version = &clusterctl.version;
        let mut command = Command::new(&clusterctl.program);
        command.args(["init", "--wait-providers", "--kubeconfig"]).arg(self.kubeconfig());
        for (kind, provider) in [
            ("core", "cluster-api"),
            ("bootstrap", "kubeadm"),
            ("control-plane", "kubeadm"),
            ("infrastructure", "docker"),
        ] {
            command.arg(format!("--{kind}={provider}:{version}"));
        }
        output(command.env("CLUSTER_TOPOLOGY", "true").env("EXP_MACHINE_POOL", "true"))?;
        Ok(())
    }

    /// Returns the directory of its files.
    pub(super) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the path of an administrator's kubeconfig.
    pub(super) fn kubeconfig(&self) -> std::path::PathBuf {
        self.directory().join("management.kubeconfig")
    }

    /// Keeps the logs of the Node and of all managers in a directory.
    pub(super) fn keep_logs(&self, logs: &Path) -> Result<()> {
        for (name, log) in self.managers.iter().flat_map(Managers::logs) {
            fs::copy(log, logs.join(format!("{name}.log")))?;
        }
        self.cluster.keep_logs(logs)
    }

    /// Ends the managers, and removes the cluster.
    pub(super) fn remove(self) -> Result<()> {
        drop(self.managers);
        self.cluster.remove()
    }
}
