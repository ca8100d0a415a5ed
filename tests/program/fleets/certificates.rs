//! Certificates and sessions that a fleet doesn't take, though its authority has signed the certificate of a Cluster.

use rcgen::date_time_ymd;
use rstest::rstest;
use rustls::{
    HandshakeKind, ServerConfig,
    version::{TLS12, TLS13},
};
use tokio::{io::AsyncWriteExt as _, net::TcpListener};
use tokio_rustls::TlsAcceptor;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_certificate_of_a_cluster_is_refused() {
    let (dir, servers, clients) = (TempDir::new().unwrap(), Authority::new(), Authority::new());
    let address = clusters().await.serve().await;
    let running = Running::start(config(dir.path(), address, &tls(dir.path(), &servers, &clients))).await;
    let expired = clients.of_uris_with(&[STAGE], |params| {
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
    });
    let refused = refusal(connector(&servers, &expired), running.grpc).await;
    assert_eq!(refused, "received fatal alert: CertificateExpired");
    let mut stage = client(&servers, &clients.of_uris(&[STAGE]), running.grpc);
    until_served(&mut stage).await;
    drop(stage);
    running.end().await;
}

/// Starts a server that hands out sessions, under the name of the fleet's. It ends with the test.
async fn server_with_sessions(authority: &Authority) -> SocketAddr {
    let own = authority.of_server();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = builder.with_no_client_auth().with_single_cert(vec![der(&own.certificate)], key(&own.key)).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = acceptor.accept(stream).await.unwrap();
            stream.write_all(&[0; 9]).await.unwrap();
            // The client closes it.
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
    });
    address
}

/// Connects, and reads the beginning of what follows the server's session tickets: a fleet's SETTINGS.
async fn handshake(connector: &TlsConnector, server: SocketAddr) -> HandshakeKind {
    let mut stream = connect(connector.clone(), server).await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    timeout(LIMIT, stream.read_exact(&mut [0; 9])).await.expect("its first bytes").unwrap();
    stream.get_ref().1.handshake_kind().unwrap()
}

/// A session would outlive the certificate, its authority and the service of its Cluster. The client has one to offer,
/// of another server by the fleet's name.
#[rstest]
#[case::tls_1_3(&TLS13)]
#[case::tls_1_2(&TLS12)]
#[tokio::test(flavor = "multi_thread")]
async fn a_session_of_a_cluster_is_never_taken_up_again(#[case] version: &'static SupportedProtocolVersion) {
    let (dir, servers, clients) = (TempDir::new().unwrap(), Authority::new(), Authority::new());
    let address = clusters().await.serve().await;
    let running = Running::start(config(dir.path(), address, &tls(dir.path(), &servers, &clients))).await;
    let other = server_with_sessions(&servers).await;
    let connector = connector_speaking(&[version], &servers, &clients.of_uris(&[STAGE]));
    assert_eq!(handshake(&connector, other).await, HandshakeKind::Full);
    assert_eq!(handshake(&connector, other).await, HandshakeKind::Resumed, "it offers its sessions");
    for _ in 0..3 {
        assert_eq!(handshake(&connector, running.grpc).await, HandshakeKind::Full);
    }
    running.end().await;
}
