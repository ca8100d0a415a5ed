//! Managers of Cluster API and its providers as processes, with their controllers and webhooks. They act as
//! administrator. Their manifests are installed as their release does, except that webhooks are reached by URL: a manager
//! is a process on this machine without a Service.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use kube::{Client, Config};
use serde_json::{Value, json};

use crate::{
    authority::Authority,
    control_plane::{ControlPlane, http_get},
    crds::established,
    go::Components,
    helm,
    objects::Objects,
    process::{Process, free_port},
    users::{User, base64},
    wait::eventually,
};

/// The maximum time until a manager is ready on a busy machine.
const START: Duration = Duration::from_secs(120);

/// A running manager. Dropping it ends it.
pub struct Manager {
    process: Process,
}

/// An API server that managers work on.
pub struct Site {
    /// The directory of the managers' files.
    pub directory: PathBuf,
    /// An administrator's kubeconfig.
    pub kubeconfig: Value,
    /// The objects of any namespace.
    pub objects: Objects,
    /// The address by which the API server reaches this machine.
    pub address: IpAddr,
}

impl Site {
    /// Returns an API server that is a process on this machine.
    pub fn of(plane: &ControlPlane) -> Self {
        Self {
            directory: plane.directory().to_owned(),
            kubeconfig: plane.kubeconfig(&User::administrator()),
            objects: plane.objects("default"),
            address: Ipv4Addr::LOCALHOST.into(),
        }
    }
}

/// The manager to start, and the manifests to install for it.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'a> {
    /// The name of its files, and the prefix of its webhook configurations.
    pub name: &'a str,
    /// Its binary.
    pub binary: &'a Path,
    /// The directory of its manifests, whose CRDs and webhooks are installed. `None` if its kinds are already
    /// installed.
    pub manifests: Option<&'a Path>,
    /// Flags besides those of every manager.
    pub arguments: &'a [&'a str],
    /// The complete environment.
    pub environment: &'a [(&'a str, &'a str)],
}

impl Manager {
    /// Installs Cluster API's core on an API server and starts its manager.
    pub async fn core(site: &Site, components: &Components) -> Result<Self> {
        let settings = Settings {
            name: "cluster-api",
            binary: &components.cluster_api,
            manifests: Some(&components.manifests),
            arguments: &["--feature-gates=ClusterTopology=true,MachineTaintPropagation=true"],
            environment: &[],
        };
        Self::start(site, settings).await
    }

    /// Installs the prerequisites of a manager on an API server, and starts it.
    pub async fn start(site: &Site, settings: Settings<'_>) -> Result<Self> {
        let directory = site.directory.join(settings.name);
        let authority = Authority::new()?;
        authority.write_server_certificate(site.address, &directory)?;
        let kubeconfig = directory.join("kubeconfig");
        fs::write(&kubeconfig, site.kubeconfig.to_string())?;

        let address = SocketAddr::new(site.address, free_port()?);
        let webhooks = Webhooks { address, authority: authority.certificate().to_owned() };
        if let Some(manifests) = settings.manifests {
            install_crds(&site.objects, manifests, &webhooks).await?;
        }
        let health = free_port()?;
        let process = start(settings, &directory, &kubeconfig, address.port(), health)?;
        let mut manager = Self { process };
        manager.ready(settings.name, health).await?;
        if let Some(manifests) = settings.manifests {
            install_admission(&site.objects, manifests, settings.name, &webhooks).await?;
        }
        Ok(manager)
    }

    /// Returns the path of the manager's log.
    pub fn log(&self) -> &Path {
        self.process.log()
    }

    async fn ready(&mut self, name: &str, health: u16) -> Result<()> {
        let mut config = Config::new(format!("http://127.0.0.1:{health}").parse()?);
        config.default_retry = false;
        let client = Client::try_from(config)?;
        eventually(&format!("manager {name} ready"), START, async || {
            self.process.still_running()?;
            let answer = client.request_text(http_get("/readyz")?).await?;
            ensure!(answer == "ok", "its /readyz says {answer}");
            Ok(())
        })
        .await
        .with_context(|| self.process.output())
    }
}

fn start(settings: Settings, directory: &Path, kubeconfig: &Path, webhooks: u16, health: u16) -> Result<Process> {
    let mut command = Command::new(settings.binary);
    command
        .env_clear()
        .envs(settings.environment.iter().copied())
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .arg(format!("--webhook-port={webhooks}"))
        .arg(format!("--webhook-cert-dir={}", directory.display()))
        .arg(format!("--health-addr=127.0.0.1:{health}"))
        .args(["--diagnostics-address=127.0.0.1:0", "--insecure-diagnostics"])
        // The tests are to be limited by the machine alone.
        .args(["--kube-api-qps=500", "--kube-api-burst=1000"])
        .args(["--clustercache-client-qps=500", "--clustercache-client-burst=1000"])
        .args(settings.arguments);
    Process::start(&format!("manager {}", settings.name), command, &directory.join("manager.log"))
}

/// The address of a manager's webhooks.
struct Webhooks {
    /// The address and port by which the API server reaches them.
    address: SocketAddr,
    /// The PEM certificate of the authority that has signed the manager's.
    authority: String,
}

impl Webhooks {
    fn client_config(&self, path: &str) -> Value {
        json!({
            "url": format!("https://{}{path}", self.address),
            "caBundle": base64(self.authority.as_bytes()),
        })
    }
}

/// Installs all versions of the CRDs from the directory of a manager's manifests, and waits until they are served.
/// Their labels name the versions that follow the contract, as in the release.
///
/// Objects can be converted only once the manager runs.
async fn install_crds(objects: &Objects, manifests: &Path, webhooks: &Webhooks) -> Result<()> {
    let mut names = Vec::new();
    for file in fs::read_dir(manifests.join("crd/bases"))? {
        for mut crd in documents(&file?.path())? {
            crd["spec"]["conversion"] = json!({
                "strategy": "Webhook",
                "webhook": { "conversionReviewVersions": ["v1"], "clientConfig": webhooks.client_config("/convert") },
            });
            crd["metadata"]["labels"] = json!({ "cluster.x-k8s.io/v1beta2": "v1beta2" });
            names.push(objects.create(crd).await?.metadata.name.context("a CRD without name")?);
        }
    }
    ensure!(!names.is_empty(), "no CRDs in {}", manifests.display());
    for name in names {
        established(objects, &name).await?;
    }
    Ok(())
}

/// Installs a manager's defaulting and validating webhooks. From then on its kinds can be written only while it runs.
async fn install_admission(objects: &Objects, manifests: &Path, name: &str, webhooks: &Webhooks) -> Result<()> {
    for mut configuration in documents(&manifests.join("webhook/manifests.yaml"))? {
        let kind = configuration["kind"].as_str().context("a webhook configuration without kind")?.to_lowercase();
        configuration["metadata"]["name"] = json!(format!("{name}-{kind}"));
        let listed = configuration["webhooks"].as_array_mut().context("a webhook configuration without webhooks")?;
        for webhook in listed {
            let path = webhook["clientConfig"]["service"]["path"].as_str().context("a webhook without path")?;
            webhook["clientConfig"] = webhooks.client_config(path);
            // A busy machine may take longer than the default, 10 seconds; this is the longest that is allowed.
            webhook["timeoutSeconds"] = json!(30);
        }
        objects.create(configuration).await?;
    }
    Ok(())
}

/// Parses the objects of a YAML file.
fn documents(path: &Path) -> Result<Vec<Value>> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    helm::objects(&text).with_context(|| format!("parsing {}", path.display()))
}
