//! TLS as clients see it: which clients are accepted or refused, by which names, and what each of many may have.

mod files;
mod handshakes;

use std::{
    error::Error,
    fs,
    net::{SocketAddr, TcpListener},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use axum::{Extension, body::Bytes, routing::post};
use http::Request;
use prometheus_client::registry::Registry;
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    SanType, date_time_ymd,
};
use rstest::rstest;
use rustls::{
    ClientConfig, HandshakeKind, RootCertStore, SupportedProtocolVersion,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    version::{TLS12, TLS13},
};
use tempfile::TempDir;
use testkit::Wait;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinHandle,
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{LIMIT, listener, tcp};
use crate::listen::{
    AllowedClients, AllowedName, Certificates, ClientFiles, Connection, GrpcThread, TlsFiles, TlsMetrics,
    grpc::{GrpcLimits, serve_within},
    standard_services,
    tls::{HandshakeRates, Rate, client_of},
};

/// The interval at which the files are read in these tests.
const PERIOD: Duration = Duration::from_millis(20);
/// A rate that no test reaches, even if a thread comes to take a handshake long after it has looked at the clock.
const BOUNDLESS: Rate = Rate { at_once: 1_000_000, each: Duration::from_millis(1) };
const HOST: &str = "capi-autoscaler-provider";
const NAME: &str = "cluster-autoscaler";
const STAGE: &str = "spiffe://prod/ns/team-a/cluster/stage";
const OTHER: &str = "spiffe://prod/ns/team-a/cluster/other";

fn boundless() -> GrpcLimits {
    at_rates(GrpcLimits::default(), HandshakeRates { stranger: BOUNDLESS, strangers: BOUNDLESS, known: BOUNDLESS })
}

fn at_rates(limits: GrpcLimits, handshakes: HandshakeRates) -> GrpcLimits {
    GrpcLimits { handshakes, ..limits }
}

fn refused(reason: &str) -> String {
    format!("tls_refused_connections_total{{reason=\"{reason}\"}}")
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
        let name = |name: &&str| {
            if name.contains("://") {
                SanType::URI((*name).try_into().unwrap())
            } else {
                SanType::DnsName((*name).try_into().unwrap())
            }
        };
        params.subject_alt_names = names.iter().map(name).collect();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Pair { certificate, key: key.serialize_pem() }
    }
}

impl Pair {
    fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.certificate.as_bytes()).unwrap()
    }
}

fn expired(params: &mut CertificateParams) {
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2021, 1, 1);
}

/// The files of TLS as in a Secret mount: each is a link through a directory link, which is swapped atomically.
struct Mount {
    directory: TempDir,
    versions: u32,
}

impl Mount {
    fn new(server: &Pair, clients: &Authority) -> Self {
        let mut mount = Self { directory: TempDir::new().unwrap(), versions: 0 };
        for name in ["tls.crt", "tls.key", "ca.crt"] {
            symlink(Path::new("..data").join(name), mount.path(name)).unwrap();
        }
        mount.swap([&server.certificate, &server.key, &clients.pem]);
        mount
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Replaces the certificate, the key and the client authority.
    fn swap(&mut self, contents: [&str; 3]) {
        self.versions += 1;
        let version = format!("..version-{}", self.versions);
        fs::create_dir(self.path(&version)).unwrap();
        for (name, content) in ["tls.crt", "tls.key", "ca.crt"].into_iter().zip(contents) {
            fs::write(self.path(&version).join(name), content).unwrap();
        }
        symlink(&version, self.path("..next")).unwrap();
        fs::rename(self.path("..next"), self.path("..data")).unwrap();
    }

    fn files(&self, allowed: Option<AllowedClients>) -> TlsFiles {
        let files = vec![self.path("ca.crt")];
        let clients = allowed.map_or(ClientFiles::Any, |allowed| ClientFiles::Authority { files, allowed });
        TlsFiles { certificate: self.path("tls.crt"), key: self.path("tls.key"), clients }
    }
}

/// A TLS server with its files.
struct Running {
    servers: Authority,
    clients: Authority,
    server: Pair,
    grpc: GrpcThread,
    mount: Mount,
    metrics: Registry,
    shutdown: CancellationToken,
}

impl Running {
    /// Serves all clients of the authority.
    async fn start(limits: GrpcLimits) -> Self {
        Self::allowing(limits, Some(AllowedClients::default())).await
    }

    /// Serves these clients of the authority, or all without one.
    async fn allowing(limits: GrpcLimits, allowed: Option<AllowedClients>) -> Self {
        let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
        Self::on(listener(), servers, clients, limits, allowed).await
    }

    async fn on(
        listener: TcpListener,
        servers: Authority,
        clients: Authority,
        limits: GrpcLimits,
        allowed: Option<AllowedClients>,
    ) -> Self {
        let server = servers.issue(&[HOST], |_| {});
        let mount = Mount::new(&server, &clients);
        let (mut metrics, shutdown) = (Registry::default(), CancellationToken::new());
        let of_tls = TlsMetrics::register(&mut metrics);
        let followed = Certificates::follow_every(PERIOD, mount.files(allowed), of_tls, shutdown.clone()).unwrap();
        let mut routes = Routes::builder();
        standard_services(&mut routes, false).await.unwrap();
        let name = async |Extension(caller): Extension<Connection>| caller.client().name.to_string();
        let routes = Routes::from(routes.routes().into_axum_router().route("/client", post(name)));
        let grpc = serve_within(listener.into(), Some(followed), routes, limits, shutdown.clone(), LIMIT).unwrap();
        Self { servers, clients, server, grpc, mount, metrics, shutdown }
    }

    /// Returns a client with a certificate of these names.
    fn client(&self, names: &[&str]) -> Client {
        Client::new(&self.servers, Some(&self.clients.issue(names, |_| {})))
    }

    fn metric(&self, line: &str) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.metrics).unwrap();
        let value = text.lines().find_map(|found| found.strip_prefix(line));
        value.unwrap_or_else(|| panic!("{line}: {text}")).trim().to_owned()
    }

    async fn until_metric(&self, line: &str, expected: &str) {
        let state = || self.metric(line);
        Wait::new(line).every(PERIOD).showing(&state).condition(|| self.metric(line) == expected).await;
    }

    /// Makes a call on a connection of its own. Returns the name by which the client is called.
    async fn ask(&self, client: &Client) -> Option<String> {
        client.connect(&self.grpc).await.ok()?.name().await
    }

    async fn end(mut self) {
        self.shutdown.cancel();
        timeout(LIMIT, self.grpc.ended()).await.unwrap().unwrap();
    }
}

/// A client that behaves like Go's.
#[derive(Clone)]
struct Client(Arc<ClientConfig>);

/// A connection of a client.
struct Connected {
    calls: h2::client::SendRequest<Bytes>,
    connection: JoinHandle<Result<(), h2::Error>>,
}

impl Client {
    fn new(trusted: &Authority, own: Option<&Pair>) -> Self {
        Self::speaking(&[&TLS13, &TLS12], trusted, own)
    }

    fn speaking(versions: &[&'static SupportedProtocolVersion], trusted: &Authority, own: Option<&Pair>) -> Self {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(trusted.pem.as_bytes()).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
        let builder = builder.with_root_certificates(roots);
        let mut config = match own {
            None => builder.with_no_client_auth(),
            Some(pair) => {
                let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
                builder.with_client_auth_cert(vec![pair.der()], key).unwrap()
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Self(Arc::new(config))
    }

    /// Returns the first message of a handshake.
    fn hello(&self) -> Vec<u8> {
        let name = ServerName::try_from(HOST).unwrap();
        let mut hello = rustls::ClientConnection::new(Arc::clone(&self.0), name).unwrap();
        let mut bytes = Vec::new();
        hello.write_tls(&mut bytes).unwrap();
        bytes
    }

    async fn handshake(&self, grpc: &GrpcThread) -> std::io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(tcp(grpc)).await?;
        TlsConnector::from(Arc::clone(&self.0)).connect(ServerName::try_from(HOST).unwrap(), stream).await
    }

    async fn connect(&self, grpc: &GrpcThread) -> Result<Connected, Box<dyn Error>> {
        let stream = timeout(LIMIT, self.handshake(grpc)).await.unwrap()?;
        let (calls, connection) = h2::client::handshake(stream).await?;
        Ok(Connected { calls, connection: tokio::spawn(connection) })
    }
}

impl Connected {
    /// Returns the name by which the client is called; `None` if it gets no answer.
    async fn name(&self) -> Option<String> {
        let asked = async {
            let mut calls = self.calls.clone().ready().await.ok()?;
            let request = Request::post("https://a/client").body(()).unwrap();
            let mut body = calls.send_request(request, true).ok()?.0.await.ok()?.into_body();
            let name = body.data().await?.ok()?;
            Some(String::from_utf8(name.to_vec()).unwrap())
        };
        timeout(LIMIT, asked).await.unwrap()
    }
}

/// A resumed session would outlive the certificate and its authority.
#[rstest]
#[case::tls_1_3(&TLS13, &["another", "Cluster-Autoscaler"], "Cluster-Autoscaler")]
#[case::tls_1_2(&TLS12, &["Cluster-Autoscaler"], "Cluster-Autoscaler")]
#[case::by_a_uri(&TLS13, &[STAGE], STAGE)]
#[tokio::test]
async fn a_client_of_an_allowed_name_is_served_and_no_session_is_taken_up_again(
    #[case] version: &'static SupportedProtocolVersion,
    #[case] names: &[&str],
    #[case] name: &str,
) {
    let allowed = AllowedClients { names: [NAME, STAGE].map(|name| name.parse().unwrap()).into(), read_only: vec![] };
    let running = Running::allowing(boundless(), Some(allowed)).await;
    let client = Client::speaking(&[version], &running.servers, Some(&running.clients.issue(names, |_| {})));
    assert_eq!(running.ask(&client).await.as_deref(), Some(name));
    for _ in 0..2 {
        let mut stream = client.handshake(&running.grpc).await.unwrap();
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        // The server's SETTINGS follow its session tickets.
        stream.read_exact(&mut [0; 9]).await.unwrap();
        assert_eq!(stream.get_ref().1.handshake_kind(), Some(HandshakeKind::Full));
    }
    running.end().await;
}

#[tokio::test]
async fn without_a_client_authority_any_client_is_served_and_called_by_its_address() {
    let running = Running::allowing(boundless(), None).await;
    let name = running.ask(&Client::new(&running.servers, None)).await.unwrap();
    assert!(name.parse::<SocketAddr>().unwrap().ip().is_loopback(), "{name}");
    running.end().await;
}

fn without_names(params: &mut CertificateParams) {
    params.distinguished_name.push(DnType::CommonName, NAME);
}

/// One of its names may be one that may only read.
fn unreadable_names(params: &mut CertificateParams) {
    let (subject_alternative_name, dns_name_cut_off) = ([2, 5, 29, 17], vec![0x30, 0x03, 0x82, 0x05, b'a']);
    params.custom_extensions.push(CustomExtension::from_oid_content(&subject_alternative_name, dns_name_cut_off));
}

#[rstest]
#[case::no_certificate(|_: &Authority| None, "no_certificate")]
#[case::wrong_authority(|_: &Authority| Some(Authority::new("others").issue(&[NAME], |_| {})), "certificate")]
#[case::expired(|clients: &Authority| Some(clients.issue(&[NAME], expired)), "certificate")]
#[case::unreadable_names(|clients: &Authority| Some(clients.issue(&[], unreadable_names)), "certificate")]
#[case::another_name(|clients: &Authority| Some(clients.issue(&["somebody-else"], |_| {})), "name")]
#[case::no_name(|clients: &Authority| Some(clients.issue(&[], without_names)), "name")]
#[tokio::test]
async fn other_clients_are_refused_and_counted(#[case] own: impl Fn(&Authority) -> Option<Pair>, #[case] reason: &str) {
    let allowed = AllowedClients { names: vec![NAME.parse().unwrap()], read_only: vec![] };
    let running = Running::allowing(boundless(), Some(allowed)).await;
    let own = own(&running.clients);
    assert_eq!(running.ask(&Client::new(&running.servers, own.as_ref())).await, None);
    running.until_metric(&refused(reason), "1").await;
    assert!(running.ask(&running.client(&[NAME])).await.is_some());
    running.end().await;
}

#[tokio::test]
async fn a_client_of_another_protocol_is_refused_and_counted() {
    let running = Running::allowing(boundless(), None).await;
    let mut stream = TcpStream::connect(tcp(&running.grpc)).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    running.until_metric(&refused("protocol"), "1").await;
    let mut without_alpn = Client::new(&running.servers, None);
    Arc::make_mut(&mut without_alpn.0).alpn_protocols.clear();
    assert_eq!(running.ask(&without_alpn).await, None);
    running.until_metric(&refused("protocol"), "2").await;
    running.end().await;
}

#[rstest]
#[case::allowed(&["a", NAME], NAME, false)]
#[case::read_only(&["dashboard"], "dashboard", true)]
#[case::read_only_whatever_else_it_is(&[NAME, "dashboard"], "dashboard", true)]
#[case::any_other(&["somebody"], "somebody", false)]
#[case::without_a_name(&[], "CN=cluster-autoscaler", false)]
fn a_client_is_called_by_the_name_that_lets_it_in(#[case] names: &[&str], #[case] name: &str, #[case] read_only: bool) {
    let [allowed, reads] = [NAME, "dashboard"].map(|name| vec![AllowedName::Dns(name.to_owned())]);
    let pair = Authority::new("clients").issue(names, without_names);
    let client = client_of(&pair.der(), &AllowedClients { names: allowed, read_only: reads }).unwrap();
    assert!(client.name.ends_with(name), "{client:?}");
    assert_eq!(client.is_read_only, read_only);
}

#[rstest]
#[case::one(&[STAGE], Some(STAGE))]
#[case::one_beside_dns_names(&["a.example.com", STAGE, "b.example.com"], Some(STAGE))]
#[case::two(&[STAGE, OTHER], None)]
#[case::the_same_twice(&[STAGE, STAGE], None)]
#[case::dns_names_alone(&["a.example.com"], None)]
#[case::none(&[], None)]
fn a_client_is_identified_by_its_only_uri(#[case] names: &[&str], #[case] expected: Option<&str>) {
    let pair =
        Authority::new("clients").issue(names, |params| params.distinguished_name.push(DnType::CommonName, STAGE));
    let (client, der) = (client_of(&pair.der(), &AllowedClients::default()).unwrap(), pair.der());
    assert_eq!(client.uri.as_deref(), expected);
    let certificate = X509Certificate::from_der(&der).unwrap().1;
    assert_eq!(client.serial.as_deref(), Some(&*certificate.raw_serial_as_string().replace(':', "")));
    let validity = [certificate.validity().not_before, certificate.validity().not_after];
    let seconds = |at: Option<jiff::Timestamp>| at.map(jiff::Timestamp::as_second);
    assert_eq!([client.valid_from, client.until].map(seconds), validity.map(|at| Some(at.timestamp())));
}

#[test]
fn a_name_of_a_certificate_is_kept_up_to_its_bound() {
    let uri = format!("spiffe://prod/{}", "x".repeat(4_000));
    let pair = Authority::new("clients").issue(&[&uri], |_| {});
    let client = client_of(&pair.der(), &AllowedClients::default()).unwrap();
    assert_eq!((&*client.name, client.uri), (&uri[..256], None), "an identity is never cut");
}

/// Headers and windows of a connection aren't counted among the bytes.
#[tokio::test]
async fn one_of_many_clients_has_a_few_connections_and_takes_none_from_others() {
    let running = Running::start(at_rates(GrpcLimits::of_many_clients(), boundless().handshakes)).await;
    let [stage, other] = [STAGE, OTHER].map(|uri| running.client(&[uri]));
    let of_other = other.connect(&running.grpc).await.unwrap();
    assert!(of_other.name().await.is_some());
    let mut its = Vec::new();
    for _ in 0..30 {
        let one = stage.connect(&running.grpc).await.unwrap();
        assert!(one.name().await.is_some());
        its.push(one);
    }
    let open = || its.iter().filter(|one| !one.connection.is_finished()).count();
    Wait::new("the end of the first ones").showing(&|| open().to_string()).condition(|| open() <= 8).await;
    assert!(its[..its.len() - 8].iter().all(|one| one.connection.is_finished()), "those that it uses least");
    assert!(its[its.len() - 1].name().await.is_some() && of_other.name().await.is_some());
    running.end().await;
}
