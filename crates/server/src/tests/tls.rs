//! TLS as clients see it: which clients are accepted or refused, and new files that come into force without a failed
//! call.

mod bytes;
mod identity;
mod rate;
mod rotation;
mod silent;

use std::{
    fs,
    io::ErrorKind,
    net::{SocketAddr, TcpListener},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use prometheus_client::registry::Registry;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType, date_time_ymd,
};
use rstest::rstest;
use rustls::{
    ClientConfig, RootCertStore, SupportedProtocolVersion,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    version::{TLS12, TLS13},
};
use tempfile::TempDir;
use testkit::Wait;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    task::yield_now,
    time::timeout,
};
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status, service::Routes, transport::Endpoint};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tower::service_fn;

use super::{LIMIT, listener, tcp};
use crate::{
    AllowedClients, Certificates, ClientFiles, GrpcThread, TlsFiles, TlsMetrics,
    grpc_connections::GrpcLimits,
    grpc_runtime::serve_within,
    handshake_rate::{HandshakeRates, Rate},
    standard_services,
};

/// The interval at which the files are read in these tests.
const PERIOD: Duration = Duration::from_millis(20);
/// A rate that no test reaches, even if a thread comes to take a handshake long after it has looked at the clock.
const BOUNDLESS: Rate = Rate { at_once: 1_000_000, each: Duration::from_millis(1) };
const HOST: &str = "capi-autoscaler-provider";

fn boundless() -> HandshakeRates {
    HandshakeRates { stranger: BOUNDLESS, strangers: BOUNDLESS, known: BOUNDLESS }
}

/// Connects from an address of the loopback network.
async fn connect(server: SocketAddr, address: u8) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, address], 0).into()).unwrap();
    socket.connect(server).await.unwrap()
}

/// Returns true if the server has closed the connection.
fn is_closed(stream: &TcpStream) -> bool {
    match stream.try_read(&mut [0]) {
        Ok(read) => read == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

/// A certificate authority.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM.
#[derive(Clone)]
struct Pair {
    certificate: String,
    key: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    fn issue(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Pair {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.subject_alt_names = names
            .iter()
            .map(|name| {
                let name = *name;
                if name.contains("://") {
                    SanType::URI(name.try_into().unwrap())
                } else {
                    SanType::DnsName(name.try_into().unwrap())
                }
            })
            .collect();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Pair { certificate, key: key.serialize_pem() }
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap()).unwrap();
        roots
    }
}

fn expired(params: &mut CertificateParams) {
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2021, 1, 1);
}

/// Files as in a Secret mount: each is a link through a directory link, which is swapped atomically.
struct Mount {
    directory: TempDir,
    versions: u32,
}

impl Mount {
    fn new(files: &[(&str, &str)]) -> Self {
        let mut mount = Self { directory: TempDir::new().unwrap(), versions: 0 };
        for (name, _) in files {
            symlink(Path::new("..data").join(name), mount.path(name)).unwrap();
        }
        mount.swap(files);
        mount
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn swap(&mut self, files: &[(&str, &str)]) {
        self.versions += 1;
        let version = format!("..version-{}", self.versions);
        fs::create_dir(self.path(&version)).unwrap();
        for (name, content) in files {
            fs::write(self.path(&version).join(name), content).unwrap();
        }
        symlink(&version, self.path("..next")).unwrap();
        fs::rename(self.path("..next"), self.path("..data")).unwrap();
    }
}

/// A TLS server with its files.
struct Running {
    grpc: GrpcThread,
    certificates: Certificates,
    mount: Mount,
    metrics: Registry,
    shutdown: CancellationToken,
}

impl Running {
    async fn start(server: &Pair, clients: Option<(&Authority, &[&str])>) -> Self {
        let Some((authority, names)) = clients else { return Self::serving(server, &[], None).await };
        let names = names.iter().map(|name| name.parse().unwrap()).collect();
        Self::allowing(server, &[authority], AllowedClients { names, ..AllowedClients::default() }).await
    }

    /// Starts a server that accepts these clients of these authorities, each of which has a file of its own.
    async fn allowing(server: &Pair, authorities: &[&Authority], allowed: AllowedClients) -> Self {
        Self::serving(server, authorities, Some(allowed)).await
    }

    async fn serving(server: &Pair, authorities: &[&Authority], allowed: Option<AllowedClients>) -> Self {
        Self::serving_at(boundless(), server, authorities, allowed).await
    }

    async fn serving_at(
        handshakes: HandshakeRates,
        server: &Pair,
        authorities: &[&Authority],
        allowed: Option<AllowedClients>,
    ) -> Self {
        let limits = GrpcLimits { handshakes, ..GrpcLimits::default() };
        Self::serving_within(limits, server, authorities, allowed).await
    }

    async fn serving_within(
        limits: GrpcLimits,
        server: &Pair,
        authorities: &[&Authority],
        allowed: Option<AllowedClients>,
    ) -> Self {
        Self::serving_on(listener(), limits, server, authorities, allowed).await
    }

    async fn serving_on(
        listener: TcpListener,
        limits: GrpcLimits,
        server: &Pair,
        authorities: &[&Authority],
        allowed: Option<AllowedClients>,
    ) -> Self {
        let first = authorities.first().map_or("", |authority| &authority.pem);
        let second = authorities.get(1).map_or("", |authority| &authority.pem);
        let mount = Mount::new(&[
            ("tls.crt", &server.certificate),
            ("tls.key", &server.key),
            ("ca.crt", first),
            ("second.crt", second),
        ]);
        let files = ["ca.crt", "second.crt"].into_iter().take(authorities.len()).map(|name| mount.path(name));
        let files = files.collect();
        let clients = allowed.map_or(ClientFiles::Any, |allowed| ClientFiles::Authority { files, allowed });
        let files = TlsFiles { certificate: mount.path("tls.crt"), key: mount.path("tls.key"), clients };
        let (mut metrics, shutdown) = (Registry::default(), CancellationToken::new());
        let certificates =
            Certificates::follow_every(PERIOD, files, TlsMetrics::register(&mut metrics), shutdown.clone()).unwrap();
        let mut routes = Routes::builder();
        standard_services(&mut routes, false).await.unwrap();
        let followed = Some(certificates.clone());
        let grpc = serve_within(listener.into(), followed, routes.routes(), limits, shutdown.clone(), LIMIT).unwrap();
        Self { grpc, certificates, mount, metrics, shutdown }
    }

    fn metric(&self, line: &str) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.metrics).unwrap();
        text.lines()
            .find_map(|found| found.strip_prefix(line))
            .unwrap_or_else(|| panic!("{line}: {text}"))
            .trim()
            .to_owned()
    }

    async fn until_metric(&self, line: &str, expected: &str) {
        let state = || self.metric(line);
        Wait::new(line).every(PERIOD).showing(&state).condition(|| self.metric(line) == expected).await;
    }

    async fn ask(&self, client: &Client) -> Result<(), Status> {
        client.ask(&self.grpc).await
    }

    async fn end(mut self) {
        self.shutdown.cancel();
        timeout(LIMIT, self.grpc.ended()).await.unwrap().unwrap();
        timeout(LIMIT, async {
            while !self.grpc.is_finished() {
                yield_now().await;
            }
        })
        .await
        .unwrap();
    }
}

/// A client that behaves like Go's: it verifies the host of `address`.
#[derive(Clone)]
struct Client {
    config: Arc<ClientConfig>,
    host: &'static str,
}

impl Client {
    fn new(trusted: &Authority, own: Option<&Pair>) -> Self {
        Self::speaking(&[&TLS13, &TLS12], trusted, own)
    }

    fn speaking(versions: &[&'static SupportedProtocolVersion], trusted: &Authority, own: Option<&Pair>) -> Self {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
        let builder = builder.with_root_certificates(trusted.roots());
        let mut config = match own {
            None => builder.with_no_client_auth(),
            Some(pair) => builder
                .with_client_auth_cert(
                    vec![CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap()],
                    PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap(),
                )
                .unwrap(),
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Self { config: Arc::new(config), host: HOST }
    }

    /// Returns the first message of a handshake.
    fn hello(&self) -> Vec<u8> {
        let name = ServerName::try_from(self.host).unwrap();
        let mut hello = rustls::ClientConnection::new(Arc::clone(&self.config), name).unwrap();
        let mut bytes = Vec::new();
        hello.write_tls(&mut bytes).unwrap();
        bytes
    }

    /// Makes a call on a connection of its own.
    async fn ask(&self, grpc: &GrpcThread) -> Result<(), Status> {
        let (config, host, address) = (Arc::clone(&self.config), self.host, tcp(grpc));
        let connector = service_fn(move |_| {
            let connector = TlsConnector::from(Arc::clone(&config));
            async move {
                let stream = TcpStream::connect(address).await?;
                let stream = connector.connect(ServerName::try_from(host).unwrap(), stream).await?;
                Ok::<_, std::io::Error>(hyper_util::rt::TokioIo::new(stream))
            }
        });
        let channel = Endpoint::from_static("http://provider").connect_with_connector_lazy(connector);
        let mut client = HealthClient::new(channel);
        let asked = timeout(LIMIT, client.check(HealthCheckRequest { service: String::new() }));
        asked.await.expect("an answer or an error").map(drop)
    }
}

#[rstest]
#[case::tls_1_3(&TLS13)]
#[case::tls_1_2(&TLS12)]
#[tokio::test]
async fn a_client_with_a_certificate_is_served(#[case] version: &'static SupportedProtocolVersion) {
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let running = Running::start(&servers.issue(&[HOST], |_| {}), Some((&clients, &["cluster-autoscaler"]))).await;
    let own = clients.issue(&["Cluster-Autoscaler"], |_| {});
    running.ask(&Client::speaking(&[version], &servers, Some(&own))).await.unwrap();
    running.end().await;
}

#[tokio::test]
async fn a_uri_is_a_name_too() {
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let running = Running::start(&servers.issue(&[HOST], |_| {}), Some((&clients, &["spiffe://prod/ca"]))).await;
    running.ask(&Client::new(&servers, Some(&clients.issue(&["spiffe://prod/ca"], |_| {})))).await.unwrap();
    running.end().await;
}

#[tokio::test]
async fn without_a_client_authority_any_client_is_served() {
    let servers = Authority::new("servers");
    let running = Running::start(&servers.issue(&[HOST], |_| {}), None).await;
    running.ask(&Client::new(&servers, None)).await.unwrap();
    running.end().await;
}

/// The defect of a client.
enum Wrong {
    NoCertificate,
    Authority,
    Expired,
    Name,
    NoName,
}

#[rstest]
#[case::no_certificate(Wrong::NoCertificate, "no_certificate")]
#[case::wrong_authority(Wrong::Authority, "certificate")]
#[case::expired(Wrong::Expired, "certificate")]
#[case::another_name(Wrong::Name, "name")]
#[case::no_name(Wrong::NoName, "name")]
#[tokio::test]
async fn other_clients_are_refused_and_counted(#[case] wrong: Wrong, #[case] reason: &str) {
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let running = Running::start(&servers.issue(&[HOST], |_| {}), Some((&clients, &["cluster-autoscaler"]))).await;
    let own = match wrong {
        Wrong::NoCertificate => None,
        Wrong::Authority => Some(Authority::new("others").issue(&["cluster-autoscaler"], |_| {})),
        Wrong::Expired => Some(clients.issue(&["cluster-autoscaler"], expired)),
        Wrong::Name => Some(clients.issue(&["somebody-else"], |_| {})),
        Wrong::NoName => Some(clients.issue(&[], |params| {
            params.distinguished_name.push(DnType::CommonName, "cluster-autoscaler");
        })),
    };
    assert!(running.ask(&Client::new(&servers, own.as_ref())).await.is_err());
    running.until_metric(&format!("tls_refused_connections_total{{reason=\"{reason}\"}}"), "1").await;
    running.ask(&Client::new(&servers, Some(&clients.issue(&["cluster-autoscaler"], |_| {})))).await.unwrap();
    running.end().await;
}

/// The client verifies the server's authority and the host of `address`.
#[rstest]
#[case::wrong_authority(false, HOST)]
#[case::wrong_name(true, "another-host")]
#[tokio::test]
async fn a_client_refuses_a_server_it_can_not_verify(#[case] trusts: bool, #[case] host: &'static str) {
    let (servers, others) = (Authority::new("servers"), Authority::new("others"));
    let running = Running::start(&servers.issue(&[HOST], |_| {}), None).await;
    let client = Client::new(if trusts { &servers } else { &others }, None);
    let refused = running.ask(&Client { host, ..client }).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    running.end().await;
}

/// A ClientHello of TLS 1.1, which rustls can't send. The answer is a fatal alert: protocol_version.
#[tokio::test]
async fn tls_1_1_is_refused() {
    let servers = Authority::new("servers");
    let running = Running::start(&servers.issue(&[HOST], |_| {}), None).await;
    let mut hello = vec![0x03, 0x02];
    hello.extend([7; 32]);
    // No session; TLS_RSA_WITH_AES_128_CBC_SHA; no compression.
    hello.extend([0, 0, 2, 0x00, 0x2f, 1, 0]);
    let mut handshake = vec![1, 0, 0, u8::try_from(hello.len()).unwrap()];
    handshake.extend(hello);
    let mut record = vec![22, 0x03, 0x01, 0, u8::try_from(handshake.len()).unwrap()];
    record.extend(handshake);

    let mut stream = TcpStream::connect(tcp(&running.grpc)).await.unwrap();
    stream.write_all(&record).await.unwrap();
    let mut answer = Vec::new();
    timeout(LIMIT, stream.read_to_end(&mut answer)).await.unwrap().unwrap();
    let (alert, fatal) = (21, 2);
    assert_eq!((answer[0], answer[5]), (alert, fatal), "{answer:?}");
    running.until_metric("tls_refused_connections_total{reason=\"protocol\"}", "1").await;
    running.end().await;
}
