//! The binaries that a run starts: Cluster Autoscaler and kube-scheduler. They reach nothing but loopback.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context as _, bail};
use serde_json::json;
use tokio::process::{Child, Command};

use crate::flags::Flags;

/// The start of Cluster Autoscaler's first message, before its version.
const GREETING: &str = "Cluster Autoscaler ";
/// The number of lines of a log that an error quotes.
const QUOTED: usize = 5;

/// A running binary. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Process {
    what: &'static str,
    child: Child,
    log: PathBuf,
}

impl Process {
    fn start(what: &'static str, binary: &Path, arguments: &[String], log: PathBuf) -> anyhow::Result<Self> {
        let out = fs::File::create(&log).with_context(|| format!("can't write {}", log.display()))?;
        let child = Command::new(binary)
            .env_clear()
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("can't start {what} {}", binary.display()))?;
        Ok(Self { what, child, log })
    }

    /// Fails if the binary has ended, with its last words.
    pub(crate) fn still_runs(&mut self) -> anyhow::Result<()> {
        let Some(status) = self.child.try_wait()? else { return Ok(()) };
        let log = self.text();
        let fatal = log
            .lines()
            .filter(|line| line.starts_with('F') || line.starts_with("panic:") || line.contains("unknown flag"));
        let mut said: Vec<&str> = fatal.take(QUOTED).collect();
        if said.is_empty() {
            said = log.lines().rev().take(QUOTED).collect();
            said.reverse();
        }
        bail!("{} has ended ({status}); its last words: {}", self.what, said.join("\n  "))
    }

    /// Returns the version that Cluster Autoscaler reports, once it has.
    pub(crate) fn version(&self) -> Option<String> {
        let log = self.text();
        let (_, rest) = log.lines().find_map(|line| line.split_once(GREETING))?;
        rest.split_whitespace().next().filter(|text| text.starts_with('1')).map(str::to_owned)
    }

    pub(crate) fn text(&self) -> String {
        fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// Ends it, and waits until it has ended.
    pub(crate) async fn end(mut self) {
        // It may have ended already.
        let _ = self.child.kill().await;
    }
}

/// Starts Cluster Autoscaler on the workload cluster of this kubeconfig, with the provider at this address.
pub(crate) fn start_autoscaler(
    binary: &Path,
    flags: &Flags,
    kubeconfig: &Path,
    provider: &str,
    (folder, logs): (&Path, &Path),
) -> anyhow::Result<Process> {
    let config = folder.join("cloud-config.yaml");
    fs::write(&config, json!({ "address": provider, "grpc_timeout": "30s" }).to_string())?;
    let mut arguments = flags.passed.clone();
    arguments.extend(
        [
            "--cloud-provider=externalgrpc",
            "--kube-api-content-type=application/json",
            "--kube-client-qps=1000",
            "--kube-client-burst=2000",
            "--leader-elect=false",
            "--address=127.0.0.1:0",
            "--record-duplicated-events=true",
            "--write-status-configmap=true",
            "--logtostderr=true",
            "--v=2",
        ]
        .map(str::to_owned),
    );
    arguments.push(format!("--cloud-config={}", config.display()));
    arguments.push(format!("--kubeconfig={}", kubeconfig.display()));
    Process::start("Cluster Autoscaler", binary, &arguments, logs.join("cluster-autoscaler.log"))
}

/// Starts kube-scheduler on the workload cluster of this kubeconfig.
pub(crate) fn start_scheduler(
    binary: &Path,
    kubeconfig: &Path,
    (folder, logs): (&Path, &Path),
) -> anyhow::Result<Process> {
    let config = folder.join("scheduler.yaml");
    let content = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {
            "kubeconfig": kubeconfig.display().to_string(),
            "contentType": "application/json",
            "acceptContentTypes": "application/json",
            "qps": 1000,
            "burst": 2000,
        },
        "leaderElection": { "leaderElect": false },
        // Machines come within a second here, while a Pod waits up to 10 s for its next try by default. No less is valid.
        "podInitialBackoffSeconds": 1,
        "podMaxBackoffSeconds": 1,
    });
    fs::write(&config, content.to_string())?;
    let arguments = [format!("--config={}", config.display()), "--secure-port=0".to_owned(), "--v=2".to_owned()];
    Process::start("kube-scheduler", binary, &arguments, logs.join("kube-scheduler.log"))
}
