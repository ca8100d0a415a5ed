//! The costs of events and of lists, from an API server's bytes to a handler.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use allocation_counter::measure;
use axum::body::{Body, Bytes};
use futures::{StreamExt as _, stream};
use http::{Request, Response, Uri};
use kube::{
    Client,
    core::{ApiResource, GroupVersionKind},
};
use rules::capi::{Context, DEFAULT_GROUP, Machine};
use serde_json::json;
use shared_informer::{Event, Factory, Query, Settings};
use tokio::{
    runtime::{Builder, Runtime},
    sync::Notify,
};

use super::object;

const MACHINES: usize = 50;
const ROUNDS: usize = 20;

/// A watch that sends a round of events at a time, when `go` is notified.
#[derive(Clone)]
struct Watch {
    rounds: Vec<Bytes>,
    go: Arc<Notify>,
}

impl Watch {
    /// Returns a watch with one line for each Machine, and one chunk for each round.
    fn new() -> Self {
        let machine = object("management-v1beta2.yaml", "Machine");
        let line = |round: usize, number: usize| {
            let mut machine = machine.clone();
            machine["metadata"]["name"] = json!(format!("machine-{number}"));
            machine["metadata"]["resourceVersion"] = json!((100 + round * MACHINES + number).to_string());
            let kind = if round == 0 { "ADDED" } else { "MODIFIED" };
            format!("{{\"type\":\"{kind}\",\"object\":{machine}}}\n")
        };
        let round = |round: usize| (0..MACHINES).map(|number| line(round, number)).collect::<String>().into();
        Self { rounds: (0..=ROUNDS).map(round).collect(), go: Arc::default() }
    }

    /// Answers a list with nothing, a watch with the rounds.
    fn answer(self, uri: &Uri) -> Response<Body> {
        if !uri.query().unwrap_or_default().contains("watch=true") {
            return Response::new(Body::from(r#"{"metadata":{"resourceVersion":"10"},"items":[]}"#));
        }
        let round = move |chunk: Bytes| {
            let go = Arc::clone(&self.go);
            async move {
                go.notified().await;
                Ok::<_, Infallible>(chunk)
            }
        };
        let rounds = stream::iter(self.rounds).then(round);
        Response::new(Body::from_stream(rounds.chain(stream::pending())))
    }

    /// Returns a client that gets the chunks as this watch makes them.
    fn client(&self) -> Client {
        let watch = self.clone();
        let server = move |request: Request<kube::client::Body>| {
            std::future::ready(Ok::<_, Infallible>(watch.clone().answer(request.uri())))
        };
        Client::new(tower::service_fn(server), "default")
    }
}

/// Returns a runtime whose clock moves only while all tasks wait: no pause ends before they have done what they can.
pub(super) fn unhurried() -> Runtime {
    Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

pub(super) fn machines() -> ApiResource {
    let kind = GroupVersionKind::gvk(DEFAULT_GROUP, "v1beta2", "Machine");
    ApiResource::from_gvk_with_plural(&kind, "machines")
}

/// Returns the allocations of an event, in all rounds but the first, which adds the Machines.
fn of_event(watch: &Watch) -> u64 {
    let runtime = unhurried();
    let _entered = runtime.enter();
    let settings = Settings { streaming_lists: false, ..Settings::default() };
    let factory = Factory::new(watch.client(), runtime.handle(), settings);
    let informer = factory.informer(Query::all(machines()), Machine::projection(&Context::new(DEFAULT_GROUP)));
    let (reported, news) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
    let (counted, ring) = (Arc::clone(&reported), Arc::clone(&news));
    let registration = informer.add_handler(move |_: Event<Machine>| {
        if counted.fetch_add(1, Ordering::Relaxed) % MACHINES as u64 == MACHINES as u64 - 1 {
            ring.notify_one();
        }
    });
    let round = || {
        watch.go.notify_one();
        runtime.block_on(news.notified());
    };
    runtime.block_on(registration.synced());
    round();
    let allocations = measure(|| (0..ROUNDS).for_each(|_| round())).count_total;
    assert_eq!(reported.load(Ordering::Relaxed), ((ROUNDS + 1) * MACHINES) as u64, "no two changes are merged");
    assert_eq!(informer.status().events.updated, (ROUNDS * MACHINES) as u64);
    allocations.div_ceil((ROUNDS * MACHINES) as u64)
}

#[test]
fn an_event_takes_few_allocations() {
    let each = of_event(&Watch::new());
    // One is the old object of a handler's event, of which the store keeps only the content.
    assert!(each <= 13, "an event takes {each} allocations");
}

/// Returns the allocations of a first list that is streamed, from the request until the handler has it all.
fn of_streamed_list(count: usize) -> u64 {
    let mut machine = object("management-v1beta2.yaml", "Machine");
    let line = |number: usize| {
        machine["metadata"]["name"] = json!(format!("machine-{number}"));
        format!("{{\"type\":\"ADDED\",\"object\":{machine}}}\n").into()
    };
    let metadata = json!({"resourceVersion": "900", "annotations": {"k8s.io/initial-events-end": "true"}});
    let end = format!("{}\n", json!({"type": "BOOKMARK", "object": {"kind": "Machine", "metadata": metadata}})).into();
    let chunks: Vec<Bytes> = (0..count).map(line).chain([end]).collect();
    let not_streamed = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&not_streamed);
    let server = tower::service_fn(move |request: Request<kube::client::Body>| {
        let is_streamed = request.uri().query().is_some_and(|query| query.contains("sendInitialEvents=true"));
        counted.fetch_add(usize::from(!is_streamed), Ordering::Relaxed);
        let chunks = stream::iter(chunks.clone()).map(Ok::<_, Infallible>);
        std::future::ready(Ok::<_, Infallible>(Response::new(Body::from_stream(chunks.chain(stream::pending())))))
    });
    let runtime = unhurried();
    let _entered = runtime.enter();
    let settings = Settings { streaming_lists: true, ..Settings::default() };
    let factory = Factory::new(Client::new(server, "default"), runtime.handle(), settings);
    let projection = Machine::projection(&Context::new(DEFAULT_GROUP));
    let mut informer = None;
    let allocations = measure(|| {
        let started = informer.insert(factory.informer(Query::all(machines()), projection));
        runtime.block_on(started.add_handler(|_: Event<Machine>| {}).synced());
    });
    assert_eq!((informer.unwrap().store().len(), not_streamed.load(Ordering::Relaxed)), (count, 0));
    allocations.count_total
}

#[test]
fn an_object_of_a_streamed_list_takes_few_allocations() {
    let (few, many) = (of_streamed_list(100), of_streamed_list(1_100));
    let each = (many - few).div_ceil(1_000);
    println!("{each} allocations for each object");
    assert!(each <= 15, "an object takes {each} allocations");
}
