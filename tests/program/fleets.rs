//! A fleet as its autoscalers meet it: over TLS, by certificates that name their Clusters.

use std::{fs, io, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use app::{App, Config};
use capi_autoscaler_provider::cli::{Cli, Command};
use clap::Parser as _;
use cluster::fake::{FakeApi, NAMESPACE, scalable};
use hyper_util::rt::TokioIo;
use proto::cloud_provider_client::CloudProviderClient;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};
use serde_json::json;
use service::listen::{GrpcAddress, Shutdown};
use tempfile::TempDir;
use tokio::{io::AsyncReadExt as _, net::TcpStream, time::timeout};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tonic::{
    Code, Status,
    transport::{Channel, Endpoint},
};
use tower::service_fn;

const HOST: &str = "capi-autoscaler-provider";
const LIMIT: Duration = Duration::from_secs(30);
const STAGE: &str = "spiffe://prod.example/ns/team-a/cluster/stage";
const OTHER: &str = "spiffe://prod.example/ns/team-a/cluster/other";

/// A certificate authority.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM.
struct Pair {
    certificate: String,
    key: String,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    fn issue(&self, names: Vec<SanType>) -> Pair {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.subject_alt_names = names;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Pair { certificate, key: key.serialize_pem() }
    }

    fn of_uris(&self, uris: &[&str]) -> Pair {
        self.issue(uris.iter().map(|uri| SanType::URI((*uri).try_into().unwrap())).collect())
    }

    fn of_server(&self) -> Pair {
        self.issue(vec![SanType::DnsName(HOST.try_into().unwrap())])
    }
}

fn der(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}

fn key(pem: &str) -> PrivateKeyDer<'static> {
    PrivateKeyDer::from_pem_slice(pem.as_bytes()).unwrap()
}

/// Returns the TLS of a client with this certificate, of servers that `authority` has certified.
fn connector(authority: &Authority, own: &Pair) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(der(&authority.pem)).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let builder = builder.with_root_certificates(roots);
    let mut config = builder.with_client_auth_cert(vec![der(&own.certificate)], key(&own.key)).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    TlsConnector::from(Arc::new(config))
}

async fn connect(connector: TlsConnector, server: SocketAddr) -> io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(server).await?;
    connector.connect(ServerName::try_from(HOST).unwrap(), stream).await
}

/// Returns the error by which a server ends a connection. A client's handshake ends before the server judges its
/// certificate, so a call could fail in several ways: the alert is read without one.
async fn refusal(connector: TlsConnector, server: SocketAddr) -> String {
    let read = async { connect(connector, server).await?.read(&mut [0]).await };
    timeout(LIMIT, read).await.expect("the end of the connection").unwrap_err().to_string()
}

/// Returns a client of the server that `authority` has certified.
fn client(authority: &Authority, own: &Pair, server: SocketAddr) -> CloudProviderClient<Channel> {
    let connector = connector(authority, own);
    let connect = service_fn(move |_| {
        let connector = connector.clone();
        async move { Ok::<_, io::Error>(TokioIo::new(connect(connector, server).await?)) }
    });
    CloudProviderClient::new(Endpoint::from_static("http://provider").connect_with_connector_lazy(connect))
}

/// Returns an API with the Clusters `team-a/stage` and `team-a/other`, which are selected, and their workload clusters.
async fn clusters() -> FakeApi {
    let api = FakeApi::with_capi();
    for name in ["stage", "other"] {
        api.put("clusters", name, &json!({"metadata": {"labels": {"autoscaler": "fleet"}}}));
        let group = scalable(&json!({"spec": {"clusterName": name}}));
        api.put("machinedeployments", &format!("{name}-workers"), &group);
        api.put_kubeconfig(NAMESPACE, name, FakeApi::default().serve().await);
    }
    api
}

/// Returns the configuration of a fleet whose files are in this directory; `more` are further flags.
fn config(dir: &Path, api: SocketAddr, more: &[String]) -> Config {
    let kubeconfig = dir.join("kubeconfig");
    fs::write(&kubeconfig, sandbox::kubeconfig::kubeconfig(&format!("http://{api}"))).unwrap();
    let kubeconfig = format!("--management-kubeconfig={}", kubeconfig.display());
    let flags = ["x", "serve", "--fleet-selector=autoscaler=fleet", "--fleet-trust-domain=prod.example"];
    let listeners = ["--listen=127.0.0.1:0", "--http-listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--no-events"];
    let flags = flags.into_iter().chain(listeners).chain([&*kubeconfig]).chain(more.iter().map(String::as_str));
    let Command::Serve(args) = Cli::parse_from(flags).command else { panic!("it isn't serve") };
    Config::try_from(*args).unwrap()
}

/// Writes the files of TLS, and returns their flags.
fn tls(dir: &Path, servers: &Authority, clients: &Authority) -> Vec<String> {
    let server = servers.of_server();
    let files = [("cert", &server.certificate), ("key", &server.key), ("client-ca", &clients.pem)];
    let flag = |(name, content): (&str, &String)| {
        fs::write(dir.join(name), content).unwrap();
        format!("--tls-{name}-file={}", dir.join(name).display())
    };
    files.into_iter().map(flag).collect()
}

async fn refresh(client: &mut CloudProviderClient<Channel>) -> Result<(), Status> {
    timeout(LIMIT, client.refresh(proto::RefreshRequest {})).await.expect("an answer or an error").map(drop)
}

/// Waits until a Cluster is in sync: Refresh fails with UNAVAILABLE before, as Cluster Autoscaler meets it too.
async fn until_served(client: &mut CloudProviderClient<Channel>) {
    let began = std::time::Instant::now();
    while let Err(status) = refresh(client).await {
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        assert!(began.elapsed() < LIMIT, "{status}");
    }
}

/// A running fleet.
struct Running {
    app: App,
    shutdown: Shutdown,
    grpc: SocketAddr,
}

impl Running {
    async fn start(config: Config) -> Self {
        let shutdown = Shutdown::new();
        let app = App::start(config, shutdown.clone()).await.unwrap();
        let GrpcAddress::Tcp(grpc) = app.grpc_address().clone() else { panic!("it isn't on TCP") };
        Self { app, shutdown, grpc }
    }

    async fn end(self) {
        self.shutdown.request();
        timeout(LIMIT, self.app.finish()).await.unwrap().unwrap();
    }
}

async fn groups(client: &mut CloudProviderClient<Channel>) -> Vec<String> {
    let groups = client.node_groups(proto::NodeGroupsRequest {}).await.unwrap().into_inner().node_groups;
    groups.into_iter().map(|group| group.id).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_names_the_cluster_whose_groups_its_owner_has() {
    let (dir, servers, clients) = (TempDir::new().unwrap(), Authority::new(), Authority::new());
    let api = clusters().await;
    let address = api.serve().await;
    let running = Running::start(config(dir.path(), address, &tls(dir.path(), &servers, &clients))).await;
    let grpc = running.grpc;
    let client_of = |uris: &[&str]| client(&servers, &clients.of_uris(uris), grpc);

    for (uri, group) in
        [(STAGE, "MachineDeployment/team-a/stage-workers"), (OTHER, "MachineDeployment/team-a/other-workers")]
    {
        let mut client = client_of(&[uri]);
        until_served(&mut client).await;
        assert_eq!(groups(&mut client).await, [group]);
    }
    for uris in [&[STAGE, OTHER] as &[&str], &[], &["spiffe://test.example/ns/team-a/cluster/stage"]] {
        let refused = refresh(&mut client_of(uris)).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{uris:?}: {refused}");
    }
    let foreign = connector(&servers, &Authority::new().of_uris(&[STAGE]));
    // Both authorities have one name, so that the signature decides.
    assert_eq!(refusal(foreign, grpc).await, "received fatal alert: DecryptError");

    // A connection that is open isn't trusted for longer than its Cluster is opted in.
    let mut stage = client_of(&[STAGE]);
    refresh(&mut stage).await.unwrap();
    api.put("clusters", "stage", &json!({}));
    let mut other = client_of(&[OTHER]);
    let began = std::time::Instant::now();
    while refresh(&mut stage).await.is_ok() {
        assert!(began.elapsed() < LIMIT, "it is still served");
    }
    assert_eq!(refresh(&mut stage).await.unwrap_err().code(), Code::PermissionDenied);
    refresh(&mut other).await.unwrap();
    drop((stage, other));
    running.end().await;
}

/// A configuration that another program makes by hand is checked as the flags are.
#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_is_never_served_to_clients_without_certificates() {
    let (dir, servers, clients) = (TempDir::new().unwrap(), Authority::new(), Authority::new());
    let address = FakeApi::with_capi().serve().await;
    let flags = tls(dir.path(), &servers, &clients);
    let socket = GrpcAddress::Unix(dir.path().join("grpc.sock"));
    for without in ["TLS", "an authority", "TCP"] {
        let mut config = config(dir.path(), address, &flags);
        match without {
            "TLS" => config.tls = None,
            "an authority" => config.tls.as_mut().unwrap().clients = service::listen::ClientFiles::Any,
            _ => config.listen = socket.clone(),
        }
        let started = App::start(config, Shutdown::new()).await;
        let error = started.err().unwrap().to_string();
        assert!(
            error.starts_with("a fleet is served over TLS to clients with certificates only"),
            "{without}: {error}"
        );
    }
    assert!(!dir.path().join("grpc.sock").exists());
}
