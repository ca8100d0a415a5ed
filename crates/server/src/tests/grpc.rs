use std::{
    io,
    net::TcpListener,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use rstest::rstest;
use tokio::{task::yield_now, time::timeout};
use tokio_util::sync::CancellationToken;
use tonic::{
    Code, Status,
    service::Routes,
    transport::{Channel, Endpoint},
};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_reflection::pb::{v1, v1alpha};

use super::{LIMIT, listener, tcp};
use crate::{Check, GrpcThread, Health, serve_on_own_thread, standard_services};

const PROVIDER: &str = "clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider";
const SERVING: i32 = 1;
const NOT_SERVING: i32 = 2;

struct Running {
    grpc: GrpcThread,
    health: Health,
    shutdown: CancellationToken,
    channel: Channel,
}

async fn start(drain: Duration) -> Running {
    let mut routes = Routes::builder();
    let health = standard_services(&mut routes, true).await.unwrap();
    let shutdown = CancellationToken::new();
    let grpc = serve_on_own_thread(listener(), None, routes.routes(), shutdown.clone(), drain).unwrap();
    let channel = Endpoint::from_shared(format!("http://{}", grpc.address())).unwrap().connect().await.unwrap();
    Running { grpc, health, shutdown, channel }
}

async fn health_of(channel: &Channel, service: &str) -> Result<i32, Status> {
    let request = HealthCheckRequest { service: service.to_owned() };
    HealthClient::new(channel.clone()).check(request).await.map(|answer| answer.into_inner().status)
}

impl Running {
    /// Stops the server, and checks that its thread has ended and its port is free.
    async fn end(mut self) {
        self.shutdown.cancel();
        timeout(LIMIT, self.grpc.ended()).await.unwrap().unwrap();
        self.grpc.ended().await.unwrap();
        timeout(LIMIT, async {
            while !self.grpc.is_finished() {
                yield_now().await;
            }
        })
        .await
        .unwrap();
        TcpListener::bind(tcp(&self.grpc)).unwrap();
    }
}

#[tokio::test]
async fn the_thread_ends_and_leaves_nothing() {
    let running = start(LIMIT).await;
    assert_eq!(health_of(&running.channel, "").await.unwrap(), SERVING);
    running.end().await;
}

#[tokio::test]
async fn a_watch_without_end_is_cut_off() {
    let running = start(Duration::ZERO).await;
    let request = HealthCheckRequest { service: String::new() };
    let mut watch = HealthClient::new(running.channel.clone()).watch(request).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status, SERVING);
    running.end().await;
    assert!(watch.message().await.is_err());
}

#[tokio::test]
async fn health_follows_readiness_and_the_end() {
    let running = start(LIMIT).await;
    assert_eq!(health_of(&running.channel, PROVIDER).await.unwrap(), NOT_SERVING, "nothing was seen yet");
    assert_eq!(health_of(&running.channel, "other").await.unwrap_err().code(), Code::NotFound);

    let state = Arc::new(Mutex::new(Check::ready("nodes")));
    let (health, shutdown, shared) = (running.health.clone(), CancellationToken::new(), Arc::clone(&state));
    let following = tokio::spawn(health.follow(Arc::new(move || vec![shared.lock().clone()]), shutdown.clone()));
    let request = HealthCheckRequest { service: PROVIDER.to_owned() };
    let mut watch = HealthClient::new(running.channel.clone()).watch(request).await.unwrap().into_inner();
    let mut until = async |status| {
        while timeout(LIMIT, watch.message()).await.unwrap().unwrap().unwrap().status != status {}
    };
    until(SERVING).await;
    *state.lock() = Check::pending("nodes", "gone");
    until(NOT_SERVING).await;
    *state.lock() = Check::ready("nodes");
    until(SERVING).await;
    shutdown.cancel();
    following.await.unwrap();
    until(NOT_SERVING).await;
    assert_eq!(health_of(&running.channel, "").await.unwrap(), NOT_SERVING);
    drop(watch);
    running.end().await;
}

#[rstest]
#[case(PROVIDER)]
#[case("grpc.health.v1.Health")]
#[tokio::test]
async fn reflection_of_both_versions_knows_the_services(#[case] service: &str) {
    let running = start(LIMIT).await;
    let symbol = format!("{service}.{}", if service == PROVIDER { "NodeGroups" } else { "Check" });

    let request = v1::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(v1::server_reflection_request::MessageRequest::FileContainingSymbol(symbol.clone())),
    };
    let mut client = v1::server_reflection_client::ServerReflectionClient::new(running.channel.clone());
    let mut answers = client.server_reflection_info(tokio_stream::once(request)).await.unwrap().into_inner();
    let answer = answers.message().await.unwrap().unwrap().message_response.unwrap();
    assert!(
        matches!(&answer, v1::server_reflection_response::MessageResponse::FileDescriptorResponse(_)),
        "{answer:?}"
    );

    let request = v1alpha::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(v1alpha::server_reflection_request::MessageRequest::FileContainingSymbol(symbol)),
    };
    let mut client = v1alpha::server_reflection_client::ServerReflectionClient::new(running.channel.clone());
    let mut answers = client.server_reflection_info(tokio_stream::once(request)).await.unwrap().into_inner();
    let answer = answers.message().await.unwrap().unwrap().message_response.unwrap();
    assert!(
        matches!(&answer, v1alpha::server_reflection_response::MessageResponse::FileDescriptorResponse(_)),
        "{answer:?}"
    );
    running.end().await;
}

/// A writer that collects the log of this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn readiness_is_logged_once_per_change() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let health = standard_services(&mut Routes::builder(), true).await.unwrap();
    let (looks, ends) = (AtomicUsize::new(0), CancellationToken::new());
    let ending = ends.clone();
    let checks = move || match looks.fetch_add(1, Ordering::Relaxed) {
        0 | 1 => vec![Check::ready("management/machines"), Check::pending("workload/nodes", "forbidden")],
        2 | 3 => vec![Check::ready("management/machines"), Check::ready("workload/nodes")],
        _ => {
            ending.cancel();
            vec![]
        }
    };
    health.follow(Arc::new(checks), ends).await;
    let log = String::from_utf8(log.0.lock().clone()).unwrap();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("ready: ")).collect();
    assert_eq!(lines.len(), 2, "{log}");
    assert!(lines[0].contains("not ready: not all core kinds are in sync missing=\"workload/nodes\""), "{log}");
    assert!(lines[1].contains("INFO") && lines[1].contains(": ready: all core kinds are in sync"), "{log}");
}
