//! One copy of the built program, in a process of its own that can be killed.

use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use capi_autoscaler_provider::proto::{RefreshRequest, cloud_provider_client::CloudProviderClient};
use serde_json::Value;
use tokio::sync::oneshot;
use tonic::transport::Channel;

/// A running process. It is killed when the test ends, however that ends.
pub(crate) struct Copy {
    child: Child,
    pub(crate) client: CloudProviderClient<Channel>,
}

impl Drop for Copy {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Copy {
    /// Starts it and waits until it is in sync.
    pub(crate) async fn start(kubeconfig: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_capi-autoscaler-provider"))
            .args(["serve", "--cluster=team-a/prod", "--log-format=json", "--admin-listen=none"])
            .args(["--listen=127.0.0.1:0", "--http-listen=127.0.0.1:0"])
            .arg(format!("--management-kubeconfig={}", kubeconfig.display()))
            .env_clear()
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = BufReader::new(child.stderr.take().unwrap()).lines();
        let (found, address) = oneshot::channel();
        // The rest of the log is read too, so that the process never blocks on a full pipe.
        std::thread::spawn(move || {
            let mut found = Some(found);
            for line in log.map_while(Result::ok) {
                let line: Value = serde_json::from_str(&line).unwrap_or_default();
                if line["message"] == "serving gRPC"
                    && let Some(found) = found.take()
                {
                    let _ = found.send(line["address"].as_str().unwrap_or_default().to_owned());
                }
            }
        });
        let address = address.await.expect("it serves gRPC");
        let client = CloudProviderClient::connect(format!("http://{address}")).await.unwrap();
        while client.clone().refresh(RefreshRequest {}).await.is_err() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Self { child, client }
    }

    /// Sends SIGKILL, which leaves it no time to clean up.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}
