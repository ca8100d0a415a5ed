//! Several threads that answer gRPC.

use std::{collections::BTreeMap, num::NonZero};

use testkit::until;

use super::hostile_grpc::{Client, Running, serve};
use crate::{grpc_connections::GrpcLimits, open_connections::Limits};

fn serve_on(threads: usize, limits: GrpcLimits) -> Running {
    serve(GrpcLimits { threads: NonZero::new(threads).unwrap(), ..limits })
}

async fn connect(running: &Running) -> Client {
    Client::connect(running, 65_535).await
}

async fn thread_of(client: &Client) -> String {
    String::from_utf8(client.calls("/thread").await.unwrap()).unwrap()
}

#[tokio::test]
async fn a_connection_stays_on_the_thread_that_had_the_fewest() {
    let running = serve_on(3, GrpcLimits::default());
    let mut by_thread: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for _ in 0..6 {
        let client = connect(&running).await;
        by_thread.entry(thread_of(&client).await).or_default().push(client);
    }
    assert_eq!(by_thread.keys().collect::<Vec<_>>(), ["grpc", "grpc-1", "grpc-2"]);
    for (thread, clients) in &by_thread {
        assert_eq!(clients.len(), 2, "{thread}");
        for client in clients {
            assert_eq!(thread_of(client).await, *thread);
        }
    }
    drop(by_thread.remove("grpc-1"));
    let goes_there = async || (thread_of(&connect(&running).await).await == "grpc-1").then_some(());
    until("the thread whose connections have ended gets the next one", goes_there).await;
    running.end().await;
}

#[tokio::test]
async fn threads_share_the_limits_of_connections() {
    let limits = GrpcLimits { connections: Limits { per_peer: 3, ..Limits::default() }, ..GrpcLimits::default() };
    let running = serve_on(3, limits);
    let mut first = connect(&running).await;
    thread_of(&first).await;
    let mut others = Vec::new();
    for _ in 0..3 {
        let other = connect(&running).await;
        thread_of(&other).await;
        others.push(other);
    }
    assert_eq!(first.has_ended().await, Ok(()), "the least recently used one of all threads received GOAWAY");
    for other in &others {
        thread_of(other).await;
    }
    running.end().await;
}

#[tokio::test]
async fn the_end_is_the_end_of_all_threads() {
    let mut running = serve_on(4, GrpcLimits::default());
    let clients = [connect(&running).await, connect(&running).await];
    thread_of(&clients[1]).await;
    assert!(!running.grpc.is_finished());
    running.shutdown.cancel();
    running.grpc.ended().await.unwrap();
    until("all threads have ended", async || running.grpc.is_finished().then_some(())).await;
}
