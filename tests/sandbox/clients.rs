//! Tests of the client that requested a write, as the log line and the Event name it.

use std::{
    io,
    os::unix::fs::MetadataExt as _,
    sync::{LazyLock, Mutex},
};

use capi_autoscaler_provider::server::GrpcAddress;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::Endpoint;
use tower::service_fn;

use super::*;

/// Connects to either kind of address.
pub(crate) async fn connect(address: &GrpcAddress) -> Channel {
    match address {
        GrpcAddress::Tcp(address) => {
            Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap()
        }
        GrpcAddress::Unix(path) => {
            let path = path.clone();
            let connector = service_fn(move |_| {
                let stream = UnixStream::connect(path.clone());
                async { stream.await.map(TokioIo::new) }
            });
            Endpoint::from_static("http://localhost").connect_with_connector(connector).await.unwrap()
        }
    }
}

/// The log of this process.
static LOG: LazyLock<Log> = LazyLock::new(|| {
    let lines = tracing_subscriber::fmt().with_ansi(false).with_writer(|| Log).finish();
    tracing::subscriber::set_global_default(lines).unwrap();
    Log
});
static SAID: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Log;

impl io::Write for Log {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        SAID.lock().unwrap().extend(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the lines of the log that contain all of these parts.
fn lines(parts: &[&str]) -> Vec<String> {
    let said = String::from_utf8(SAID.lock().unwrap().clone()).unwrap();
    said.lines().filter(|line| parts.iter().all(|part| line.contains(part))).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_line_and_the_event_of_a_write_name_the_client() {
    LazyLock::force(&LOG);
    let folder = tempfile::tempdir().unwrap();
    let user = std::fs::metadata(folder.path()).unwrap().uid();
    let listen = format!("--listen=unix://{}/grpc.sock", folder.path().display());
    let world = World::start_with(Contract::V1Beta2, vec![cluster(), workers(1, "")], &[&listen]).await;
    let client = format!("client=\"user {user}\"");
    world.increase(2).await.unwrap();
    for message in ["size written", "command done"] {
        assert_eq!(lines(&[GROUP, &client, message]).len(), 1, "{message}: {:?}", lines(&[GROUP]));
    }
    let note = until_event(&world, "ScaledUp").await;
    assert!(note.ends_with(&format!("(asked for by user {user})")), "{note}");

    world.pass(60).await;
    world.until_instances(3, InstanceState::InstanceRunning).await;
    world.delete(vec![world.nodes()[0].clone()]).await.unwrap();
    assert_eq!(lines(&[GROUP, &client, "size written", "to=2"]).len(), 1, "{:?}", lines(&[GROUP]));
    let note = until_event(&world, "ScaledDown").await;
    assert!(note.ends_with(&format!("(asked for by user {user})")), "{note}");

    world.increase(100).await.unwrap_err();
    assert_eq!(lines(&[GROUP, &client, "command refused or failed"]).len(), 1, "{:?}", lines(&[GROUP]));
    let note = until_event(&world, "ScaleUpRefused").await;
    assert!(note.ends_with(&format!("(asked for by user {user})")), "{note}");
    world.stop().await;
}
