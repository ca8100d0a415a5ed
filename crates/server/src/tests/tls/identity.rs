//! The identity of a client: its sessions end with its connection, its key may be pinned, and it has a name for the
//! log.

use futures::{StreamExt as _, stream};
use rcgen::CustomExtension;
use rustls::HandshakeKind;
use tokio::net::TcpListener;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::*;
use crate::{
    AllowedClients, AllowedName,
    tls::{Handshakes, accept, client_of},
};

impl Client {
    /// Connects, and reads what the server sends after the handshake.
    async fn handshake(&self, grpc: &GrpcThread) -> HandshakeKind {
        let stream = TcpStream::connect(tcp(grpc)).await.unwrap();
        let name = ServerName::try_from(self.host).unwrap();
        let mut stream = TlsConnector::from(Arc::clone(&self.config)).connect(name, stream).await.unwrap();
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        // The server's SETTINGS follow its session tickets.
        stream.read_exact(&mut [0; 9]).await.unwrap();
        stream.get_ref().1.handshake_kind().unwrap()
    }
}

/// A resumed session would outlive the certificate and its authority.
#[rstest]
#[case::tls_1_3(&TLS13)]
#[case::tls_1_2(&TLS12)]
#[tokio::test]
async fn no_session_is_taken_up_again(#[case] version: &'static SupportedProtocolVersion) {
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let running = Running::start(&servers.issue(&[HOST], |_| {}), Some((&clients, &[]))).await;
    let client = Client::speaking(&[version], &servers, Some(&clients.issue(&["cluster-autoscaler"], |_| {})));
    for _ in 0..3 {
        assert_eq!(client.handshake(&running.grpc).await, HandshakeKind::Full);
    }
    running.end().await;
}

/// One of its names may be one that may only read.
#[tokio::test]
async fn a_client_with_names_that_can_not_be_read_is_refused() {
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let allowed = AllowedClients { read_only: vec!["dashboard".parse().unwrap()], ..AllowedClients::default() };
    let running = Running::allowing(&servers.issue(&[HOST], |_| {}), &[&clients], allowed).await;
    running.ask(&Client::new(&servers, Some(&clients.issue(&[], |_| {})))).await.unwrap();
    let (subject_alternative_name, dns_name_cut_off) = ([2, 5, 29, 17], vec![0x30, 0x03, 0x82, 0x05, b'a']);
    let own = clients.issue(&[], |params| {
        let names = CustomExtension::from_oid_content(&subject_alternative_name, dns_name_cut_off);
        params.custom_extensions.push(names);
    });
    assert!(running.ask(&Client::new(&servers, Some(&own))).await.is_err());
    running.until_metric("tls_refused_connections_total{reason=\"certificate\"}", "1").await;
    running.end().await;
}

fn der(pair: &Pair) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap()
}

#[rstest]
#[case::allowed(&["a", "cluster-autoscaler"], "cluster-autoscaler", false)]
#[case::read_only(&["dashboard"], "dashboard", true)]
#[case::read_only_whatever_else_it_is(&["cluster-autoscaler", "dashboard"], "dashboard", true)]
#[case::any_other(&["somebody"], "somebody", false)]
#[case::without_a_name(&[], "CN=cluster-autoscaler", false)]
fn a_client_is_called_by_the_name_that_lets_it_in(#[case] names: &[&str], #[case] name: &str, #[case] read_only: bool) {
    let allowed = AllowedClients {
        names: vec![AllowedName::Dns("cluster-autoscaler".to_owned())],
        read_only: vec![AllowedName::Dns("dashboard".to_owned())],
    };
    let pair = Authority::new("clients").issue(names, |params| {
        params.distinguished_name.push(DnType::CommonName, "cluster-autoscaler");
    });
    let client = client_of(&der(&pair), &allowed).unwrap();
    assert!(client.name.ends_with(name), "{client:?}");
    assert_eq!(client.is_read_only, read_only);
}

const STAGE: &str = "spiffe://prod/ns/team-a/cluster/stage";

#[rstest]
#[case::one(&[STAGE], Some(STAGE))]
#[case::one_beside_dns_names(&["a.example.com", STAGE, "b.example.com"], Some(STAGE))]
#[case::two(&[STAGE, "spiffe://prod/ns/team-a/cluster/other"], None)]
#[case::the_same_twice(&[STAGE, STAGE], None)]
#[case::dns_names_alone(&["a.example.com"], None)]
#[case::none(&[], None)]
fn a_client_is_identified_by_its_only_uri(#[case] names: &[&str], #[case] expected: Option<&str>) {
    let pair =
        Authority::new("clients").issue(names, |params| params.distinguished_name.push(DnType::CommonName, STAGE));
    let client = client_of(&der(&pair), &AllowedClients::default()).unwrap();
    assert_eq!(client.uri.as_deref(), expected);
    let der = der(&pair);
    let certificate = X509Certificate::from_der(&der).unwrap().1;
    let serial = certificate.raw_serial_as_string().replace(':', "");
    assert_eq!(client.serial.as_deref(), Some(&*serial));
    assert_eq!(client.valid_from.map(jiff::Timestamp::as_second), Some(certificate.validity().not_before.timestamp()));
    let not_after = certificate.validity().not_after.timestamp();
    assert_eq!(client.until.map(jiff::Timestamp::as_second), Some(not_after));
}

#[test]
fn a_name_of_a_certificate_is_kept_up_to_its_bound() {
    let uri = format!("spiffe://prod/{}", "x".repeat(4_000));
    let pair = Authority::new("clients").issue(&[&uri], |_| {});
    let client = client_of(&der(&pair), &AllowedClients::default()).unwrap();
    assert_eq!((&*client.name, client.uri), (&uri[..256], None), "an identity is never cut");
}

#[tokio::test]
async fn a_client_without_a_certificate_has_its_address_as_name_on_tls_too() {
    let servers = Authority::new("servers");
    let running = Running::start(&servers.issue(&[HOST], |_| {}), None).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let address = stream.local_addr().unwrap();
    let incoming = stream::once(async move { Ok(listener.accept().await?.0) }).boxed();
    let mut accepted =
        accept(incoming, running.certificates.clone(), Arc::new(Handshakes::new(HandshakeRates::default())));
    let connector = TlsConnector::from(Client::new(&servers, None).config);
    let (accepted, connected) =
        tokio::join!(accepted.next(), connector.connect(ServerName::try_from(HOST).unwrap(), stream));
    connected.unwrap();
    assert_eq!(accepted.unwrap().unwrap().1.client.name, address.to_string());
    running.end().await;
}
