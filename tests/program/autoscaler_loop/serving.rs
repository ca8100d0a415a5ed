//! The built program in a process of its own, on a sandbox with a fleet.

use std::{process::Command, time::Duration};

use proto::{RefreshRequest, cloud_provider_client::CloudProviderClient};
use sandbox::{Sandbox, SandboxOptions, fleet::Fleet, requests::Request};
use testkit::Wait;

/// An unoptimized build reads a large fleet for a while.
const PATIENCE: Duration = Duration::from_secs(120);

/// The synced program, and the clusters that it serves.
pub(crate) struct Program {
    pub(crate) sandbox: Sandbox,
    /// The address of its gRPC service.
    pub(crate) address: String,
    process: testkit::Program,
}

impl Program {
    pub(crate) async fn start(groups: usize, machines: usize) -> Self {
        let fleet = Fleet { groups, machines, namespace: "team-a".to_owned(), cluster: "prod".to_owned() };
        let options = SandboxOptions { fleet: Some(fleet), ..SandboxOptions::default() };
        let sandbox = Sandbox::start(options).await.unwrap();
        let kubeconfig = format!("--management-kubeconfig={}", sandbox.management_kubeconfig().display());
        let fixed = ["serve", "--cluster=team-a/prod", "--log-format=json", "--admin-listen=none"];
        let mut command = Command::new(env!("CARGO_BIN_EXE_capi-autoscaler-provider"));
        command.args(fixed).args(["--listen=127.0.0.1:0", "--http-listen=127.0.0.1:0", &kubeconfig]).env_clear();
        let process = testkit::Program::start(&mut command);
        let address = process.address("serving gRPC").await;
        let client = CloudProviderClient::connect(format!("http://{address}")).await.unwrap();
        Wait::new("in sync")
            .within(PATIENCE)
            .value(async || client.clone().refresh(RefreshRequest {}).await.ok())
            .await;
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
            Wait::new("all watches run").within(PATIENCE).condition(|| kinds.iter().all(|kind| is_watched(kind))).await;
            requests.clear();
        }
    }

    /// Returns a field of the memory of the process, in KiB.
    pub(crate) fn memory(&self, field: &str) -> u64 {
        self.process.process().memory(field)
    }

    pub(crate) async fn stop(self) {
        drop(self.process);
        self.sandbox.stop().await;
    }
}
