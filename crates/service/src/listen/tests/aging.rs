//! Connections that reach their age.

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures::{StreamExt as _, future::join_all, stream};
use http::Request;
use rstest::rstest;
use tokio::{
    io::{DuplexStream, duplex},
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use super::{
    LIMIT,
    hostile_grpc::{Client, MIB, read, read_body, serve, serve_with_drain},
};
use crate::listen::{
    connections::{Limits, Source},
    grpc::{GrpcLimits, Io, Listener, Peer, serve_connections},
};

const SHORT: Duration = Duration::from_millis(100);

fn aging(age: Duration) -> GrpcLimits {
    let limits = GrpcLimits::default();
    GrpcLimits { connections: Limits { age, ..limits.connections }, silence: age, ..limits }
}

/// The reason for which a connection ends while a call waits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End {
    Overtime,
    Silence,
    Shutdown,
}

/// A caller that has to go on elsewhere in the middle of its loop may meet other groups there.
#[rstest]
#[case::that_is_never_silent_some_time_after_its_age(End::Overtime)]
#[case::between_two_loops_after_its_age(End::Silence)]
#[case::without_silence_at_the_shutdown(End::Shutdown)]
#[tokio::test]
async fn a_connection_ends_and_its_call_is_answered(#[case] end: End) {
    let limits = aging(SHORT);
    let limits = if end == End::Overtime { GrpcLimits { overtime: Duration::ZERO, ..limits } } else { limits };
    let running = serve_with_drain(limits, LIMIT);
    let (mut old, waits) = Client::with_a_waiting_call(&running).await;
    // The age of the older one has passed too, and a silence would have.
    Client::connect(&running, 65_535).await.has_ended().await.unwrap();
    if end == End::Silence {
        assert_eq!(old.calls("/small").await.unwrap(), b"small");
    } else if end == End::Shutdown {
        running.shutdown.cancel();
    }
    if end != End::Silence {
        old.has_received_goaway().await;
    }
    old.ends_with(waits, &running).await;
    running.end().await;
}

/// Makes calls until the client accepts no more. Returns the number of those that were answered.
async fn calls_until_goaway(client: &Client) -> usize {
    let mut answered = 0;
    while let Ok(mut ready) = client.calls.clone().ready().await {
        let (answer, _) = ready.send_request(Request::post("http://a/small").body(()).unwrap(), true).unwrap();
        match read(answer).await {
            Ok(body) => {
                assert_eq!(body, b"small");
                answered += 1;
            }
            // It hadn't left the client when GOAWAY came, so that a gRPC client makes it on the next connection.
            Err(error) => assert!(error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR), "{error}"),
        }
    }
    answered
}

#[tokio::test]
async fn calls_that_begin_in_the_moment_of_goaway_are_answered() {
    let running = serve(GrpcLimits { overtime: Duration::ZERO, ..aging(Duration::from_millis(20)) });
    let mut answered = 0;
    for _ in 0..20 {
        let mut client = Client::connect(&running, 65_535).await;
        answered += join_all((0..8).map(|_| calls_until_goaway(&client))).await.into_iter().sum::<usize>();
        assert_eq!(client.has_ended().await, Ok(()), "GOAWAY without an error");
    }
    assert!(answered > 20);
    assert_eq!(running.served.calls.load(Ordering::Relaxed), answered, "each call that the server has begun");
    running.end().await;
}

/// A caller that reads a long answer is in its loop, though it makes no call meanwhile.
#[tokio::test]
async fn a_connection_whose_answer_is_being_read_is_not_silent() {
    let running = serve(aging(SHORT));
    let mut old = Client::connect(&running, 1_024).await;
    let unread = old.begins_call("/large").await;
    let unread = timeout(LIMIT, unread).await.unwrap().unwrap();
    // The age of the older one has passed too, and a silence would have.
    Client::connect(&running, 65_535).await.has_ended().await.unwrap();
    assert_eq!(old.calls("/small").await.unwrap(), b"small");
    assert_eq!(read_body(unread.into_body()).await.unwrap().len(), MIB);
    assert_eq!(old.has_ended().await, Ok(()), "GOAWAY without an error");
    running.end().await;
}

#[tokio::test]
async fn a_call_without_end_is_cut_after_the_age_of_its_connection() {
    let limits = aging(Duration::from_secs(2));
    let connections = Limits { last_request: SHORT, ..limits.connections };
    let running = serve(GrpcLimits { connections, overtime: Duration::ZERO, ..limits });
    let (mut old, waits) = Client::with_a_waiting_call(&running).await;
    assert!(read(waits).await.is_err(), "cut");
    // Ended by the server, in one way or the other.
    let _ = old.has_ended().await;
    let new = Client::connect(&running, 65_535).await;
    assert_eq!(new.calls("/small").await.unwrap(), b"small");
    running.end().await;
}

/// Makes no call until the server ends the connection. Returns the time of that.
async fn end_of(stream: DuplexStream) -> Instant {
    let (calls, connection) = h2::client::handshake(stream).await.unwrap();
    connection.await.unwrap();
    drop(calls);
    Instant::now()
}

/// The connections of a fleet begin together after a restart.
#[tokio::test(start_paused = true)]
async fn connections_of_one_time_do_not_end_together() {
    fastrand::seed(1);
    // Shorter than the interval of keepalive pings.
    let (begun, age) = (Instant::now(), Duration::from_secs(20));
    let listener = Arc::new(Listener::new(GrpcLimits { silence: Duration::ZERO, ..aging(age) }));
    let (clients, servers): (Vec<_>, Vec<_>) = (0..64).map(|_| duplex(1 << 16)).unzip();
    let incoming = servers.into_iter().zip(0..).map(|(stream, user)| {
        let peer = Peer { source: Source::User(user), client: crate::listen::Client::default() };
        Ok((Box::new(stream) as Box<dyn Io>, peer))
    });
    let incoming = stream::iter(incoming.collect::<Vec<_>>()).boxed();
    let serving = serve_connections(incoming, Routes::default(), listener, CancellationToken::new());
    let ((), ends) = tokio::join!(serving, join_all(clients.into_iter().map(end_of)));
    let ages: Vec<_> = ends.into_iter().map(|end| end - begun).collect();
    let late = SHORT;
    assert!(ages.iter().all(|it| (age * 4 / 5..=age + late).contains(it)), "{ages:?}");
    let parts = ages.iter().map(|it| (age + late).saturating_sub(*it).as_secs()).collect::<BTreeSet<_>>();
    assert!(parts.is_superset(&BTreeSet::from([0, 1, 2, 3])), "in each second of the last fifth: {ages:?}");
}

/// A caller continues its loop on the next connection, and must not be taken for one that has just begun.
#[tokio::test]
async fn a_connection_that_ends_at_its_age_counts_as_open_for_its_caller_and_one_that_is_closed_does_not() {
    let running = serve(GrpcLimits { overtime: Duration::ZERO, ..aging(SHORT) });
    let mut client = Client::connect(&running, 65_535).await;
    client.calls("/small").await.unwrap();
    client.has_ended().await.unwrap();
    drop(client);
    assert!(running.served.callers.lock()[0].is_open());
    running.end().await;

    let running = serve(GrpcLimits::default());
    let client = Client::connect(&running, 65_535).await;
    client.calls("/small").await.unwrap();
    drop(client);
    let closed = async {
        while running.served.callers.lock()[0].is_open() {
            tokio::task::yield_now().await;
        }
    };
    timeout(LIMIT, closed).await.unwrap();
    running.end().await;
}
