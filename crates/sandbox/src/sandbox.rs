//! A whole sandbox: a management and a workload cluster as API servers, the controllers between them, and the
//! kubeconfigs for a program to use them.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    api::{Api, LoadError, Resource, Selection},
    clock::Clock,
    controllers::{keys, object::Object},
    define_cluster_api, definitions,
    engine::Workloads,
    fleet::Fleet,
    http::{ApiServer, ServerSettings},
    settings::{Settings, Times},
    simulation::Simulation,
};

/// The options of a sandbox.
#[derive(Clone, Debug)]
pub struct SandboxOptions {
    /// The times, and the contract version in which objects are stored.
    pub settings: Settings,
    /// The clock of both APIs and of the controllers.
    pub clock: Clock,
    /// The address of the management cluster's API.
    pub management: SocketAddr,
    /// The address of the workload cluster's API.
    pub workload: SocketAddr,
    /// The initial objects: Nodes are loaded into the workload cluster, everything else into the management cluster.
    pub manifests: Vec<Value>,
    /// Further initial objects of the workload cluster.
    pub workload_manifests: Vec<Value>,
    /// The initial fleet.
    pub fleet: Option<Fleet>,
    /// True if the Machines that the manifests require exist from the start, whatever the times say.
    pub settled: bool,
}

impl Default for SandboxOptions {
    /// Returns the options of an empty sandbox on free ports of loopback.
    fn default() -> Self {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self {
            settings: Settings::default(),
            clock: Clock::real(),
            management: any,
            workload: any,
            manifests: Vec::new(),
            workload_manifests: Vec::new(),
            fleet: None,
            settled: true,
        }
    }
}

/// The reason why a sandbox can't be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The server can't listen on an address.
    #[error("can't serve the {cluster} cluster's API on {address}: {source}")]
    Listen {
        /// The cluster.
        cluster: &'static str,
        /// The address.
        address: SocketAddr,
        /// The I/O error.
        source: io::Error,
    },
    /// The manifests can't be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The kubeconfigs can't be written.
    #[error("can't write the kubeconfigs: {0}")]
    Kubeconfig(io::Error),
}

/// A running sandbox. Dropping it ends it and removes its folder.
#[derive(Debug)]
pub struct Sandbox {
    management: ApiServer,
    workload: ApiServer,
    simulation: Simulation,
    folder: TempDir,
}

impl Sandbox {
    /// Starts both APIs and the controllers. The Secret `<cluster>-kubeconfig` of each Cluster refers to the workload
    /// API.
    pub async fn start(options: SandboxOptions) -> Result<Self, StartError> {
        let SandboxOptions { settings, clock, management, workload, manifests, workload_manifests, fleet, settled } =
            options;
        let management = serve("management", Api::new(clock.clone()), management).await?;
        let workload = serve("workload", Api::new(clock.clone()), workload).await?;
        define_cluster_api(management.api(), settings.contract)?;
        workload.api().define_workload_kinds();
        management.api().load_values(definitions::of_providers(&manifests))?;
        if let Some(fleet) = &fleet {
            fleet.build(management.api(), workload.api(), settings.contract)?;
        }
        let times = settings.times;
        let first = Settings { times: if settled { Times::ZERO } else { times }, ..settings };
        let simulation = Simulation::start(management.api(), Workloads::Shared(workload.api().clone()), clock, first);
        let (nodes, others): (Vec<_>, Vec<_>) = manifests.into_iter().partition(|object| object.kind() == "Node");
        workload.api().load_values(nodes)?;
        workload.api().load_values(workload_manifests)?;
        management.api().load_values(others)?;
        simulation.settle().await;
        simulation.set_times(times);

        let folder = tempfile::Builder::new().prefix("sandbox-").tempdir().map_err(StartError::Kubeconfig)?;
        let sandbox = Self { management, workload, simulation, folder };
        sandbox.management.write_kubeconfig(sandbox.management_kubeconfig()).map_err(StartError::Kubeconfig)?;
        sandbox.workload.write_kubeconfig(sandbox.workload_kubeconfig()).map_err(StartError::Kubeconfig)?;
        sandbox.management.api().load_values(sandbox.secrets())?;
        Ok(sandbox)
    }

    /// Returns the kubeconfig Secret of each Cluster.
    fn secrets(&self) -> Vec<Value> {
        let kubeconfig = self.workload.kubeconfig();
        let clusters = self.all_clusters().into_iter();
        clusters.map(|(namespace, cluster)| kubeconfig_secret(&namespace, &cluster, &kubeconfig)).collect()
    }

    /// Returns namespace and name of each Cluster.
    fn all_clusters(&self) -> Vec<(String, String)> {
        let clusters = Resource::new(keys::GROUP, "v1beta2", "clusters");
        let clusters = self.management.api().list(&clusters, &Selection::default()).unwrap_or_default();
        clusters.iter().map(|cluster| (cluster.namespace().to_owned(), cluster.name().to_owned())).collect()
    }

    /// Returns the Clusters, as `namespace/name`.
    #[must_use]
    pub fn clusters(&self) -> Vec<String> {
        self.all_clusters().into_iter().map(|(namespace, name)| format!("{namespace}/{name}")).collect()
    }

    /// Returns the management cluster.
    #[must_use]
    pub fn management(&self) -> &ApiServer {
        &self.management
    }

    /// Returns the workload cluster.
    #[must_use]
    pub fn workload(&self) -> &ApiServer {
        &self.workload
    }

    /// Returns the controllers.
    #[must_use]
    pub fn simulation(&self) -> &Simulation {
        &self.simulation
    }

    /// Returns the path of the management cluster's kubeconfig.
    #[must_use]
    pub fn management_kubeconfig(&self) -> PathBuf {
        self.folder.path().join("management.kubeconfig")
    }

    /// Returns the path of the workload cluster's kubeconfig.
    #[must_use]
    pub fn workload_kubeconfig(&self) -> PathBuf {
        self.folder.path().join("workload.kubeconfig")
    }

    /// Ends the controllers and both APIs, and removes the kubeconfigs.
    pub async fn stop(self) {
        let Self { management, workload, simulation, folder } = self;
        simulation.end().await;
        management.shutdown().await;
        workload.shutdown().await;
        // A folder that can't be removed is left to the system.
        drop(folder);
    }
}

/// Returns the Secret with the kubeconfig of a Cluster's workload cluster.
pub(crate) fn kubeconfig_secret(namespace: &str, cluster: &str, kubeconfig: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": format!("{cluster}-kubeconfig"),
            "namespace": namespace,
            "labels": { keys::CLUSTER_NAME: cluster },
        },
        "type": "cluster.x-k8s.io/secret",
        "stringData": { "value": kubeconfig },
    })
}

pub(crate) async fn serve(cluster: &'static str, api: Api, address: SocketAddr) -> Result<ApiServer, StartError> {
    let settings = ServerSettings { address, ..ServerSettings::default() };
    ApiServer::start_with(api, settings).await.map_err(|source| StartError::Listen { cluster, address, source })
}
