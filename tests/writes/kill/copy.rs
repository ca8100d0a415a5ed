//! One copy of the built program, in a process of its own that can be killed.

use std::{path::Path, process::Command};

use proto::{RefreshRequest, cloud_provider_client::CloudProviderClient};
use testkit::{Program, until};
use tonic::transport::Channel;

/// A running process.
pub(crate) struct Copy {
    program: Program,
    pub(crate) client: CloudProviderClient<Channel>,
}

impl Copy {
    /// Starts it and waits until it is in sync.
    pub(crate) async fn start(kubeconfig: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_capi-autoscaler-provider"));
        command
            .args(["serve", "--cluster=team-a/prod", "--log-format=json", "--admin-listen=none"])
            .args(["--listen=127.0.0.1:0", "--http-listen=127.0.0.1:0"])
            .arg(format!("--management-kubeconfig={}", kubeconfig.display()))
            .env_clear();
        let program = Program::start(&mut command);
        let address = program.address("serving gRPC").await;
        let client = CloudProviderClient::connect(format!("http://{address}")).await.unwrap();
        until("in sync", async || client.clone().refresh(RefreshRequest {}).await.ok()).await;
        Self { program, client }
    }

    /// Sends SIGKILL, which leaves it no time to clean up.
    pub(crate) fn kill(self) {
        self.program.kill();
    }
}
