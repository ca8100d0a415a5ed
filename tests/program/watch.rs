//! Tests of `watch` as a process on the sandbox's API: it reports changes to people, programs and receivers.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    net::SocketAddr,
    path::PathBuf,
    process::{Command, ExitStatus, Stdio},
    sync::Arc,
};

use rustls::{ServerConfig, pki_types::PrivateKeyDer};
use sandbox::{Contract, api::Api, clock::Clock, define_cluster_api, http::ApiServer};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::{Certificate, Process, soon};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{mpsc, watch},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// An API server with Cluster API's Machine, and a folder for files.
struct World {
    server: ApiServer,
    folder: TempDir,
}

impl World {
    async fn start() -> Self {
        let api = Api::new(Clock::real());
        define_cluster_api(&api, Contract::V1Beta2).unwrap();
        let server = ApiServer::start(api).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        server.write_kubeconfig(folder.path().join("config")).unwrap();
        let world = Self { server, folder };
        world.create_machine("first");
        world
    }

    fn create_machine(&self, name: &str) {
        let machine = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
            "metadata": {"name": name, "namespace": "default"}, "spec": {},
        });
        self.server.api().load_values(vec![machine]).unwrap();
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn command(&self, flags: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_capi-autoscaler-provider"));
        let kubeconfig = self.folder.path().join("config");
        command.arg("watch").arg("--management-kubeconfig").arg(kubeconfig).args(flags).env_clear();
        command
    }

    /// Starts it, and waits until it is watching: until it shows the existing objects.
    async fn watch(&self, flags: &[&str]) -> Watching {
        Watching::start(self.command(&[&["--show-initial"], flags].concat())).await
    }
}

struct Watching {
    process: Process,
    lines: mpsc::UnboundedReceiver<String>,
}

impl Watching {
    /// Starts it, and waits for the existing object.
    async fn start(command: Command) -> Self {
        let mut watching = Self::spawn(command);
        assert!(watching.line().await.contains("first"));
        watching
    }

    fn spawn(mut command: Command) -> Self {
        let mut process = Process::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        let (send, lines) = mpsc::unbounded_channel();
        let out = BufReader::new(process.child().stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in out.lines() {
                if send.send(line.unwrap()).is_err() {
                    return;
                }
            }
        });
        Self { process, lines }
    }

    async fn line(&mut self) -> String {
        soon("a line", self.lines.recv()).await.expect("it runs")
    }

    fn terminate(&self) {
        self.process.signal("TERM");
    }

    /// Waits for its end, and returns its output on standard error as well.
    async fn ended(mut self) -> (ExitStatus, String) {
        let end = tokio::task::spawn_blocking(move || {
            let mut said = String::new();
            self.process.child().stderr.take().unwrap().read_to_string(&mut said).unwrap();
            (self.process.wait(), said)
        });
        soon("its end", end).await.unwrap()
    }
}

/// A listener with TLS, with a certificate for `localhost`.
struct Tls {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl axum::serve::Listener for Tls {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, address) = self.listener.accept().await.unwrap();
            // A client that rejects the certificate disconnects here.
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

/// Starts a Slack-like receiver with TLS. Returns its URL, its certificate and the received messages.
async fn receiver_with_tls() -> (String, String, watch::Receiver<Vec<Value>>) {
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}/services/T0P-S3CR3T", listener.local_addr().unwrap().port());
    let (router, received) = testkit::receiver();
    let listener = Tls { listener, acceptor: TlsAcceptor::from(Arc::new(config)) };
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (url, certified.cert.pem(), received)
}

/// Starts a Slack-like receiver. Returns its URL and the received messages.
async fn receiver() -> (String, watch::Receiver<Vec<Value>>) {
    let (router, received) = testkit::receiver();
    let (address, _) = testkit::serve(router).await;
    (format!("http://{address}/services/T0P-S3CR3T"), received)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_value_of_a_secret_is_shown_or_sent() {
    let world = World::start().await;
    let (url, mut received) = receiver().await;
    let url = format!("file:{}", world.file("url", &url).display());
    let secret = |value: &str| {
        let applied = format!("{{\"stringData\":{{\"password\":\"{value}\"}}}}");
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {"name": "s", "namespace": "default", "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": applied}},
            "data": {"password": value},
        })
    };
    let mut watching = world.watch(&["machines,secrets", "-o", "json", "--webhook", &url]).await;
    world.server.api().load_values(vec![secret("c3dvcmRmaXNo")]).unwrap();
    let mut printed = watching.line().await;
    world.server.api().load_values(vec![secret("c3dvcmRmaXNoLXR3bw==")]).unwrap();
    let changed = watching.line().await;
    let patch = serde_json::from_str::<Value>(&changed).unwrap()["patch"].clone();
    assert_eq!(patch, json!([{"op": "replace", "path": "/data/password", "value": "[secret]"}]));
    printed.push_str(&changed);
    watching.terminate();
    let (status, said) = watching.ended().await;
    assert!(status.success(), "{said}");
    received.wait_for(|received| !received.is_empty()).await.unwrap();
    let sent = format!("{:?}", received.borrow());
    assert!(sent.contains("password"), "{sent}");
    for text in [printed, sent, said] {
        assert!(!text.contains("c3dvcmRmaXNo") && !text.contains("T0P-S3CR3T"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_with_tls_is_trusted_by_the_systems_roots_alone() {
    let world = World::start().await;
    let (url, certificate, mut received) = receiver_with_tls().await;
    let url = format!("file:{}", world.file("url", &url).display());
    let roots = world.file("roots.pem", &certificate);
    let others = world.file("others.pem", &Certificate::of("localhost").certificate);
    for (roots, trusted) in [(roots, true), (others, false)] {
        let mut command = world.command(&["machines", "--show-initial", "--slack-webhook", &url]);
        command.env("SSL_CERT_FILE", roots);
        let mut watching = Watching::start(command).await;
        let name = format!("trusted-{trusted}");
        world.create_machine(&name);
        while !watching.line().await.contains(&name) {}
        if trusted {
            received
                .wait_for(|received| received.iter().any(|message| message.to_string().contains(&name)))
                .await
                .unwrap();
        }
        watching.terminate();
        let (status, said) = watching.ended().await;
        assert!(status.success(), "{said}");
        assert_eq!(said.contains("TLS: the receiver's certificate isn't accepted"), !trusted, "{said}");
        assert_eq!(said.contains("1 unsent at the end"), !trusted, "{said}");
        assert!(!said.contains("T0P-S3CR3T"), "{said}");
    }
    assert_eq!(received.borrow().len(), 1);
}
