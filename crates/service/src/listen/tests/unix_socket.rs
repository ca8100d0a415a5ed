//! gRPC on a Unix socket: the clients that may connect, and the handling of a file that exists already.

use std::{
    fs,
    os::unix::{
        fs::{MetadataExt as _, symlink},
        net::UnixListener,
    },
    path::Path,
    time::Duration,
};

use rstest::rstest;
use tempfile::TempDir;
use tokio::{net::UnixStream, time::timeout};
use tokio_util::sync::CancellationToken;
use tonic::{service::Routes, transport::Endpoint};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tower::service_fn;

use super::LIMIT;
use crate::listen::{
    GrpcAddress, GrpcListener, GrpcThread, PRIVATE_SOCKET, UnixSocket, serve_on_own_thread, standard_services,
};

async fn serve(path: &Path, mode: u32, shutdown: &CancellationToken) -> GrpcThread {
    let listener = GrpcListener::open(&GrpcAddress::Unix(path.to_owned()), mode, "--listen").unwrap();
    let mut routes = Routes::builder();
    standard_services(&mut routes, true).await.unwrap();
    serve_on_own_thread(listener, None, routes.routes(), shutdown.clone(), Duration::ZERO).unwrap()
}

async fn ask(path: &Path) -> i32 {
    let path = path.to_owned();
    let connector = service_fn(move |_| {
        let stream = UnixStream::connect(path.clone());
        async { stream.await.map(hyper_util::rt::TokioIo::new) }
    });
    let channel = Endpoint::from_static("http://localhost").connect_with_connector_lazy(connector);
    let request = HealthCheckRequest { service: String::new() };
    timeout(LIMIT, HealthClient::new(channel).check(request)).await.unwrap().unwrap().into_inner().status
}

/// Returns the reason why a path isn't served on.
fn refusal(path: &Path) -> String {
    let error = UnixSocket::bind(path, PRIVATE_SOCKET).unwrap_err();
    let text = error.to_string();
    let why = text.strip_prefix(&format!("can't listen on unix://{}: ", path.display()));
    why.and_then(|why| why.strip_suffix(", or choose another path with --listen")).unwrap().to_owned()
}

const IN_USE: &str = "another process serves there: end it";
const NO_SOCKET: &str = "the path exists and is no socket: remove it";

#[rstest]
#[case::of_its_user(0o600)]
#[case::of_its_group(0o660)]
#[tokio::test]
async fn it_serves_with_the_mode_that_it_is_given_and_leaves_no_socket(#[case] mode: u32) {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("grpc.sock");
    let own = fs::metadata(directory.path()).unwrap();
    let shutdown = CancellationToken::new();
    let mut grpc = serve(&path, mode, &shutdown).await;
    assert_eq!(grpc.address().to_string(), format!("unix://{}", path.display()));
    let found = fs::symlink_metadata(&path).unwrap();
    assert_eq!((found.mode() & 0o7777, found.uid(), found.gid()), (mode, own.uid(), own.gid()));
    assert_eq!(ask(&path).await, 1);
    shutdown.cancel();
    timeout(LIMIT, grpc.ended()).await.unwrap().unwrap();
    assert!(!path.exists());
}

#[tokio::test]
async fn the_socket_of_a_dead_process_is_replaced_and_that_of_a_living_one_is_not() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("grpc.sock");
    // Its file stays, as after a killed process.
    drop(UnixListener::bind(&path).unwrap());
    let shutdown = CancellationToken::new();
    let mut first = serve(&path, PRIVATE_SOCKET, &shutdown).await;
    assert_eq!(refusal(&path), IN_USE);
    shutdown.cancel();
    timeout(LIMIT, first.ended()).await.unwrap().unwrap();
    let shutdown = CancellationToken::new();
    let mut second = serve(&path, PRIVATE_SOCKET, &shutdown).await;
    assert_eq!(ask(&path).await, 1);
    shutdown.cancel();
    timeout(LIMIT, second.ended()).await.unwrap().unwrap();
}

#[test]
fn a_file_link_or_directory_at_the_path_stays_and_prevents_the_start() {
    let directory = TempDir::new().unwrap();
    let [other, file, link] = ["other.sock", "file", "link"].map(|name| directory.path().join(name));
    let _other = UnixListener::bind(&other).unwrap();
    fs::write(&file, "text").unwrap();
    symlink(&other, &link).unwrap();
    assert_eq!(refusal(&other), IN_USE, "somebody answers");
    for path in [&*file, &link, directory.path()] {
        assert_eq!(refusal(path), NO_SOCKET);
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "text");
    let missing = refusal(&directory.path().join("no/a"));
    assert!(missing.contains("no/a: No such file or directory"), "{missing}");
}
