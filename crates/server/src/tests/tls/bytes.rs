//! Clients of many that send much: each takes its own bytes, whatever the number of its connections.

use axum::body::Bytes;
use http::Request;
use tokio::task::JoinHandle;

use super::*;
use crate::{buffered_bytes::ByteLimits, open_connections::Limits};

/// Begins a request of this length on a connection of its own, and ends it without the rest if asked to.
async fn begins(
    running: &Running,
    client: &Client,
    length: u32,
    ends: bool,
) -> (h2::client::ResponseFuture, h2::SendStream<Bytes>) {
    let (calls, _) = connect(running, client).await;
    let mut calls = timeout(LIMIT, calls.ready()).await.unwrap().unwrap();
    let request = Request::post("https://a/grpc.health.v1.Health/Check").header("content-type", "application/grpc");
    let (answer, mut body) = calls.send_request(request.body(()).unwrap(), false).unwrap();
    body.send_data(Bytes::from([&[0][..], &length.to_be_bytes()].concat()), ends).unwrap();
    (answer, body)
}

/// Returns true unless a request of this length is RESOURCE_EXHAUSTED.
async fn fits(running: &Running, client: &Client, length: u32) -> bool {
    let (answer, _body) = begins(running, client, length, true).await;
    let answer = timeout(LIMIT, answer).await.unwrap().unwrap();
    answer.headers().get("grpc-status").is_none_or(|status| status != "8")
}

async fn until_it_fits(running: &Running, client: &Client, length: u32, expected: bool) {
    let waits = async {
        while fits(running, client, length).await != expected {
            yield_now().await;
        }
    };
    timeout(LIMIT, waits).await.unwrap();
}

#[tokio::test]
async fn one_of_many_clients_has_the_bytes_of_one_connection_on_all_of_its() {
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let of_many = GrpcLimits::of_many_clients();
    let handshakes = HandshakeRates { stranger: BOUNDLESS, strangers: BOUNDLESS, known: BOUNDLESS };
    let bytes = ByteLimits { requests: 1_000, ..of_many.bytes };
    // Each try is a connection.
    let connections = Limits { per_identity: None, ..of_many.connections };
    let limits = GrpcLimits { connections, bytes, handshakes, ..of_many };
    let allowed = Some(AllowedClients::default());
    let running = Running::serving_within(limits, &servers.issue(&[HOST], |_| {}), &[&clients], allowed).await;
    let [stage, other] = ["stage", "other"].map(|cluster| {
        let uri = format!("spiffe://prod/ns/team-a/cluster/{cluster}");
        Client::new(&servers, Some(&clients.issue(&[&uri], |_| {})))
    });
    assert!(fits(&running, &stage, 1_000).await);
    let under_way = begins(&running, &stage, 900, false).await;
    until_it_fits(&running, &stage, 101, false).await;
    assert!(fits(&running, &stage, 100).await);
    assert!(fits(&running, &other, 1_000).await);
    drop(under_way);
    until_it_fits(&running, &stage, 101, true).await;
    running.end().await;
}

type Calls = h2::client::SendRequest<Bytes>;

async fn connect(running: &Running, client: &Client) -> (Calls, JoinHandle<Result<(), h2::Error>>) {
    let stream = TcpStream::connect(tcp(&running.grpc)).await.unwrap();
    let connector = TlsConnector::from(Arc::clone(&client.config));
    let stream = connector.connect(ServerName::try_from(client.host).unwrap(), stream).await.unwrap();
    let (calls, connection) = h2::client::handshake(stream).await.unwrap();
    (calls, tokio::spawn(connection))
}

/// Returns true if a call is answered.
async fn answers(calls: &Calls) -> bool {
    let Ok(mut ready) = calls.clone().ready().await else { return false };
    let request = Request::post("https://a/grpc.health.v1.Health/Check").header("content-type", "application/grpc");
    let (answer, mut body) = ready.send_request(request.body(()).unwrap(), false).unwrap();
    body.send_data(Bytes::from_static(&[0; 5]), true).unwrap();
    timeout(LIMIT, answer).await.unwrap().is_ok_and(|answer| answer.status() == 200)
}

/// Headers and windows of a connection aren't counted among the bytes.
#[tokio::test]
async fn one_of_many_clients_has_a_few_connections_and_takes_none_from_others() {
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let handshakes = HandshakeRates { stranger: BOUNDLESS, strangers: BOUNDLESS, known: BOUNDLESS };
    let limits = GrpcLimits { handshakes, ..GrpcLimits::of_many_clients() };
    let allowed = Some(AllowedClients::default());
    let running = Running::serving_within(limits, &servers.issue(&[HOST], |_| {}), &[&clients], allowed).await;
    let [stage, other] = ["stage", "other"].map(|cluster| {
        let uri = format!("spiffe://prod/ns/team-a/cluster/{cluster}");
        Client::new(&servers, Some(&clients.issue(&[&uri], |_| {})))
    });
    let (of_other, _open) = connect(&running, &other).await;
    assert!(answers(&of_other).await);
    let mut its = Vec::new();
    for _ in 0..30 {
        let (calls, connection) = connect(&running, &stage).await;
        assert!(answers(&calls).await);
        its.push((calls, connection));
    }
    let open = || its.iter().filter(|(_, connection)| !connection.is_finished()).count();
    Wait::new("the end of the first ones")
        .within(LIMIT)
        .showing(&|| open().to_string())
        .condition(|| open() <= 8)
        .await;
    assert!(its[..its.len() - 8].iter().all(|(_, connection)| connection.is_finished()), "those that it uses least");
    assert!(answers(&its[its.len() - 1].0).await);
    assert!(answers(&of_other).await);
    running.end().await;
}

#[test]
fn one_of_many_clients_has_a_part_of_the_bytes_of_all() {
    let GrpcLimits { bytes, shares_bytes, .. } = GrpcLimits::of_many_clients();
    assert!(shares_bytes);
    assert!(4 * (bytes.requests + bytes.answers) < bytes.total, "{bytes:?}");
}
