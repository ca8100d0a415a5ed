//! Existing clusters with Cluster API, the program and Cluster Autoscaler installed: scenarios create groups in one of
//! their Clusters and remove them again. Nothing may run on clusters that the environment doesn't name, and this module
//! must not touch objects that no scenario has created.

mod tenant;

use std::{env, path::PathBuf};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, api::ListParams, config::Kubeconfig};
use serde_json::json;

pub use self::tenant::{TIMEOUT, Tenant};
use crate::{
    autoscaling::record::Calls,
    cluster_api::POLL_INTERVAL,
    objects::{self, Objects},
};

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
    async fn clients(&self) -> Result<(Client, Client)> {
        let client = async |variable: &str, path: &PathBuf| {
            let what = || format!("{variable} names {}", path.display());
            objects::client(Kubeconfig::read_from(path).with_context(what)?).await.with_context(what)
        };
        Ok((client(MANAGEMENT, &self.management).await?, client(WORKLOAD, &self.workload).await?))
    }
}

/// The name of Cluster Autoscaler's status ConfigMap, which it writes in each loop, in a namespace that its flags set.
const NAME: &str = "cluster-autoscaler-status";

/// The status ConfigMap in the workload cluster.
pub(crate) struct Status(Api<ConfigMap>);

impl Status {
    fn new(workload: Client) -> Self {
        Self(Api::all(workload))
    }

    /// Returns the resourceVersion, which changes with each loop.
    pub(crate) async fn version(&self) -> Result<String> {
        let found = self.0.list(&ListParams::default().fields(&format!("metadata.name={NAME}"))).await?.items;
        ensure!(found.len() == 1, "{} ConfigMaps {NAME} instead of one: who scales here?", found.len());
        Ok(found.into_iter().filter_map(|found| found.metadata.resource_version).collect())
    }
}

/// Writes a status with each loop for the driver, as Cluster Autoscaler does itself.
pub async fn write_status(objects: Objects, calls: Calls) {
    let mut recorded = 0;
    loop {
        let looks = calls.of("Refresh").len();
        if looks != recorded {
            let status =
                json!({ "kind": "ConfigMap", "metadata": { "name": NAME }, "data": { "looks": looks.to_string() } });
            let written = match objects.find("ConfigMap", NAME).await {
                Ok(None) => objects.create(status).await.map(drop),
                Ok(Some(_)) => objects.patch("ConfigMap", NAME, status).await,
                Err(error) => Err(error),
            };
            // A failed write is repeated with the next loop.
            if written.is_ok() {
                recorded = looks;
            }
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
