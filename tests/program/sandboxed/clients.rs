//! Tests of the client that requested a write, as the log line and the Event name it.

use std::{net::SocketAddr, os::unix::fs::MetadataExt as _};

use super::*;
use crate::log::Log;

/// Without a certificate a client is its process and user on a Unix socket, and its address and port elsewhere.
#[rstest]
#[case::on_a_socket(true)]
#[case::on_plaintext(false)]
#[tokio::test(flavor = "multi_thread")]
async fn the_log_line_and_the_event_of_a_write_name_the_client(#[case] on_a_socket: bool) {
    let log = Log::keep();
    let folder = tempfile::tempdir().unwrap();
    let user = std::fs::metadata(folder.path()).unwrap().uid();
    let socket = format!("--listen=unix://{}/grpc.sock", folder.path().display());
    let listen = if on_a_socket { socket.as_str() } else { "--listen=127.0.0.1:0" };
    let world = start_with(Contract::V1Beta2, vec![cluster(), workers(1, "")], &[listen]).await;
    world.increase(2).await.unwrap();
    let client = client_in(&until_event(&world, "ScaledUp").await);
    if on_a_socket {
        assert_eq!(client, format!("process {} of user {user}", std::process::id()));
    } else {
        let address: SocketAddr = client.parse().unwrap();
        assert!(address.ip().is_loopback() && address.port() > 0, "{address}");
    }
    let logged = format!("client=\"{client}\"");
    for message in ["size written", "command done"] {
        assert_eq!(log.lines(&[GROUP, &logged, message]).len(), 1, "{message}: {:?}", log.lines(&[GROUP]));
    }

    world.pass(60).await;
    world.until_instances(3, InstanceState::InstanceRunning).await;
    world.delete(vec![world.nodes()[0].clone()]).await.unwrap();
    for message in ["size written", "command done"] {
        assert_eq!(log.lines(&[GROUP, &logged, message, "to=2"]).len(), 1, "{message}: {:?}", log.lines(&[GROUP]));
    }
    assert_eq!(client_in(&until_event(&world, "ScaledDown").await), client);

    world.increase(100).await.unwrap_err();
    assert_eq!(log.lines(&[GROUP, &logged, "command refused or failed"]).len(), 1, "{:?}", log.lines(&[GROUP]));
    assert_eq!(client_in(&until_event(&world, "ScaleUpRefused").await), client);
    world.stop().await;
}

/// Returns the client that a note ends with.
fn client_in(note: &str) -> String {
    let (_, client) = note.rsplit_once(" (asked for by ").unwrap_or_else(|| panic!("{note} names no client"));
    client.strip_suffix(')').unwrap_or_else(|| panic!("{note} goes on")).to_owned()
}
