//! The release binary, its addresses, and its memory as the kernel reports it.

use std::{
    fs, io,
    net::{SocketAddr, TcpListener},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use serde_json::json;

use crate::api::{GROUPS, MACHINES};

const PATIENCE: Duration = Duration::from_secs(60);

/// The listeners of the program.
#[derive(Clone, Copy)]
pub(crate) struct Addresses {
    pub(crate) grpc: SocketAddr,
    pub(crate) http: SocketAddr,
    pub(crate) probe: SocketAddr,
    pub(crate) admin: SocketAddr,
}

/// The program; dropping it ends the process.
pub(crate) struct Program {
    child: Child,
    addresses: Addresses,
    _folder: tempfile::TempDir,
}

impl Program {
    /// Starts it against an API server and waits until it is in sync.
    pub(crate) fn start(api: SocketAddr) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let kubeconfig = folder.path().join("kubeconfig");
        fs::write(&kubeconfig, kubeconfig_of(api)).expect("a kubeconfig");
        let [grpc, http, probe, admin] = [(); 4].map(|()| free_address());
        let addresses = Addresses { grpc, http, probe, admin };
        let child = Command::new(env!("CARGO_BIN_EXE_capi-autoscaler-provider"))
            .args(["serve", "--all-clusters", "--listen", &grpc.to_string(), "--http-listen", &http.to_string()])
            .args(["--probe-listen", &probe.to_string(), "--admin-listen", &admin.to_string()])
            .arg("--management-kubeconfig")
            .arg(&kubeconfig)
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary starts");
        let program = Self { child, addresses, _folder: folder };
        let began = Instant::now();
        while !program.is_ready() {
            assert!(began.elapsed() < PATIENCE, "not ready in {PATIENCE:?}");
            sleep(Duration::from_millis(50));
        }
        program
    }

    pub(crate) fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Returns a line of `/proc/<pid>/status`, in KiB.
    pub(crate) fn status(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("the process runs");
        let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("the field is there");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    fn is_ready(&self) -> bool {
        let page = |path: &str| get(self.addresses.http, path).unwrap_or_default();
        let nodes = format!("\ncapi_autoscaler_provider_nodes {}\n", GROUPS * MACHINES);
        page("/readyz").starts_with("HTTP/1.1 200") && page("/metrics").contains(&nodes)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port")
}

fn get(address: SocketAddr, path: &str) -> io::Result<String> {
    use io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(address)?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn kubeconfig_of(address: SocketAddr) -> String {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "fleet",
        "contexts": [{"name": "fleet", "context": {"cluster": "fleet", "user": "fleet"}}],
        "clusters": [{"name": "fleet", "cluster": {"server": format!("http://{address}")}}],
        "users": [{"name": "fleet", "user": {}}],
    })
    .to_string()
}
