//! One cluster of one Node, by kind, with the project's image.

use std::{
    env, fs,
    net::IpAddr,
    path::{Path, PathBuf},
    process::{self, Command},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client, Config,
    api::ListParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

use crate::{
    crds::{self, Installed},
    go::{self, Kind},
    helm::Helm,
    images::{Docker, Images},
    objects::{CAPI_KINDS, Contract, Objects},
    process::output,
    wait::every,
};

/// The time within which Pods start or end on a busy machine.
pub const TIMEOUT: Duration = Duration::from_secs(240);

/// The interval of looking at a cluster.
pub const POLL_INTERVAL: Duration = Duration::from_millis(300);

/// kind's settings: a directory lists the registries that containerd reaches without TLS. An image that was loaded may
/// be used though it has been pulled from a registry as well: by default the kubelet refuses it from then on.
const SETTINGS: &str = r#"
kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
kubeadmConfigPatches:
  - |
    kind: KubeletConfiguration
    imagePullCredentialsVerificationPolicy: NeverVerify
containerdConfigPatches:
  - |
    [plugins."io.containerd.grpc.v1.cri".registry]
      config_path = "/etc/containerd/certs.d"
"#;

/// The settings of a management cluster whose Machines are containers beside it.
const MANAGEMENT: &str = include_str!("../../capd/kind.yaml");

/// The Docker network in which CAPD makes its Machines.
const SHARED_NETWORK: &str = "kind";

/// The use of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The chart alone, with Cluster API's CRDs, on a network of its own.
    Chart,
    /// Cluster API and CAPD, which are installed afterwards.
    Management,
}

/// A running cluster. Dropping it removes it.
pub struct Cluster {
    /// helm, as administrator.
    pub helm: Helm,
    /// The images that it runs.
    pub images: Images,
    client: Client,
    kubeconfig: Value,
    docker: Docker,
    kind: Kind,
    place: Place,
}

/// The names of a cluster in Docker.
#[derive(Clone, Debug)]
struct Place {
    cluster: String,
    network: String,
    /// True if the network was created for this cluster alone.
    owns_network: bool,
}

impl Cluster {
    /// Makes the images and the cluster. If that fails, the logs of what there is are kept in `logs`.
    pub async fn start(purpose: Purpose, logs: &Path) -> Result<Self> {
        let images = Images::make().await?;
        let (docker, kind) = (Docker::running()?, go::kind()?);
        let place = Place::of(purpose, docker)?;
        let name = place.cluster.clone();
        let directory = tempfile::tempdir()?;
        let kubeconfig = directory.path().join("kubeconfig");
        let settings = directory.path().join("kind.yaml");
        fs::write(&settings, if purpose == Purpose::Chart { SETTINGS } else { MANAGEMENT })?;
        let mut create = command(&kind, &place);
        create.args(["create", "cluster", "--name", &name, "--image", &images.node, "--retain", "--wait=180s"]);
        create.arg("--config").arg(&settings);
        let created = output(create.arg("--kubeconfig").arg(&kubeconfig)).context("creating a cluster");
        let connected = match created {
            Ok(_) => connect(&kubeconfig).await,
            Err(error) => Err(error),
        };
        let (helm, client, kubeconfig) = match connected {
            Ok(connected) => connected,
            Err(error) => {
                // The cluster exists at least in part, and its logs have the reason.
                let kept = export_logs(&kind, &place, logs);
                let _ = remove(docker, &kind, &place);
                return Err(with_logs(error, kept, logs));
            }
        };
        let cluster = Self { helm, images, client, kubeconfig, docker, kind, place };
        match cluster.prepare(purpose).await {
            Ok(()) => Ok(cluster),
            Err(error) => Err(with_logs(error, cluster.keep_logs(logs), logs)),
        }
    }

    /// Brings the project's image and Cluster API's kinds, and waits until all works.
    async fn prepare(&self, purpose: Purpose) -> Result<()> {
        self.load(&self.images.project.name)?;
        let mut kinds = Vec::new();
        if purpose == Purpose::Chart {
            let bases = go::components()?.crds();
            crds::install(&self.objects("default"), &bases, Contract::V1Beta2, Installed::All).await?;
            kinds.extend(CAPI_KINDS);
        }
        self.works(&kinds).await
    }

    /// Waits until the Node is ready, all Pods of the system run, and these kinds can be listed: for some seconds after
    /// a definition has come, the API server answers 429 while it prepares the storage.
    async fn works(&self, kinds: &[&str]) -> Result<()> {
        every(POLL_INTERVAL, "a ready Node and the system's Pods", TIMEOUT, async || {
            let nodes = Api::<Node>::all(self.client()).list(&ListParams::default()).await?;
            for node in &nodes.items {
                let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
                let ready = conditions.into_iter().flatten().any(|one| one.type_ == "Ready" && one.status == "True");
                ensure!(ready, "the Node isn't ready: {conditions:?}");
            }
            let pods = Api::<Pod>::namespaced(self.client(), "kube-system").list(&ListParams::default()).await?;
            ensure!(pods.items.len() >= 7, "{} Pods in kube-system", pods.items.len());
            for pod in &pods.items {
                ensure!(is_ready(pod), "{:?} isn't ready: {:?}", pod.metadata.name, pod.status);
            }
            for kind in kinds {
                self.objects("default").list(kind, "").await?;
            }
            Ok(())
        })
        .await
    }

    /// Returns a client with an administrator's rights.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Returns access to the objects of a namespace.
    pub fn objects(&self, namespace: &str) -> Objects {
        Objects::new(self.client(), Contract::V1Beta2, namespace)
    }

    /// Returns an administrator's kubeconfig.
    pub fn kubeconfig(&self) -> &Value {
        &self.kubeconfig
    }

    /// Returns an administrator's kubeconfig that is valid in Pods, which find the API server by its Service's name.
    pub fn kubeconfig_for_pods(&self) -> Value {
        let mut kubeconfig = self.kubeconfig.clone();
        kubeconfig["clusters"][0]["cluster"]["server"] = json!("https://kubernetes.default.svc:443");
        kubeconfig
    }

    /// Returns the address of the Node on its network, which this machine reaches.
    pub fn node_address(&self) -> Result<String> {
        let networks = self.docker.inspect(&self.node())?["NetworkSettings"]["Networks"].clone();
        let address = networks.as_object().and_then(|all| all.values().next()).map(|one| one["IPAddress"].clone());
        let address = address.and_then(|address| address.as_str().map(str::to_owned));
        address.with_context(|| format!("the Node has no address: {networks}"))
    }

    /// Returns this machine's address on the Node's network, by which the Node reaches it.
    pub fn gateway(&self) -> Result<IpAddr> {
        let settings = self.docker.inspect(&self.place.network)?["IPAM"]["Config"].clone();
        let addresses =
            settings.as_array().into_iter().flatten().filter_map(|one| one["Gateway"].as_str()?.parse().ok());
        let address = addresses.into_iter().find(IpAddr::is_ipv4);
        address.with_context(|| format!("the network has no gateway: {settings}"))
    }

    /// Brings an image of Docker's store to the Node.
    pub fn load(&self, image: &str) -> Result<()> {
        output(command(&self.kind, &self.place).args(["load", "docker-image", "--name", &self.place.cluster, image]))?;
        Ok(())
    }

    /// Runs a command on the Node, and returns its output.
    pub fn on_node(&self, arguments: &[&str]) -> Result<String> {
        let node = self.node();
        self.docker.run(&[&["exec", node.as_str()][..], arguments].concat())
    }

    /// Returns the directory through which this machine sees the Node's files.
    pub fn node_files(&self) -> Result<PathBuf> {
        let process = self.docker.inspect(&self.node())?["State"]["Pid"].as_u64().context("the Node doesn't run")?;
        Ok(format!("/proc/{process}/root").into())
    }

    fn node(&self) -> String {
        format!("{}-control-plane", self.place.cluster)
    }

    /// Keeps the logs of the Node and of all its containers in a directory.
    pub fn keep_logs(&self, logs: &Path) -> Result<()> {
        export_logs(&self.kind, &self.place, logs)
    }

    /// Removes the cluster and its network.
    pub fn remove(self) -> Result<()> {
        remove(self.docker, &self.kind, &self.place)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // A cluster that `remove` has removed isn't there any more.
        let _ = remove(self.docker, &self.kind, &self.place);
    }
}

/// Returns true if all containers of a Pod are ready and it isn't about to end.
pub(super) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.into_iter().flatten().any(|one| one.type_ == "Ready" && one.status == "True");
    ready && pod.metadata.deletion_timestamp.is_none()
}

impl Place {
    fn of(purpose: Purpose, docker: Docker) -> Result<Self> {
        let cluster = format!("capi-e2e-{}", process::id());
        Ok(match purpose {
            Purpose::Chart => Self { network: cluster.clone(), cluster, owns_network: true },
            Purpose::Management => {
                let network = SHARED_NETWORK.to_owned();
                let owns_network = docker.networks(&network)?.is_empty();
                Self { cluster, network, owns_network }
            }
        })
    }
}

/// Returns kind with the Docker network of this cluster.
fn command(kind: &Kind, place: &Place) -> Command {
    let mut command = Command::new(&kind.program);
    command.env("KIND_EXPERIMENTAL_DOCKER_NETWORK", &place.network);
    command
}

fn export_logs(kind: &Kind, place: &Place, logs: &Path) -> Result<()> {
    output(command(kind, place).args(["export", "logs", "--name", &place.cluster]).arg(logs.join("kind")))?;
    Ok(())
}

/// Adds the place of a cluster's logs to an error, or the reason why there are none.
fn with_logs(error: anyhow::Error, kept: Result<()>, logs: &Path) -> anyhow::Error {
    error.context(match kept {
        Ok(()) => format!("the cluster's logs are in {}", logs.join("kind").display()),
        Err(error) => format!("the cluster's logs can't be kept ({error:#})"),
    })
}

fn remove(docker: Docker, kind: &Kind, place: &Place) -> Result<()> {
    let name = &place.cluster;
    let file = env::temp_dir().join(format!("{name}.kubeconfig"));
    output(command(kind, place).args(["delete", "cluster", "--name", name]).arg("--kubeconfig").arg(&file))?;
    if file.exists() {
        fs::remove_file(&file)?;
    }
    if place.owns_network {
        for network in docker.networks(&place.network)? {
            docker.run(&["network", "rm", &network])?;
        }
    }
    Ok(())
}

/// Returns helm, a client and the kubeconfig of an administrator.
async fn connect(kubeconfig: &Path) -> Result<(Helm, Client, Value)> {
    let text = fs::read_to_string(kubeconfig)?;
    let value: Value = serde_yaml::from_str(&text)?;
    Ok((Helm::on(&value)?, client(&text).await?, value))
}

async fn client(kubeconfig: &str) -> Result<Client> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig)?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    // By default the client would retry a refused eviction until it is admitted.
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

/// Waits until an object is gone.
pub(super) async fn gone(objects: &Objects, kind: &str, name: &str) -> Result<()> {
    every(POLL_INTERVAL, &format!("{kind} {name} gone"), TIMEOUT, async || {
        let found = objects.find(kind, name).await?;
        ensure!(found.is_none(), "it is still there: {:?}", found.map(|found| found.data));
        Ok(())
    })
    .await
}
