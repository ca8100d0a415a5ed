//! The costs of events and of lists, from an API server's bytes to a handler.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context as TaskContext, Poll},
    time::Duration,
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
use shared_informer::{Event, Factory, Query, Settings, Spawner, Task};
use tokio::{
    runtime::{Builder, Runtime},
    sync::Notify,
    time::Instant,
};

use super::object;

/// Counts the polls of a task; of a handler's, those that the machine's clock didn't cut. A paused clock cuts none.
struct Polled {
    task: Task,
    polls: Arc<AtomicUsize>,
    is_handler: bool,
}

impl Future for Polled {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<()> {
        /// The time after which a handler's turn ends, so that a busy machine makes two of one.
        const TURN: Duration = Duration::from_millis(1);
        let started = Instant::now();
        let polled = self.task.as_mut().poll(context);
        let is_cut = self.is_handler && started.elapsed() >= TURN;
        self.polls.fetch_add(usize::from(!is_cut), Ordering::Relaxed);
        polled
    }
}

const MACHINES: usize = 50;
const ROUNDS: usize = 20;

/// A watch that sends a round of events at a time, when `go` is notified.
#[derive(Clone)]
struct Watch {
    rounds: Vec<Vec<Bytes>>,
    go: Arc<Notify>,
}

impl Watch {
    /// Returns a watch with one line for each Machine, all of a round in one chunk.
    fn new() -> Self {
        let machine = object("management-v1beta2.yaml", "Machine");
        let line = |round: usize, number: usize| {
            let mut machine = machine.clone();
            machine["metadata"]["name"] = json!(format!("machine-{number}"));
            machine["metadata"]["resourceVersion"] = json!((100 + round * MACHINES + number).to_string());
            let kind = if round == 0 { "ADDED" } else { "MODIFIED" };
            format!("{{\"type\":\"{kind}\",\"object\":{machine}}}\n")
        };
        let round = |round: usize| vec![(0..MACHINES).map(|number| line(round, number)).collect::<String>().into()];
        Self { rounds: (0..=ROUNDS).map(round).collect(), go: Arc::default() }
    }

    /// Answers a list with nothing, a watch with the rounds.
    fn answer(self, uri: &Uri) -> Response<Body> {
        if !uri.query().unwrap_or_default().contains("watch=true") {
            return Response::new(Body::from(r#"{"metadata":{"resourceVersion":"10"},"items":[]}"#));
        }
        let round = move |chunks: Vec<Bytes>| {
            let go = Arc::clone(&self.go);
            async move {
                go.notified().await;
                stream::iter(chunks.into_iter().map(Ok::<Bytes, Infallible>))
            }
        };
        let rounds = stream::iter(self.rounds).then(round).flatten();
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

/// What all rounds but the first have cost, which adds the Machines.
struct Costs {
    /// The allocations of an event.
    allocations: u64,
    /// The polls of the informer's task.
    informer: usize,
    /// The polls of the handler's task.
    handler: usize,
}

/// Returns a runtime whose clock moves only while all tasks wait: no pause ends before they have done what they can.
fn unhurried() -> Runtime {
    Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

fn follow(watch: &Watch, client: Client, runtime: &Runtime) -> Costs {
    let tasks = Arc::new(Mutex::new(Vec::new()));
    let counted = Arc::clone(&tasks);
    let spawner = Spawner::from(runtime.handle()).around(move |task| {
        let polls = Arc::new(AtomicUsize::new(0));
        let mut counted = counted.lock().unwrap();
        // The first task is the informer's.
        let is_handler = !counted.is_empty();
        counted.push(Arc::clone(&polls));
        Box::pin(Polled { task, polls, is_handler })
    });
    let settings = Settings { streaming_lists: false, ..Settings::default() };
    let factory = Factory::new(client, spawner, settings);
    let kind = GroupVersionKind::gvk(DEFAULT_GROUP, "v1beta2", "Machine");
    let machines = ApiResource::from_gvk_with_plural(&kind, "machines");
    let informer = factory.informer(Query::all(machines), Machine::projection(&Context::new(DEFAULT_GROUP)));
    let (reported, news) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
    let (with_call_log, ring) = (Arc::clone(&reported), Arc::clone(&news));
    let registration = informer.add_handler(move |_: Event<Machine>| {
        if with_call_log.fetch_add(1, Ordering::Relaxed) % MACHINES as u64 == MACHINES as u64 - 1 {
            ring.notify_one();
        }
    });
    let round = || {
        watch.go.notify_one();
        runtime.block_on(news.notified());
    };
    runtime.block_on(registration.synced());
    round();
    let polls = || tasks.lock().unwrap().iter().map(|task| task.load(Ordering::Relaxed)).collect::<Vec<_>>();
    let before = polls();
    let allocations = measure(|| (0..ROUNDS).for_each(|_| round())).count_total;
    let polls: Vec<_> = polls().into_iter().zip(before).map(|(after, before)| after - before).collect();
    let [informer_polls, handler_polls] = polls[..] else { panic!("{} tasks", polls.len()) };
    assert_eq!(reported.load(Ordering::Relaxed), ((ROUNDS + 1) * MACHINES) as u64, "no two changes are merged");
    assert_eq!(informer.status().events.updated, (ROUNDS * MACHINES) as u64);
    Costs {
        allocations: allocations.div_ceil((ROUNDS * MACHINES) as u64),
        informer: informer_polls,
        handler: handler_polls,
    }
}

#[test]
fn an_event_takes_few_allocations_and_lines_that_come_together_wake_each_task_once() {
    let runtime = unhurried();
    let _entered = runtime.enter();
    let watch = Watch::new();
    let Costs { allocations, informer, handler } = follow(&watch, watch.client(), &runtime);
    // One is the old object of a handler's event, of which the store keeps only the content.
    assert!(allocations <= 13, "an event takes {allocations} allocations");
    // It is polled once more, since it yields to other tasks of its thread.
    assert!(informer <= 2 * ROUNDS, "{informer} polls of the informer for {ROUNDS} parts of a watch");
    assert!(handler <= ROUNDS, "{handler} polls of the handler for {ROUNDS} parts of a watch");
}

/// Returns the allocations of a first list that is streamed, from the request until the handler has it all.
fn of_streamed_list(machines: usize) -> u64 {
    let mut machine = object("management-v1beta2.yaml", "Machine");
    let line = |number: usize| {
        machine["metadata"]["name"] = json!(format!("machine-{number}"));
        format!("{{\"type\":\"ADDED\",\"object\":{machine}}}\n").into()
    };
    let metadata = json!({"resourceVersion": "900", "annotations": {"k8s.io/initial-events-end": "true"}});
    let end = format!("{}\n", json!({"type": "BOOKMARK", "object": {"kind": "Machine", "metadata": metadata}})).into();
    let chunks: Vec<Bytes> = (0..machines).map(line).chain([end]).collect();
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
    let kind = GroupVersionKind::gvk(DEFAULT_GROUP, "v1beta2", "Machine");
    let machines_kind = ApiResource::from_gvk_with_plural(&kind, "machines");
    let projection = Machine::projection(&Context::new(DEFAULT_GROUP));
    let mut informer = None;
    let allocations = measure(|| {
        let started = informer.insert(factory.informer(Query::all(machines_kind), projection));
        runtime.block_on(started.add_handler(|_: Event<Machine>| {}).synced());
    });
    assert_eq!((informer.unwrap().store().len(), not_streamed.load(Ordering::Relaxed)), (machines, 0));
    allocations.count_total
}

#[test]
fn an_object_of_a_streamed_list_takes_few_allocations() {
    let (few, many) = (of_streamed_list(100), of_streamed_list(1_100));
    let each = (many - few).div_ceil(1_000);
    println!("{each} allocations for each object");
    assert!(each <= 15, "an object takes {each} allocations");
}

/// Returns a page of four Machines with providerIDs of 16 KiB that no other page has, which announces another page.
fn long_page(number: usize, next: &str) -> String {
    let machine = |place: usize| {
        format!(
            r#"{{"metadata":{{"namespace":"team-a","name":"m-{number}-{place}","uid":"u","resourceVersion":"1"}},"spec":{{"clusterName":"prod","providerID":"cloud:///{number:08}{place:08}{}"}}}}"#,
            "x".repeat(16_000)
        )
    };
    let machines = (0..4).map(machine).collect::<Vec<_>>().join(",");
    format!(r#"{{"metadata":{{"resourceVersion":"10","continue":"{next}"}},"items":[{machines}]}}"#)
}

/// The server's lists have no end, and other Machines each time. Texts that nobody uses any more count as well.
#[test]
fn a_list_that_is_given_up_leaves_no_bytes_behind() {
    const MOST_BYTES: usize = 1 << 20;
    const SLACK: i64 = 64 << 10;
    let (asked, go, numbers) = (Arc::new(Notify::new()), Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    let shared = (Arc::clone(&asked), Arc::clone(&go));
    let server = tower::service_fn(move |request: Request<kube::client::Body>| {
        let query = request.uri().query().unwrap_or_default();
        let (is_watch, is_later_page) = (query.contains("watch=true"), query.contains("continue="));
        let ((asked, go), number) = (shared.clone(), numbers.fetch_add(1, Ordering::Relaxed));
        async move {
            // The first list, which ends, is what is known.
            let is_known = number == 0;
            if !is_known && !is_later_page {
                asked.notify_one();
                go.notified().await;
            }
            let body = if is_watch {
                "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410}}\n".to_owned()
            } else {
                long_page(number, &if is_known { String::new() } else { number.to_string() })
            };
            Ok::<_, Infallible>(Response::new(Body::from(body)))
        }
    });
    let runtime = unhurried();
    let _entered = runtime.enter();
    let short = Duration::from_millis(5);
    let settings = Settings {
        streaming_lists: false,
        max_bytes: MOST_BYTES,
        backoff_min: short,
        backoff_max: short,
        ..Settings::default()
    };
    let context = Context::new(DEFAULT_GROUP);
    let factory = Factory::new(Client::new(server, "default"), runtime.handle(), settings)
        .with_texts(Arc::clone(&context.interner));
    let kind = GroupVersionKind::gvk(DEFAULT_GROUP, "v1beta2", "Machine");
    let machines = ApiResource::from_gvk_with_plural(&kind, "machines");
    let informer = factory.informer(Query::all(machines), Machine::projection(&context));
    let registration = informer.add_handler(|_: Event<Machine>| {});
    runtime.block_on(registration.synced());
    // Each watch and each list waits for its turn.
    runtime.block_on(asked.notified());
    let next = || {
        go.notify_one();
        runtime.block_on(asked.notified());
    };
    next();
    let first = measure(next);
    assert!(first.bytes_max > MOST_BYTES as u64, "{} bytes are no full list", first.bytes_max);
    assert!(first.bytes_current <= SLACK, "{} bytes are left of a list", first.bytes_current);
    let later = measure(|| (0..8).for_each(|_| next()));
    assert!(later.bytes_max <= 2 * MOST_BYTES as u64, "{} bytes at once", later.bytes_max);
    assert!(later.bytes_current <= SLACK, "{} bytes are left of eight lists", later.bytes_current);
    assert_eq!(informer.store().len(), 4, "what is known stays");
}
