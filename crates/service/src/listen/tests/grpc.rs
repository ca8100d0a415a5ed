//! The gRPC thread, its end, and the standard services.

use std::{net::TcpListener, sync::Arc, time::Duration};

use parking_lot::Mutex;
use rstest::rstest;
use testkit::{CapturedLog, soon, until_true};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::{
    Code, Status,
    service::Routes,
    transport::{Channel, Endpoint},
};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_reflection::pb::{v1, v1alpha};

use super::{LIMIT, listener, tcp};
use crate::listen::{Check, Checks, GrpcThread, Health, serve_on_own_thread, standard_services};

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

impl Running {
    async fn health_of(&self, service: &str) -> Result<i32, Status> {
        let request = HealthCheckRequest { service: service.to_owned() };
        HealthClient::new(self.channel.clone()).check(request).await.map(|answer| answer.into_inner().status)
    }

    async fn watch(&self, service: &str) -> tonic::Streaming<tonic_health::pb::HealthCheckResponse> {
        let request = HealthCheckRequest { service: service.to_owned() };
        HealthClient::new(self.channel.clone()).watch(request).await.unwrap().into_inner()
    }

    /// Stops the server, and checks that its thread has ended and its port is free.
    async fn end(mut self) {
        self.shutdown.cancel();
        soon("the end", self.grpc.ended()).await.unwrap();
        self.grpc.ended().await.unwrap();
        until_true("the thread has ended", || self.grpc.is_finished()).await;
        TcpListener::bind(tcp(&self.grpc)).unwrap();
    }
}

#[tokio::test]
async fn a_watch_without_end_is_cut_off_and_the_thread_leaves_nothing() {
    let running = start(Duration::ZERO).await;
    let mut watch = running.watch("").await;
    assert_eq!(watch.message().await.unwrap().unwrap().status, SERVING);
    running.end().await;
    assert!(watch.message().await.is_err());
}

/// An API server that is down, or isn't.
struct Outage(watch::Sender<bool>);

impl Checks for Outage {
    fn checks(&self) -> Vec<Check> {
        Vec::new()
    }

    fn outage(&self) -> Option<Check> {
        let check = || Check::ready_but("management/api-server", "nothing was heard for 1 s: refused");
        self.0.borrow().then(check)
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_logged_once_when_it_begins() {
    let (log, _guard) = CapturedLog::begin();
    let outage = Arc::new(Outage(watch::Sender::new(true)));
    let health = standard_services(&mut Routes::builder(), false).await.unwrap();
    let shutdown = CancellationToken::new();
    let following = tokio::spawn(health.follow(Arc::clone(&outage) as Arc<_>, shutdown.clone()));
    for is_out in [true, false, true] {
        outage.0.send_replace(is_out);
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    shutdown.cancel();
    following.await.unwrap();
    assert_eq!(log.take().matches("management/api-server: nothing was heard for 1 s: refused").count(), 2);
}

#[tokio::test]
async fn health_follows_readiness_and_the_end_and_each_change_is_logged() {
    let (log, _guard) = CapturedLog::begin();
    let running = start(LIMIT).await;
    assert_eq!(running.health_of(PROVIDER).await.unwrap(), NOT_SERVING, "nothing was seen yet");
    assert_eq!(running.health_of("other").await.unwrap_err().code(), Code::NotFound);

    let state = Arc::new(Mutex::new(Check::ready("nodes")));
    let (health, shutdown, shared) = (running.health.clone(), CancellationToken::new(), Arc::clone(&state));
    let following = tokio::spawn(health.follow(Arc::new(move || vec![shared.lock().clone()]), shutdown.clone()));
    let mut watch = running.watch(PROVIDER).await;
    let mut until = async |status| {
        while soon("a status", watch.message()).await.unwrap().unwrap().status != status {}
    };
    until(SERVING).await;
    *state.lock() = Check::pending("nodes", "gone");
    until(NOT_SERVING).await;
    *state.lock() = Check::ready("nodes");
    until(SERVING).await;
    shutdown.cancel();
    following.await.unwrap();
    until(NOT_SERVING).await;
    assert_eq!(running.health_of("").await.unwrap(), NOT_SERVING);
    drop(watch);
    running.end().await;
    let log = log.take();
    let lines: Vec<_> = log.lines().filter_map(|line| Some(line.split_once("health: ")?.1)).collect();

    let ready = "ready: all core kinds are in sync";
    assert_eq!(lines, [ready, "not ready: not all core kinds are in sync missing=\"nodes\" reason=\"gone\"", ready]);
}

#[rstest]
#[case(PROVIDER, "NodeGroups")]
#[case("grpc.health.v1.Health", "Check")]
#[tokio::test]
async fn reflection_of_both_versions_knows_the_services(#[case] service: &str, #[case] method: &str) {
    use v1::{server_reflection_request::MessageRequest, server_reflection_response::MessageResponse};
    use v1alpha::{
        server_reflection_request::MessageRequest as AlphaRequest,
        server_reflection_response::MessageResponse as AlphaResponse,
    };

    let running = start(LIMIT).await;
    let symbol = format!("{service}.{method}");

    let request = Some(MessageRequest::FileContainingSymbol(symbol.clone()));
    let request = v1::ServerReflectionRequest { host: String::new(), message_request: request };
    let mut client = v1::server_reflection_client::ServerReflectionClient::new(running.channel.clone());
    let mut answers = client.server_reflection_info(tokio_stream::once(request)).await.unwrap().into_inner();
    let answer = answers.message().await.unwrap().unwrap().message_response.unwrap();
    assert!(matches!(&answer, MessageResponse::FileDescriptorResponse(_)), "{answer:?}");

    let request = Some(AlphaRequest::FileContainingSymbol(symbol));
    let request = v1alpha::ServerReflectionRequest { host: String::new(), message_request: request };
    let mut client = v1alpha::server_reflection_client::ServerReflectionClient::new(running.channel.clone());
    let mut answers = client.server_reflection_info(tokio_stream::once(request)).await.unwrap().into_inner();
    let answer = answers.message().await.unwrap().unwrap().message_response.unwrap();
    assert!(matches!(&answer, AlphaResponse::FileDescriptorResponse(_)), "{answer:?}");
    running.end().await;
}
