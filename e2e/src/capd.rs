//! Cluster API's development provider (CAPD) with its in-memory backend: DevClusters and DevMachines that need no
//! Docker, with kubeadm's bootstrap and control plane. The API servers of its workload clusters run in its own process;
//! they store Nodes, but run no Pods.
//!
//! The managers of core, bootstrap and control plane are built from the Go module in `capd`, for this alone; CAPD's must
//! be named. Nothing uses them by default.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::{ByteString, api::core::v1::Node};
use kube::{Api, Client, api::ListParams, config::Kubeconfig};
use serde_json::{Value, json};

use crate::{
    cluster_api::{
        POLL_INTERVAL, TIMEOUT,
        manager::{Manager, Settings, Site},
    },
    control_plane::ControlPlane,
    crds::Installed,
    go::Components,
    infrastructure,
    objects::{self, Contract, Objects, infrastructure_reference},
    wait::every,
};

/// The environment variable that names a binary of CAPD's manager.
pub const VARIABLE: &str = "CAPD_MANAGER";

/// The kind of its machine templates.
pub(crate) const TEMPLATE_KIND: &str = "DevMachineTemplate";

/// The version in the spec of its Machines, which kubeadm requires.
pub(crate) const MACHINE_VERSION: &str = "v1.36.3";

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
    pub fn objects(&self, namespace: &str) -> Objects {
        self.management.objects(namespace)
    }

    /// Returns the log files of its processes, by name.
    pub fn logs(&self) -> Vec<(&'static str, &Path)> {
        self.managers.logs()
    }

    /// Creates a Cluster, and waits until its API server answers.
    pub async fn create_cluster(&self, objects: &Objects, name: &str) -> Result<Client> {
        let metadata = json!({ "name": name });
        let node = json!({ "nodeRegistration": { "criSocket": "unix:///var/run/containerd/containerd.sock" } });
        let objects_to_be = [
            json!({
                "kind": "DevCluster",
                // CAPD adds an annotation by a patch that fails without existing annotations.
                "metadata": { "name": name, "annotations": { "kubernetes.io/description": "in memory" } },
                "spec": { "backend": { "inMemory": {} } },
            }),
            json!({
                "kind": TEMPLATE_KIND,
                "metadata": metadata,
                "spec": { "template": { "spec": { "backend": in_memory() } } },
            }),
            json!({
                "kind": "KubeadmConfigTemplate",
                "metadata": metadata,
                "spec": { "template": { "spec": { "joinConfiguration": node } } },
            }),
            json!({
                "kind": "KubeadmControlPlane",
                "metadata": metadata,
                "spec": {
                    "replicas": 1,
                    "version": MACHINE_VERSION,
                    "machineTemplate": { "spec": { "infrastructureRef": infrastructure_reference(TEMPLATE_KIND, name) } },
                    "kubeadmConfigSpec": {
                        "clusterConfiguration": { "apiServer": { "certSANs": ["localhost", "127.0.0.1"] } },
                        "initConfiguration": node,
                        "joinConfiguration": node,
                    },
                },
            }),
            json!({
                "kind": "Cluster",
                "metadata": metadata,
                "spec": {
                    "clusterNetwork": {
                        "services": { "cidrBlocks": ["10.128.0.0/12"] },
                        "pods": { "cidrBlocks": ["192.168.0.0/16"] },
                        "serviceDomain": "cluster.local",
                    },
                    "infrastructureRef": infrastructure_reference("DevCluster", name),
                    "controlPlaneRef": {
                        "apiGroup": "controlplane.cluster.x-k8s.io",
                        "kind": "KubeadmControlPlane",
                        "name": name,
                    },
                },
            }),
        ];
        for object in objects_to_be {
            objects.create(object).await?;
        }
        every(POLL_INTERVAL, "an API server in memory", TIMEOUT, async || {
            let client = client(objects, name).await?;
            // CAPD's API server doesn't answer version requests.
            Api::<Node>::all(client.clone()).list(&ListParams::default()).await?;
            Ok(client)
        })
        .await
    }
}

/// Returns the backend of a machine in memory, with the shortest configurable times.
pub(crate) fn in_memory() -> Value {
    let soon = json!({ "provisioning": { "startupDuration": "1s", "startupJitter": "0" } });
    json!({ "inMemory": { "vm": soon, "node": soon, "apiServer": soon, "etcd": soon } })
}

/// Returns a client with the kubeconfig that Cluster API keeps.
async fn client(objects: &Objects, cluster: &str) -> Result<Client> {
    objects::client(Kubeconfig::from_yaml(&kubeconfig(objects, cluster).await?)?).await
}

/// Returns the kubeconfig that Cluster API keeps.
pub(crate) async fn kubeconfig(objects: &Objects, cluster: &str) -> Result<String> {
    let secret = objects.get("Secret", &format!("{cluster}-kubeconfig")).await?;
    let value: ByteString = serde_json::from_value(secret.data["data"]["value"].clone())?;
    String::from_utf8(value.0).context("the kubeconfig of the Secret")
}

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
        infrastructure::install(&site.objects, &KINDS).await?;
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
