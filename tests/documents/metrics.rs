//! Compares the metrics that a server exports with the documented ones.

use std::{collections::BTreeSet, fs, net::SocketAddr};

use app::App;
use proto::cloud_provider_client::CloudProviderClient;
use service::listen::Shutdown;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::{documents, first_cells, offline, offline_server, read};
use testkit::Certificate;

/// Returns the metrics that servers export, with TLS and without, and of a fleet, by the names that a scraper sees.
async fn exported() -> BTreeSet<String> {
    let dir = tempfile::tempdir().unwrap();
    let Certificate { certificate, key } = Certificate::of("provider");
    let (certificate_file, key_file) = (dir.path().join("tls.crt"), dir.path().join("tls.key"));
    fs::write(&certificate_file, certificate).unwrap();
    fs::write(&key_file, key).unwrap();
    let tls =
        [format!("--tls-cert-file={}", certificate_file.display()), format!("--tls-key-file={}", key_file.display())];
    let more = tls.iter().map(String::as_str).chain(["--otlp-endpoint=http://127.0.0.1:1"]);
    let tls: Vec<_> = more.collect();
    let authority = format!("--tls-client-ca-file={}", certificate_file.display());
    let of_fleet = ["--fleet-selector=autoscaler=fleet", "--fleet-trust-domain=prod.example", &*authority];
    let of_fleet: Vec<_> = tls.iter().copied().chain(of_fleet).collect();
    let one = exported_with(&[]).await.into_iter().chain(exported_with(&tls).await);
    one.chain(exported_of_fleet(&of_fleet).await).collect()
}

async fn exported_of_fleet(flags: &[&str]) -> BTreeSet<String> {
    let (_files, config) = offline(flags);
    let shutdown = Shutdown::new();
    let server = App::start(config, shutdown.clone()).await.unwrap();
    let text = scrape(server.http_address()).await;
    shutdown.request();
    server.finish().await.unwrap();
    families(&text)
}

/// Returns the names of the families in an exposition.
fn families(text: &str) -> BTreeSet<String> {
    let families = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    families.map(|(name, _)| name.to_owned()).collect()
}

async fn exported_with(tls: &[&str]) -> BTreeSet<String> {
    let (server, shutdown) = offline_server(tls).await;

    // The metric of an RPC's answers exists only after its first answer.
    if tls.is_empty() {
        let mut client = CloudProviderClient::connect(format!("http://{}", server.grpc_address())).await.unwrap();
        client.refresh(proto::RefreshRequest {}).await.unwrap_err();
    }

    let text = scrape(server.http_address()).await;
    shutdown.request();
    server.finish().await.unwrap();
    families(&text)
}

async fn scrape(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_is_documented_and_every_documented_metric_is_exported() {
    let document = read("docs/reference/metrics.md");
    let exported = exported().await;
    let metrics = first_cells(&document).into_iter().filter(|name| name.starts_with("capi_autoscaler_provider_"));
    assert_eq!(metrics.collect::<BTreeSet<_>>(), exported);

    let all = documents().into_iter().map(|path| fs::read_to_string(path).unwrap()).collect::<String>();
    let word = |c: char| !c.is_ascii_alphanumeric() && c != '_';
    let mentioned = all.split(word).filter(|name| name.starts_with("capi_autoscaler_provider_"));
    for name in mentioned {
        assert!(exported.contains(name), "{name} is mentioned and not exported");
    }
}
