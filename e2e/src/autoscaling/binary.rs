//! Binaries of Cluster Autoscaler, run as processes. They are unmodified, and connect to 127.0.0.1 only.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use sandbox::autoscaler::UNINITIALIZED;
use serde_json::{Value, json};

use super::{BACKOFF, PAUSE, Settings, Version};
use crate::process::{Process, free_port};

/// The environment variable that names binaries of Cluster Autoscaler, separated as in `PATH`.
pub const VARIABLE: &str = "CLUSTER_AUTOSCALER";

/// The start of a binary's first message, before its version.
const GREETING: &str = "Cluster Autoscaler ";

/// The source of a Cluster Autoscaler's node groups.
#[derive(Clone, Copy, Debug)]
pub enum CloudProvider<'a> {
    /// A server of the protocol, as this content of the file for `--cloud-config` says.
    ExternalGrpc(&'a Value),
    /// Its own provider for Cluster API.
    ClusterApi {
        /// A kubeconfig of the management cluster.
        management: &'a Value,
        /// The specs of `--node-group-auto-discovery`.
        discovery: &'a [String],
    },
}

/// A binary of Cluster Autoscaler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binary {
    /// The path.
    pub path: PathBuf,
    /// The version that it reports.
    pub version: Version,
}

impl Binary {
    /// Returns the binaries that the environment names, if any.
    pub fn named() -> Result<Vec<Self>> {
        let named = env::var_os(VARIABLE).unwrap_or_default();
        env::split_paths(&named).filter(|path| !path.as_os_str().is_empty()).map(Self::at).collect()
    }

    /// Reads the version of a binary: it has no flag for that, but logs the version before it fails without a cluster.
    fn at(path: PathBuf) -> Result<Self> {
        let what = || format!("{VARIABLE} names {}", path.display());
        let output = Command::new(&path)
            .env_clear()
            .args(["--v=1", "--logtostderr=true", "--leader-elect=false", "--address=127.0.0.1:0"])
            .args(["--cloud-provider=externalgrpc", "--kubeconfig=/nonexistent"])
            .stdin(Stdio::null())
            .output()
            .with_context(what)?;
        let said = String::from_utf8_lossy(&output.stderr);
        let version = said.lines().find_map(|line| {
            let (_, version) = line.split_once(GREETING)?;
            Version::parse(version.split_whitespace().next()?)
        });
        let version = version.with_context(|| format!("it doesn't say `{GREETING}1.x.y`, but:\n{said}"));
        let version = version.with_context(what)?;
        Ok(Self { path, version })
    }

    /// Starts the binary for a cluster, with a provider at an address.
    pub fn start(&self, directory: &Path, kubeconfig: &Value, provider: &str, settings: Settings) -> Result<Process> {
        ensure!(provider.starts_with("127.0.0.1:"), "the provider's address is {provider}");
        self.start_by(directory, kubeconfig, &json!({ "address": provider, "grpc_timeout": "30s" }), settings)
    }

    /// Starts the binary for a cluster, with a provider as this content of the file for `--cloud-config` says.
    pub fn start_by(
        &self,
        directory: &Path,
        kubeconfig: &Value,
        cloud_config: &Value,
        settings: Settings,
    ) -> Result<Process> {
        let provider = CloudProvider::ExternalGrpc(cloud_config);
        self.start_with(directory, kubeconfig, provider, settings, free_port()?, &[])
    }

    /// Starts the binary with any provider, its metrics at a port, and further flags, which override those of the
    /// settings.
    pub fn start_with(
        &self,
        directory: &Path,
        kubeconfig: &Value,
        provider: CloudProvider<'_>,
        settings: Settings,
        port: u16,
        flags: &[&str],
    ) -> Result<Process> {
        let (name, content, discovery) = match provider {
            CloudProvider::ExternalGrpc(content) => ("externalgrpc", content, [].as_slice()),
            CloudProvider::ClusterApi { management, discovery } => ("clusterapi", management, discovery),
        };
        let config = directory.join("cloud-config.yaml");
        fs::write(&config, content.to_string())?;
        let access = directory.join("cluster-autoscaler.kubeconfig");
        fs::write(&access, kubeconfig.to_string())?;
        let mut command = Command::new(&self.path);
        command
            .env_clear()
            // It writes its status into kube-system; otherwise it would not call Cleanup at its end.
            .args(["--leader-elect=false", "--namespace=kube-system"])
            .arg(format!("--cloud-provider={name}"))
            .arg(format!("--cloud-config={}", config.display()))
            .args(discovery.iter().map(|spec| format!("--node-group-auto-discovery={spec}")))
            .arg(format!("--kubeconfig={}", access.display()))
            .arg(format!("--address=127.0.0.1:{port}"))
            .arg(format!("--expander={}", settings.expander.as_str()))
            .args(duration("scan-interval", PAUSE))
            .args(duration("scale-down-unneeded-time", settings.unneeded))
            .args(duration("scale-down-unready-time", settings.unneeded))
            .args(duration("max-node-provision-time", settings.provision))
            .args(duration("initial-node-group-backoff-duration", BACKOFF))
            .args(duration("max-node-group-backoff-duration", BACKOFF))
            .arg(format!("--startup-taint={UNINITIALIZED}"))
            // The defaults are minutes, too long for a scenario.
            .args(["--scale-down-delay-after-add=1s", "--scale-down-delay-after-failure=1s"])
            .args(["--unremovable-node-recheck-timeout=1s", "--node-delete-delay-after-taint=0s"])
            .args(["--max-graceful-termination-sec=1", "--kube-client-qps=200", "--kube-client-burst=400"])
            .args(["--v=4", "--logtostderr=true"])
            .args(flags);
        Process::start("Cluster Autoscaler", command, &directory.join("cluster-autoscaler.log"))
    }
}

fn duration(flag: &str, value: Duration) -> [String; 1] {
    [format!("--{flag}={}ms", value.as_millis())]
}
