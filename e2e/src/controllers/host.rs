//! Clusters to be handed over as if they had existed before: the testbed of the scenarios with controllers, with the
//! program and an autoscaler, or with CAPD's machines in memory and without. Scenarios must get nothing of it but the
//! kubeconfigs and names.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Result;
use serde_json::json;
use tokio::task::JoinHandle;

use super::{groups::Workers, running::Autoscaling, testbed::Testbed};
use crate::{
    autoscaling::{Autoscaler, Settings},
    capd,
    cluster_api::environment::Environment,
    existing::{Clusters, PODS, write_status},
    go::Components,
    users::User,
};

/// Clusters to be handed over. Dropping it ends them.
pub struct Host {
    /// The kubeconfigs and names by which they are found.
    pub clusters: Clusters,
    // Declared in the order in which they are ended.
    status: Option<JoinHandle<()>>,
    _autoscaling: Option<Autoscaling>,
    testbed: Testbed,
}

impl Host {
    /// Starts all components, with files in a directory.
    pub async fn start(
        components: Arc<Components>,
        program: PathBuf,
        directory: PathBuf,
        autoscaler: Autoscaler,
    ) -> Result<Self> {
        let environment = Arc::new(Box::pin(Environment::start(components)).await?);
        let administrator = User::administrator();
        let (management, workload) = (directory.join("management-admin"), directory.join("workload-admin"));
        fs::write(&management, environment.management.kubeconfig(&administrator).to_string())?;
        fs::write(&workload, environment.workload.kubeconfig(&administrator).to_string())?;
        let pods = environment.workload_objects(PODS);

        let mut testbed = Testbed::real(environment, program, directory).await?;
        testbed.workload = pods.clone();
        let workers = create_model(&testbed).await?;
        let writes_status = matches!(autoscaler, Autoscaler::Binary(_));
        testbed.autoscaler = Some(autoscaler);
        let autoscaling = testbed.autoscale(Settings::default()).await?;
        let status =
            if writes_status { None } else { Some(tokio::spawn(write_status(pods, autoscaling.calls.clone()))) };
        let (namespace, cluster) = (testbed.namespace.clone(), testbed.cluster.clone());
        let clusters = Clusters { management, workload, namespace, cluster, workers };
        Ok(Self { clusters, status, _autoscaling: Some(autoscaling), testbed })
    }

    /// Starts CAPD's machines in memory by its manager. No autoscaler and no Pods run there.
    pub async fn in_memory(
        components: Arc<Components>,
        capd: &Path,
        program: PathBuf,
        directory: PathBuf,
    ) -> Result<Self> {
        let environment = Arc::new(Box::pin(capd::Environment::start(components, capd, &directory)).await?);
        let (management, workload) = (directory.join("management-admin"), directory.join("workload-admin"));
        fs::write(&management, environment.management.kubeconfig(&User::administrator()).to_string())?;
        let testbed = Testbed::in_memory(environment, program, directory).await?;
        fs::write(&workload, capd::kubeconfig(&testbed.objects, &testbed.cluster).await?)?;
        let workers = create_model(&testbed).await?;
        let (namespace, cluster) = (testbed.namespace.clone(), testbed.cluster.clone());
        let clusters = Clusters { management, workload, namespace, cluster, workers };
        Ok(Self { clusters, status: None, _autoscaling: None, testbed })
    }

    /// Keeps the logs of the components, as a scenario does.
    pub(crate) fn keep_logs(&self) -> Result<()> {
        self.testbed.keep_logs()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Some(status) = &self.status {
            status.abort();
        }
    }
}

/// Creates the MachineDeployment that groups are modelled on, which is no group itself.
async fn create_model(testbed: &Testbed) -> Result<String> {
    let capacity = json!({ "cpu": "4", "memory": "16Gi", "pods": "110" });
    Ok(Workers::new("model").bounds(0, 0).publishing(capacity).create(testbed).await?.name)
}
