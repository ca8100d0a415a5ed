//! The loops of an installed Cluster Autoscaler, by the ConfigMap that it writes in each.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, api::ListParams};
use serde_json::json;

use crate::{autoscaling::record::Calls, cluster_api::POLL_INTERVAL, objects::Objects};

/// The name of its status ConfigMap, in a namespace that its flags set.
const NAME: &str = "cluster-autoscaler-status";

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
