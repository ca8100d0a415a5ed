//! The built program in a process of its own, on a sandbox with a fleet.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use capi_autoscaler_provider::proto::{RefreshRequest, cloud_provider_client::CloudProviderClient};
use sandbox::{Sandbox, SandboxOptions, fleet::Fleet, requests::Request};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(120);

/// The synced program, and the clusters that it serves.
pub(crate) struct Program {
    pub(crate) sandbox: Sandbox,
    /// The address of its gRPC service.
    pub(crate) address: String,
    process: Process,
}

/// A process that is killed when the test ends, however that ends.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Polls until a condition holds.
async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let waited = tokio::time::timeout(PATIENCE, async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("in vain: {what}"));
}

impl Program {
    pub(crate) async fn start(groups: usize, machines: usize) -> Self {
        let fleet = Fleet { groups, machines, namespace: "team-a".to_owned(), cluster: "prod".to_owned() };
        let options = SandboxOptions { fleet: Some(fleet), ..SandboxOptions::default() };
        let sandbox = Sandbox::start(options).await.unwrap();
        let kubeconfig = format!("--management-kubeconfig={}", sandbox.management_kubeconfig().display());
        let fixed = ["serve", "--cluster=team-a/prod", "--log-format=json", "--admin-listen=none"];
        let child = Command::new(env!("CARGO_BIN_EXE_capi-autoscaler-provider"))
            .args(fixed)
            .args(["--listen=127.0.0.1:0", "--http-listen=127.0.0.1:0", &kubeconfig])
            .env_clear()
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut process = Process(child);
        let mut log = BufReader::new(process.0.stderr.take().unwrap()).lines().map(Result::unwrap);
        let address = log
            .find_map(|line| {
                let line: Value = serde_json::from_str(&line).unwrap();
                (line["message"] == "serving gRPC").then(|| line["address"].as_str().unwrap().to_owned())
            })
            .expect("it serves gRPC");
        // The rest of the log is read, so that the process never blocks on a full pipe.
        thread::spawn(move || log.for_each(drop));
        let client = CloudProviderClient::connect(format!("http://{address}")).await.unwrap();
        until("in sync", async || client.clone().refresh(RefreshRequest {}).await.is_ok()).await;
        Self { sandbox, address, process }
    }

    /// Clears the recorded requests to the APIs, once the program's watches are running.
    pub(crate) async fn forget_requests(&self) {
        const MANAGEMENT: &[&str] = &[
            "/clusters",
            "/machinedeployments",
            "/machinesets",
            "/machines",
            "/machinepools",
            "/fleetmachinetemplates",
        ];
        for (api, kinds) in [(self.sandbox.management(), MANAGEMENT), (self.sandbox.workload(), &["/nodes"][..])] {
            let requests = api.requests();
            let is_watched = |kind: &str| {
                let is_such = |request: &Request| {
                    request.verb == "watch" && request.path.ends_with(kind) && request.status == Some(200)
                };
                requests.count(is_such) > 0
            };
            until("all watches run", async || kinds.iter().all(|kind| is_watched(kind))).await;
            requests.clear();
        }
    }

    /// Returns a line of the process's `/proc/<pid>/status`.
    pub(crate) fn status(&self, field: &str) -> String {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.0.id())).unwrap_or_default();
        status.lines().find(|line| line.starts_with(field)).unwrap_or_default().to_owned()
    }

    pub(crate) async fn stop(self) {
        drop(self.process);
        self.sandbox.stop().await;
    }
}
