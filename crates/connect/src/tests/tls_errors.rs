//! Tests of the texts for connections that TLS breaks, on a server of rustls.

use std::{
    io::{Read, Write},
    net::TcpListener,
    sync::Arc,
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use futures::AsyncReadExt;
use kube::Config;
use rstest::rstest;
use rustls::{
    RootCertStore, ServerConfig, ServerConnection, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use testkit::Certificate;

use crate::{Policy, Proxies, cause};

/// A server that ends each connection in the middle of its first answer, without the alert that TLS has for it.
#[derive(Clone, Copy)]
enum Server {
    Plain,
    Tls,
    /// It asks for a client's certificate.
    Mutual,
}

/// Starts a server, and returns its port.
fn serve(server: Server, own: &Certificate) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (chain, key) = (vec![der(own)], PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap());
    let builder = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let builder = match server {
        Server::Plain | Server::Tls => builder.with_no_client_auth(),
        Server::Mutual => {
            let mut authorities = RootCertStore::empty();
            authorities.add(der(own)).unwrap();
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let config = Arc::new(builder.with_single_cert(chain, key).unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{";
            let mut request = [0; 4096];
            if let Server::Plain = server {
                let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
                let _ = stream.read(&mut request);
                continue;
            }
            let mut tls = StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), stream);
            if tls.read(&mut request).is_ok_and(|read| read > 0) {
                tls.write_all(answer).unwrap();
            }
        }
    });
    port
}

fn der(certificate: &Certificate) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(certificate.certificate.as_bytes()).unwrap()
}

fn expired() -> Certificate {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Certificate::valid_until("localhost", now.saturating_sub(Duration::from_secs(86_400)))
}

/// Returns the text of a request's failure, or of its answer's.
async fn failure(config: Config) -> String {
    let client = Policy::WATCHES.client(config, Proxies::default()).unwrap();
    let request = http::Request::get("/api/v1/nodes").body(Vec::new()).unwrap();
    match client.request_stream(request).await {
        Err(error) => cause(&error),
        Ok(answer) => {
            let mut text = Vec::new();
            let error = std::pin::pin!(answer).read_to_end(&mut text).await.unwrap_err();
            crate::error::chain(&error)
        }
    }
}

#[rstest]
#[case::cut(Server::Tls, Certificate::of("localhost"), true, "the server closed the connection")]
#[case::a_foreign_authority(
    Server::Tls,
    Certificate::of("localhost"),
    false,
    "the server's certificate is signed by an authority that isn't in the kubeconfig"
)]
#[case::expired(Server::Tls, expired(), true, "the server's certificate has expired")]
#[case::another_name(
    Server::Tls,
    Certificate::of("a.example"),
    true,
    "the server's certificate isn't for localhost but for a.example"
)]
#[case::no_client_certificate(
    Server::Mutual,
    Certificate::of("localhost"),
    true,
    "the server doesn't accept this program's client certificate (CertificateRequired)"
)]
#[case::no_tls(Server::Plain, Certificate::of("localhost"), true, "the server doesn't speak TLS on this port")]
#[tokio::test]
async fn a_connection_that_tls_breaks_is_explained_in_plain_words(
    #[case] server: Server,
    #[case] own: Certificate,
    #[case] trusted: bool,
    #[case] expected: &str,
) {
    let port = serve(server, &own);
    let mut config = Config::new(format!("https://localhost:{port}").parse().unwrap());
    let authority = if trusted { own } else { Certificate::of("other") };
    config.root_cert = Some(vec![der(&authority).to_vec()]);
    let said = failure(config).await;
    assert!(said.ends_with(expected), "{said}");
    assert!(!said.contains("rustls") && !said.contains("peer"), "{said}");
}
