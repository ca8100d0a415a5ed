//! A fleet whose configuration another program makes by hand is checked as the flags are.

use app::{App, Config};
use capi_autoscaler_provider::cli::{Cli, Command};
use clap::Parser as _;
use service::listen::{ClientFiles, GrpcAddress, Shutdown};

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_is_never_served_to_clients_without_certificates() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("grpc.sock");
    // It is refused before a file is read.
    let flags = [
        "x",
        "serve",
        "--fleet-selector=autoscaler=fleet",
        "--fleet-trust-domain=prod.example",
        "--listen=127.0.0.1:0",
        "--http-listen=127.0.0.1:0",
        "--admin-listen=127.0.0.1:0",
        "--tls-cert-file=/no/tls.crt",
        "--tls-key-file=/no/tls.key",
        "--tls-client-ca-file=/no/ca.crt",
    ];
    for without in ["TLS", "an authority", "TCP"] {
        let Command::Serve(args) = Cli::parse_from(flags).command else { panic!("it isn't serve") };
        let mut config = Config::try_from(*args).unwrap();
        match without {
            "TLS" => config.tls = None,
            "an authority" => config.tls.as_mut().unwrap().clients = ClientFiles::Any,
            _ => config.listen = GrpcAddress::Unix(socket.clone()),
        }
        let error = App::start(config, Shutdown::new()).await.err().unwrap().to_string();
        assert!(
            error.starts_with("a fleet is served over TLS to clients with certificates only"),
            "{without}: {error}"
        );
    }
    assert!(!socket.exists());
}
