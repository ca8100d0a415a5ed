//! The manager of Cluster API's core as a process: its controllers and webhooks. It acts as administrator.

use std::{fs, path::Path, process::Command, time::Duration};

use anyhow::{Context, Result, ensure};
use kube::{Client, Config};

use crate::{
    cluster_api::{
        authority::Authority,
        install::{self, Webhooks},
    },
    control_plane::{ControlPlane, http_get},
    go::Components,
    ports::free_port,
    process::Process,
    users::User,
    wait::eventually,
};

/// How long the manager may take to be ready on a busy machine.
const START: Duration = Duration::from_secs(120);

/// A running manager, with its CRDs and webhooks installed. Dropping it ends it.
pub struct Core {
    process: Process,
}

impl Core {
    /// Installs the core on an API server and starts its manager.
    pub async fn start(plane: &ControlPlane, components: &Components) -> Result<Self> {
        let directory = plane.directory().join("cluster-api");
        let authority = Authority::new()?;
        authority.write_server_certificate(&directory)?;
        let kubeconfig = directory.join("kubeconfig");
        fs::write(&kubeconfig, plane.kubeconfig(&User::administrator()).to_string())?;

        let webhooks = Webhooks { port: free_port()?, authority: authority.certificate() };
        let objects = plane.objects("default");
        install::crds(&objects, &components.manifests, &webhooks).await?;
        let health = free_port()?;
        let process = start(components, &directory, &kubeconfig, webhooks.port, health)?;
        let mut core = Self { process };
        core.ready(health).await?;
        install::admission(&objects, &components.manifests, &webhooks).await?;
        Ok(core)
    }

    /// What the manager has written.
    #[must_use]
    pub fn log(&self) -> &Path {
        self.process.log()
    }

    async fn ready(&mut self, health: u16) -> Result<()> {
        let mut config = Config::new(format!("http://127.0.0.1:{health}").parse()?);
        config.default_retry = false;
        let client = Client::try_from(config)?;
        eventually("Cluster API's manager ready", START, async || {
            self.process.still_running()?;
            let answer = client.request_text(http_get("/readyz")?).await?;
            ensure!(answer == "ok", "its /readyz says {answer}");
            Ok(())
        })
        .await
        .with_context(|| self.process.output())
    }
}

fn start(components: &Components, directory: &Path, kubeconfig: &Path, webhooks: u16, health: u16) -> Result<Process> {
    let mut command = Command::new(&components.cluster_api);
    command
        .env_clear()
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .arg(format!("--webhook-port={webhooks}"))
        .arg(format!("--webhook-cert-dir={}", directory.display()))
        .arg(format!("--health-addr=127.0.0.1:{health}"))
        .args(["--diagnostics-address=127.0.0.1:0", "--insecure-diagnostics"])
        .arg("--feature-gates=ClusterTopology=true,MachineTaintPropagation=true")
        // The tests' own limits are those of the machine.
        .args(["--kube-api-qps=500", "--kube-api-burst=1000"])
        .args(["--clustercache-client-qps=500", "--clustercache-client-burst=1000"]);
    Process::start("Cluster API's manager", command, &directory.join("manager.log"))
}
