//! Compares the metrics that a server exports with the documented ones.

use std::{collections::BTreeSet, fs};

use app::{App, Config};
use capi_autoscaler_provider::cli::{Cli, Command};
use clap::Parser as _;
use proto::cloud_provider_client::CloudProviderClient;
use service::listen::Shutdown;
use testkit::{Certificate, get};

use super::{documents, first_cells, read};

/// Returns the names of the metrics that a server with these flags exports. It has no API server.
async fn exported_with(flags: &[&str]) -> BTreeSet<String> {
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = dir.path().join("config");
    fs::write(&kubeconfig, sandbox::kubeconfig::kubeconfig("https://127.0.0.1:1")).unwrap();
    let own = ["x", "serve", "--listen=127.0.0.1:0", "--http-listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0"];
    let kubeconfig = format!("--management-kubeconfig={}", kubeconfig.display());
    let flags = own.into_iter().chain([kubeconfig.as_str()]).chain(flags.iter().copied());
    let Command::Serve(args) = Cli::parse_from(flags).command else { panic!("it isn't serve") };
    let config = Config::try_from(*args).unwrap();
    let (shutdown, has_tls) = (Shutdown::new(), config.tls.is_some());
    let server = App::start(config, shutdown.clone()).await.unwrap();
    // The metric of an RPC's answers exists only after its first answer.
    if !has_tls {
        let mut client = CloudProviderClient::connect(format!("http://{}", server.grpc_address())).await.unwrap();
        client.refresh(proto::RefreshRequest {}).await.unwrap_err();
    }
    let (status, text) = get(&server.http_address().to_string(), "/metrics").await;
    assert_eq!(status, 200, "{text}");
    shutdown.request();
    server.finish().await.unwrap();
    let families = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    families.map(|(name, _)| name.to_owned()).collect()
}

/// Returns the metrics that servers export, with TLS and without, and of a fleet, by the names that a scraper sees.
async fn exported() -> BTreeSet<String> {
    let dir = tempfile::tempdir().unwrap();
    let Certificate { certificate, key } = Certificate::of("provider");
    let [certificate, key] = [("tls.crt", certificate), ("tls.key", key)].map(|(name, text)| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    });
    let tls = [format!("--tls-cert-file={certificate}"), format!("--tls-key-file={key}")];
    let tls = [tls[0].as_str(), &tls[1], "--otlp-endpoint=http://127.0.0.1:1"];
    let authority = format!("--tls-client-ca-file={certificate}");
    let fleet = ["--fleet-selector=autoscaler=fleet", "--fleet-trust-domain=prod.example", &authority];
    let mut exported = exported_with(&["--all-clusters"]).await;
    exported.extend(exported_with(&[&tls[..], &["--all-clusters"]].concat()).await);
    exported.extend(exported_with(&[tls, fleet].concat()).await);
    exported
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
