//! The release binary in a process of its own, which follows an API server of the bench.

mod environment;

use std::{
    fs,
    net::SocketAddr,
    process::{Command, Stdio},
    time::Duration,
};

use sandbox::kubeconfig::kubeconfig;
use testkit::{Process, Wait, try_get};

/// The longest time for the first lists.
const PATIENCE: Duration = Duration::from_secs(300);
const INTERVAL: Duration = Duration::from_millis(50);

/// The serving process; dropping it ends the process.
pub(crate) struct Serving {
    process: Process,
    http: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Serving {
    /// Starts it against an API server, with an address for probes and metrics and further arguments.
    pub(crate) fn start(api: SocketAddr, http: SocketAddr, arguments: &[String]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let config = folder.path().join("kubeconfig");
        fs::write(&config, kubeconfig(&format!("http://{api}"))).expect("a kubeconfig");
        let process = Process::start(
            Command::new(env!("CARGO_BIN_EXE_capi-autoscaler-provider"))
                .envs(environment::of_image())
                .args(["serve", "--all-clusters", "--http-listen", &http.to_string()])
                .args(arguments)
                .arg("--management-kubeconfig")
                .arg(&config)
                .stderr(Stdio::null()),
        );
        Self { process, http, _folder: folder }
    }

    /// Waits until it is ready and reports this number of Machines and Nodes.
    pub(crate) async fn wait_until_ready(&self, machines: usize) {
        let counts = ["machines", "nodes"].map(|kind| format!("\ncapi_autoscaler_provider_{kind} {machines}\n"));
        let address = self.http.to_string();
        let page = async |path: &str| try_get(&address, path).await.ok().filter(|(status, _)| *status == 200);
        let wait = Wait::new("the program is ready").within(PATIENCE).every(INTERVAL);
        wait.value(async || {
            page("/readyz").await?;
            let (_, metrics) = page("/metrics").await?;
            counts.iter().all(|count| metrics.contains(count)).then_some(())
        })
        .await;
    }

    pub(crate) fn process(&self) -> &Process {
        &self.process
    }
}
