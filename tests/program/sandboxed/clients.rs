//! Tests of the client that requested a write, as the log line and the Event name it.

use std::os::unix::fs::MetadataExt as _;

use super::*;
use crate::log::Log;

#[tokio::test(flavor = "multi_thread")]
async fn the_log_line_and_the_event_of_a_write_name_the_client() {
    let log = Log::keep();
    let folder = tempfile::tempdir().unwrap();
    let user = std::fs::metadata(folder.path()).unwrap().uid();
    let listen = format!("--listen=unix://{}/grpc.sock", folder.path().display());
    let world = start_with(Contract::V1Beta2, vec![cluster(), workers(1, "")], &[&listen]).await;
    let client = format!("client=\"user {user}\"");
    world.increase(2).await.unwrap();
    for message in ["size written", "command done"] {
        assert_eq!(log.lines(&[GROUP, &client, message]).len(), 1, "{message}: {:?}", log.lines(&[GROUP]));
    }
    let note = until_event(&world, "ScaledUp").await;
    assert!(note.ends_with(&format!("(asked for by user {user})")), "{note}");

    world.pass(60).await;
    world.until_instances(3, InstanceState::InstanceRunning).await;
    world.delete(vec![world.nodes()[0].clone()]).await.unwrap();
    assert_eq!(log.lines(&[GROUP, &client, "size written", "to=2"]).len(), 1, "{:?}", log.lines(&[GROUP]));
    let note = until_event(&world, "ScaledDown").await;
    assert!(note.ends_with(&format!("(asked for by user {user})")), "{note}");

    world.increase(100).await.unwrap_err();
    assert_eq!(log.lines(&[GROUP, &client, "command refused or failed"]).len(), 1, "{:?}", log.lines(&[GROUP]));
    let note = until_event(&world, "ScaleUpRefused").await;
    assert!(note.ends_with(&format!("(asked for by user {user})")), "{note}");
    world.stop().await;
}
