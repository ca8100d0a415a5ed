//! Two copies of the server behind a balancer of connections, as a Service is one, and autoscalers that call in loops.

use std::{
    collections::{BTreeMap, HashSet},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use axum::{
    Extension,
    http::HeaderMap,
    middleware::{Next, from_fn},
};
use parking_lot::Mutex;
use testkit::{soon, until_true};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::sleep,
};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Status, service::Routes, transport::Channel, transport::Endpoint};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

use super::{LIMIT, listener, tcp};
use crate::{
    Connection, GrpcThread, grpc_connections::GrpcLimits, grpc_runtime::serve_within, open_connections::Limits,
    standard_services,
};

const CLIENTS: usize = 40;
const CALLS_IN_A_LOOP: usize = 20;
/// The time between two calls of a loop, and that between two loops: one is far shorter than the silence, the other far
/// longer.
const BETWEEN_CALLS: Duration = Duration::from_millis(15);
const BETWEEN_LOOPS: Duration = Duration::from_secs(2);
const SILENCE: Duration = Duration::from_millis(500);
/// Connections reach 80 to 100 % of it, most of them in the middle of their second loop.
const AGE: Duration = Duration::from_millis(2_750);

/// A connection: its replica, and its address there.
type Seen = (usize, String);

/// The connections of the calls, by the client and the number of its loop.
type Loops = BTreeMap<(usize, usize), Vec<Seen>>;

#[derive(Clone, Debug, Default)]
struct Record(Arc<Mutex<Loops>>);

impl Record {
    /// Returns the connection of each client's last call.
    fn last(&self) -> BTreeMap<usize, Seen> {
        let calls = self.0.lock();
        calls.iter().filter_map(|((client, _), seen)| Some((*client, seen.last()?.clone()))).collect()
    }
}

struct Replica {
    grpc: GrpcThread,
    shutdown: CancellationToken,
}

async fn start(number: usize, record: &Record) -> Replica {
    let limits = GrpcLimits::default();
    let connections = Limits { age: AGE, per_peer: CLIENTS * 2, total: CLIENTS * 2, ..limits.connections };
    let limits = GrpcLimits { connections, silence: SILENCE, overtime: LIMIT, ..limits };
    let mut routes = Routes::builder();
    standard_services(&mut routes, false).await.unwrap();
    let record = record.clone();
    let recorded = from_fn(move |Extension(caller): Extension<Connection>, headers: HeaderMap, request, next: Next| {
        let number_of = |name| headers[name].to_str().unwrap().parse::<usize>().unwrap();
        let seen = (number, caller.client().name.to_string());
        record.0.lock().entry((number_of("client"), number_of("loop"))).or_default().push(seen);
        next.run(request)
    });
    let routes = Routes::from(routes.routes().into_axum_router().layer(recorded));
    let shutdown = CancellationToken::new();
    let grpc = serve_within(listener().into(), None, routes, limits, shutdown.clone(), LIMIT).unwrap();
    Replica { grpc, shutdown }
}

impl Replica {
    async fn end(mut self) {
        self.shutdown.cancel();
        soon("the end of the replica", self.grpc.ended()).await.unwrap();
    }
}

/// Connects each connection with the next one of those backends that are up.
async fn balance(incoming: TcpListener, backends: Arc<Mutex<Vec<SocketAddr>>>) {
    let (mut connections, mut number) = (JoinSet::new(), 0);
    loop {
        let (mut client, _) = incoming.accept().await.unwrap();
        let backend = {
            let up = backends.lock();
            up[number % up.len()]
        };
        number += 1;
        connections.spawn(async move {
            let mut server = TcpStream::connect(backend).await.unwrap();
            // An end of either side is the end of both.
            let _ = copy_bidirectional(&mut client, &mut server).await;
        });
    }
}

/// Calls in loops over one lazy channel, as Cluster Autoscaler does, until the end of a loop after `stop`.
async fn call_in_loops(client: usize, channel: Channel, stop: CancellationToken) -> Result<(), Status> {
    let mut health = HealthClient::new(channel);
    for number in 0_usize.. {
        for _ in 0..CALLS_IN_A_LOOP {
            let mut request = Request::new(HealthCheckRequest::default());
            for (name, value) in [("client", client), ("loop", number)] {
                request.metadata_mut().insert(name, value.into());
            }
            health.check(request).await?;
            sleep(BETWEEN_CALLS).await;
        }
        let pause = stop.run_until_cancelled(sleep(BETWEEN_LOOPS));
        if pause.await.is_none() {
            break;
        }
    }
    Ok(())
}

#[tokio::test]
async fn connections_spread_over_a_new_replica_between_two_loops_within_their_age() {
    let record = Record::default();
    let first = start(0, &record).await;
    let up = Arc::new(Mutex::new(vec![tcp(&first.grpc)]));
    let incoming = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = incoming.local_addr().unwrap();
    let balancer = tokio::spawn(balance(incoming, Arc::clone(&up)));
    let (mut clients, stop) = (JoinSet::new(), CancellationToken::new());
    for client in 0..CLIENTS {
        let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect_lazy();
        clients.spawn(call_in_loops(client, channel, stop.clone()));
    }
    until_true("all clients call", || record.last().len() == CLIENTS).await;

    let second = start(1, &record).await;
    up.lock().push(tcp(&second.grpc));
    let old: HashSet<_> = record.last().into_values().collect();
    until_true("all old connections have ended", || record.last().values().all(|seen| !old.contains(seen))).await;
    let now = record.last();
    let of_second = now.values().filter(|(replica, _)| *replica == 1).count();
    assert!((CLIENTS / 4..=CLIENTS * 3 / 4).contains(&of_second), "{of_second} of {CLIENTS}");

    stop.cancel();
    let answered = soon("the end of all loops", clients.join_all()).await;
    assert!(answered.iter().all(Result::is_ok), "{answered:?}");
    for (id, connections) in &*record.0.lock() {
        assert_eq!(connections.len(), CALLS_IN_A_LOOP);
        assert!(connections.iter().all(|seen| *seen == connections[0]), "moved in a loop: {id:?}, {connections:?}");
    }
    balancer.abort();
    first.end().await;
    second.end().await;
}
