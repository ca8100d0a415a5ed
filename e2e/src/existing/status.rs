//! The loops of an installed Cluster Autoscaler, by the ConfigMap that it writes in each.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, api::ListParams};

/// The name of its status ConfigMap, in a namespace that its flags set.
pub(super) const NAME: &str = "cluster-autoscaler-status";

/// The status ConfigMap in the workload cluster.
pub(crate) struct Status(Api<ConfigMap>);

impl Status {
    pub(super) fn new(workload: Client) -> Self {
        Self(Api::all(workload))
    }

    /// Returns the resourceVersion, which changes with each loop.
    pub(crate) async fn version(&self) -> Result<String> {
        let found = self.0.list(&ListParams::default().fields(&format!("metadata.name={NAME}"))).await?.items;
        ensure!(found.len() == 1, "{} ConfigMaps {NAME} instead of one: who scales here?", found.len());
        Ok(found.into_iter().filter_map(|found| found.metadata.resource_version).collect())
    }
}
