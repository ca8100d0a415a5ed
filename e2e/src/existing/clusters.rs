//! The existing clusters, as the environment names them: nothing may run on clusters that these variables don't name.

use std::{env, path::PathBuf};

use anyhow::{Context as _, Result, ensure};
use kube::{Client, Config, config::KubeConfigOptions, config::Kubeconfig};

/// The environment variable with a kubeconfig file of the management cluster, with an administrator's rights.
pub const MANAGEMENT: &str = "E2E_MANAGEMENT_KUBECONFIG";
/// The same for the workload cluster.
pub const WORKLOAD: &str = "E2E_WORKLOAD_KUBECONFIG";
/// The environment variable with the Cluster, as `namespace/name`.
pub const CLUSTER: &str = "E2E_CLUSTER";
/// The environment variable with its MachineDeployment that groups are modelled on. It must not be a group itself.
pub const WORKERS: &str = "E2E_WORKERS";

/// An existing management cluster and workload cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clusters {
    /// A kubeconfig of the management cluster.
    pub management: PathBuf,
    /// A kubeconfig of the workload cluster.
    pub workload: PathBuf,
    /// The Cluster's namespace.
    pub namespace: String,
    /// The Cluster's name.
    pub cluster: String,
    /// The MachineDeployment that groups are modelled on.
    pub workers: String,
}

impl Clusters {
    /// Returns the clusters that the environment names, if any.
    pub fn named() -> Result<Option<Self>> {
        Self::by(|name| env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn by(value: impl Fn(&str) -> Option<String>) -> Result<Option<Self>> {
        let variables = [MANAGEMENT, WORKLOAD, CLUSTER, WORKERS];
        if variables.iter().all(|name| value(name).is_none()) {
            return Ok(None);
        }
        let [management, workload, cluster, workers] = variables.map(|name| {
            value(name).with_context(|| format!("{name} isn't set: set all of {} or none", variables.join(", ")))
        });
        let cluster = cluster?;
        let (namespace, name) = cluster.split_once('/').unwrap_or_default();
        ensure!(!namespace.is_empty() && !name.is_empty(), "{CLUSTER} is `{cluster}`: write namespace/name");
        Ok(Some(Self {
            management: management?.into(),
            workload: workload?.into(),
            namespace: namespace.to_owned(),
            cluster: name.to_owned(),
            workers: workers?,
        }))
    }

    /// Returns clients of the management cluster and the workload cluster.
    pub(super) async fn clients(&self) -> Result<(Client, Client)> {
        let client = async |variable: &str, path: &PathBuf| {
            let what = || format!("{variable} names {}", path.display());
            let kubeconfig = Kubeconfig::read_from(path).with_context(what)?;
            let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
            Client::try_from(config.with_context(what)?).with_context(what)
        };
        Ok((client(MANAGEMENT, &self.management).await?, client(WORKLOAD, &self.workload).await?))
    }
}
