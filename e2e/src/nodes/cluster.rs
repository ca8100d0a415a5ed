//! One cluster of one Node, by kind, with Cluster API's CRDs and the project's image.

use std::{
    env, fs,
    net::IpAddr,
    path::{Path, PathBuf},
    process,
    process::Command,
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
    images::{Docker, Images, output},
    objects::{Contract, Objects},
    wait::every,
};

/// The time within which Pods start or end on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(240);

/// The interval of looking at a cluster.
pub const LOOK: Duration = Duration::from_millis(300);

/// kind's settings: containerd reads from a directory which registries it reaches without TLS.
const SETTINGS: &str = r#"
kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
containerdConfigPatches:
  - |
    [plugins."io.containerd.grpc.v1.cri".registry]
      config_path = "/etc/containerd/certs.d"
"#;

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
    name: String,
}

impl Cluster {
    /// Makes the images and the cluster, and installs Cluster API's CRDs in it. kind's log is kept in `logs`.
    pub async fn start(logs: &Path) -> Result<Self> {
        let images = Images::make().await?;
        let (docker, kind, name) = (Docker::running()?, go::kind()?, format!("capi-e2e-{}", process::id()));
        let directory = tempfile::tempdir()?;
        let kubeconfig = directory.path().join("kubeconfig");
        let settings = directory.path().join("kind.yaml");
        fs::write(&settings, SETTINGS)?;
        let mut create = command(&kind, &name);
        create.args(["create", "cluster", "--name", &name, "--image", &images.node, "--retain", "--wait=180s"]);
        create.arg("--config").arg(&settings);
        let created = output(create.arg("--kubeconfig").arg(&kubeconfig));
        if created.is_err() {
            // The cluster is there in part, with the reason in its logs.
            let _ = output(command(&kind, &name).args(["export", "logs", "--name", &name]).arg(logs.join("kind")));
            let _ = remove(docker, &kind, &name);
        }
        created.with_context(|| format!("creating a cluster; its logs are in {}", logs.join("kind").display()))?;
        let text = fs::read_to_string(&kubeconfig)?;
        let cluster = Self {
            helm: Helm::on(&serde_yaml::from_str(&text)?)?,
            client: client(&text).await?,
            kubeconfig: serde_yaml::from_str(&text)?,
            images,
            docker,
            kind,
            name,
        };
        cluster.load(&cluster.images.project.name)?;
        let bases = go::components()?.crds();
        crds::install(&cluster.objects("default"), &bases, Contract::V1Beta2, Installed::All).await?;
        cluster.works().await?;
        Ok(cluster)
    }

    /// Waits until the Node is ready, all Pods of the system run, and Cluster API's kinds can be listed: for some seconds
    /// after a definition has come, the API server answers 429 while it prepares the storage.
    async fn works(&self) -> Result<()> {
        every(LOOK, "a ready Node and the system's Pods", PATIENCE, async || {
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
            for kind in ["Cluster", "MachineDeployment", "MachineSet", "Machine", "MachinePool"] {
                self.objects("default").list(kind, "").await?;
            }
            Ok(())
        })
        .await
    }

    /// Returns a client with an administrator's rights.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Returns access to the objects of a namespace.
    #[must_use]
    pub fn objects(&self, namespace: &str) -> Objects {
        Objects::new(self.client(), Contract::V1Beta2, namespace)
    }

    /// Returns an administrator's kubeconfig that is valid in Pods, which find the API server by its Service's name.
    #[must_use]
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
        let settings = self.docker.inspect(&self.name)?["IPAM"]["Config"].clone();
        let addresses =
            settings.as_array().into_iter().flatten().filter_map(|one| one["Gateway"].as_str()?.parse().ok());
        let address = addresses.into_iter().find(IpAddr::is_ipv4);
        address.with_context(|| format!("the network has no gateway: {settings}"))
    }

    /// Brings an image of Docker's store to the Node.
    pub fn load(&self, image: &str) -> Result<()> {
        output(command(&self.kind, &self.name).args(["load", "docker-image", "--name", &self.name, image]))?;
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
        format!("{}-control-plane", self.name)
    }

    /// Keeps the logs of the Node and of all its containers in a directory.
    pub fn keep_logs(&self, logs: &Path) -> Result<()> {
        output(command(&self.kind, &self.name).args(["export", "logs", "--name", &self.name]).arg(logs.join("kind")))?;
        Ok(())
    }

    /// Removes the cluster and its network.
    pub fn remove(self) -> Result<()> {
        remove(self.docker, &self.kind, &self.name)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // A cluster that `remove` has removed isn't there any more.
        let _ = remove(self.docker, &self.kind, &self.name);
    }
}

/// Returns true if all containers of a Pod are ready and it isn't about to end.
pub(super) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.into_iter().flatten().any(|one| one.type_ == "Ready" && one.status == "True");
    ready && pod.metadata.deletion_timestamp.is_none()
}

/// Returns kind with a Docker network of this cluster's own: its usual one is shared, and stays.
fn command(kind: &Kind, name: &str) -> Command {
    let mut command = Command::new(&kind.program);
    command.env("KIND_EXPERIMENTAL_DOCKER_NETWORK", name);
    command
}

fn remove(docker: Docker, kind: &Kind, name: &str) -> Result<()> {
    let file = env::temp_dir().join(format!("{name}.kubeconfig"));
    output(command(kind, name).args(["delete", "cluster", "--name", name]).arg("--kubeconfig").arg(&file))?;
    if file.exists() {
        fs::remove_file(&file)?;
    }
    let filter = format!("name=^{name}$");
    for network in docker.lines(&["network", "ls", "--quiet", "--filter", &filter])? {
        docker.run(&["network", "rm", &network])?;
    }
    Ok(())
}

async fn client(kubeconfig: &str) -> Result<Client> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig)?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    // A refused eviction would be asked for again, until it is admitted.
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

/// Waits until an object is gone.
pub(super) async fn gone(objects: &Objects, kind: &str, name: &str) -> Result<()> {
    every(LOOK, &format!("{kind} {name} gone"), PATIENCE, async || {
        let found = objects.find(kind, name).await?;
        ensure!(found.is_none(), "it is still there: {:?}", found.map(|found| found.data));
        Ok(())
    })
    .await
}
