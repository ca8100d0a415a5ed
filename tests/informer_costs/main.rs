//! The costs of objects, of events and of an object's deletion log, counted instead of timed: allocations, bytes, and
//! wake-ups of tasks. The allocator is the whole binary's, and counts the allocations of the test's own thread. They
//! read objects of Cluster API into the index, which the crate of the informer doesn't know.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod reads;

use std::{
    convert::Infallible,
    fmt,
    path::Path,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context as TaskContext, Poll},
    time::Duration,
};

use allocation_counter::measure;
use axum::body::{Body, Bytes};
use capi::{
    Cluster, Context, DEFAULT_GROUP, InfrastructureTemplate, Interner, Machine, Node, ScalableKind, ScalableResource,
};
use change_stream::changes::ObjectJson;
use futures::{StreamExt as _, stream};
use http::{Request, Response};
use index::{Change, Index};
use kube::{
    Client,
    core::{ApiResource, GroupVersionKind},
};
use nodegroup::{DeletionLog, GroupId, LogAnnotation as _, Rules, Scope};
use serde_json::{Value, json};
use shared_informer::{Event, Factory, Projection, Query, Settings, Spawner, Task};
use tokio::sync::Notify;

/// Returns the first object of a kind in a fixture that isn't part of a control plane.
fn object(file: &str, kind: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/steady").join(file);
    let list: Value = serde_yaml::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let is_it = |object: &&Value| object["kind"] == kind && !object.to_string().contains("control-plane\":\"\"");
    list["items"].as_array().unwrap().iter().find(is_it).unwrap_or_else(|| panic!("no {kind}")).clone()
}

/// Returns the allocations of decoding an object whose strings are interned.
fn allocations<T: fmt::Debug>(projection: &Projection<T>, object: &Value) -> u64 {
    let (json, texts) = (object.to_string(), Interner::default());
    let known = projection.read(&json, &texts);
    assert!(known.unwrap().content.is_ok());
    let mut read = None;
    let counted = measure(|| read = projection.read_quickly(&json, &texts)).count_total;
    assert!(read.is_some(), "one pass is enough: {json}");
    counted
}

#[test]
fn an_object_is_read_with_few_allocations_however_long_it_is() {
    let context = Context::new(DEFAULT_GROUP);
    let management = "management-v1beta2.yaml";
    let machine = object(management, "Machine");
    let counted = [
        ("Machine", allocations(&Machine::projection(&context), &machine), 8),
        ("Node", allocations(&Node::projection(&context), &object("workload-nodes.yaml", "Node")), 5),
        ("Cluster", allocations(&Cluster::projection(), &object(management, "Cluster")), 20),
    ];
    for (kind, counted, bound) in counted {
        assert!(counted <= bound, "a {kind} takes {counted} allocations, more than {bound}");
    }
    let groups = ScalableResource::projection(ScalableKind::MachineDeployment, &context);
    let counted = allocations(&groups, &object(management, "MachineDeployment"));
    assert!(counted <= 15, "a MachineDeployment takes {counted} allocations");
    let template = object("templates.yaml", "DevMachineTemplate");
    let counted = allocations(&InfrastructureTemplate::projection(), &template);
    assert!(counted <= 11, "a template takes {counted} allocations");
    // These fields aren't decoded, however many there are.
    let mut long = machine.clone();
    long["metadata"]["managedFields"] = (0..100).map(|number| json!({"manager": format!("m{number}")})).collect();
    long["spec"]["other"] = json!({"a": {"b": ["c"]}});
    let projection = Machine::projection(&context);
    assert_eq!(allocations(&projection, &long), allocations(&projection, &machine));
}

/// Half the text of many objects are managed fields, which `watch` seldom looks at.
#[test]
fn managed_fields_of_a_watched_object_cost_the_same_however_many_they_are() {
    let with = |fields: usize| {
        let fields: Value = (0..fields).map(|number| (format!("f:{number}"), json!({}))).collect();
        let managers = json!([{"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsV1": fields}]);
        json!({"metadata": {"name": "one", "managedFields": managers}, "spec": {"a": 1}}).to_string()
    };
    let allocations = |json: &str| {
        let mut read = None;
        let counted = measure(|| read = serde_json::from_str::<ObjectJson>(json).ok()).count_total;
        assert!(read.is_some());
        counted
    };
    assert_eq!(allocations(&with(1)), allocations(&with(1_000)));
}

/// Returns a deletion log of this many Machines, with names and uids like Cluster API's.
fn log_of(machines: usize) -> String {
    let machine = |number: usize| format!(r#""prod-md-0-x9wfq-{number:05x}":"9b4bf4b1-715d-4c5b-a5ff-{number:012x}""#);
    let machines = (0..machines).map(machine).collect::<Vec<_>>().join(",");
    format!(r#"[{{"ticket":"t","phase":"lowered","machines":{{{machines}}}}}]"#)
}

/// A tenant chooses the length of the text, up to its limit.
#[test]
fn a_text_costs_what_its_entries_do() {
    let cost = |machines: usize| {
        let text = log_of(machines);
        let mut log = None;
        let counted = measure(|| log = DeletionLog::parse(Some(&text)).ok());
        assert_eq!(log.map(|log| log.entries().len()), Some(machines));
        (counted.count_total, counted.bytes_max, text.len() as u64)
    };
    let ((few, few_bytes, _), (many, many_bytes, length)) = (cost(100), cost(1_000));
    assert!(many <= 12 * few, "{few} allocations for 100 entries, {many} for 1,000");
    assert!(many_bytes <= 12 * few_bytes, "{few_bytes} bytes for 100 entries, {many_bytes} for 1,000");
    assert!(many_bytes <= 16 * length, "{many_bytes} bytes for a text of {length}");
    // Beyond its limit a text is refused before any of it is kept.
    let text = format!("{}{}", log_of(1_000), " ".repeat(160 << 10));
    let refused = measure(|| assert!(DeletionLog::parse(Some(&text)).is_err()));
    assert!(refused.bytes_max < 1_024, "{}", refused.bytes_max);
}

/// Counts the polls of a task.
struct Polled {
    task: Task,
    polls: Arc<AtomicUsize>,
}

impl Future for Polled {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<()> {
        self.polls.fetch_add(1, Ordering::Relaxed);
        self.task.as_mut().poll(context)
    }
}

const MACHINES: usize = 50;
const ROUNDS: usize = 20;

/// Returns the bytes that stay allocated for groups with these annotations.
fn bytes_of_groups(count: usize, annotations: &dyn Fn(usize) -> Value) -> u64 {
    let (shared, index) = (Context::new(DEFAULT_GROUP), Index::new(Rules::new(Scope::All)));
    let projection = ScalableResource::projection(ScalableKind::MachineDeployment, &shared);
    let mut held = Vec::with_capacity(count);
    let measured = measure(|| {
        for number in 0..count {
            let object = json!({
                "metadata": {"namespace": "team-a", "name": format!("group-{number}"), "uid": "u", "resourceVersion": "1",
                    "annotations": annotations(number)},
                "spec": {"clusterName": "stage", "replicas": 3},
            });
            let object = projection.read(&object.to_string(), &shared.interner).unwrap();
            match &object.content {
                Ok(content) => index.apply(Change::Scalable(Arc::clone(content))),
                Err(error) => {
                    let id = GroupId::of(ScalableKind::MachineDeployment, &object.metadata);
                    index.apply(Change::ScalableUndecodable(id, error.message().clone()));
                }
            }
            held.push(object);
        }
    });
    u64::try_from(measured.bytes_current).unwrap()
}

/// A tenant may write 256 KiB of annotations into each of its objects.
#[test]
fn objects_as_large_as_an_api_server_takes_them_are_kept_in_little_memory() {
    const PREFIX: &str = "capacity.cluster-autoscaler.kubernetes.io";
    const OWN: &str = "capacity.capi-autoscaler-provider.io";
    const COUNT: usize = 100;
    /// With this limit a thousand of them take less than two thirds of the chart's limit of 256 MiB.
    const MOST: u64 = 160 << 10;
    let bounds = || {
        json!({"cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": "1",
            "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": "10",
            format!("{PREFIX}/cpu"): "4", format!("{PREFIX}/memory"): "16Gi"})
    };
    let with = |more: Vec<(String, String)>| {
        let mut annotations = bounds();
        for (key, value) in more {
            annotations[key] = value.into();
        }
        annotations
    };
    let list = |entry: &dyn Fn(usize) -> String| {
        let mut text = entry(0);
        for next in (1..).map(entry) {
            if text.len() + next.len() >= 14_000 {
                break;
            }
            text = text + "," + &next;
        }
        text
    };
    let sparse = |number: usize, count: usize| {
        let keys = (0..count).map(|key| (format!("{PREFIX}/key-{key}"), format!("{number}-{}", "v".repeat(14_000))));
        with(keys.collect())
    };
    let (few, many) = (|number| sparse(number, 2), |number| sparse(number, 16));
    let packed = |number: usize| {
        with(vec![
            (format!("{PREFIX}/labels"), list(&|n| format!("l{n}=v{number}"))),
            (format!("{OWN}/resources"), list(&|n| format!("r{n}={number}"))),
        ])
    };
    let long = |number: usize| {
        let name = "d".repeat(60);
        with(vec![
            (format!("{PREFIX}/labels"), list(&|n| format!("{name}.example/l{n}=v{number}"))),
            (format!("{PREFIX}/taints"), list(&|n| format!("{name}.example/t{n}=v{number}:NoSchedule"))),
        ])
    };
    let tiny = |number: usize| {
        let keys = (0..4_000).map(|key| (format!("{PREFIX}/{key}"), format!("{number}")));
        with(keys.collect())
    };
    let logged = |number: usize| {
        let machines: Vec<_> = (0..1_000).map(|n| format!(r#""m-{number}-{n}":"{number:060}-{n:060}""#)).collect();
        let text = format!(r#"[{{"ticket":"t","phase":"lowered","machines":{{{}}}}}]"#, machines.join(","));
        with(vec![("capi-autoscaler-provider.io/deleting".to_owned(), text)])
    };
    let attacks: [(&str, &dyn Fn(usize) -> Value); 6] =
        [("few", &few), ("many", &many), ("packed", &packed), ("long", &long), ("tiny", &tiny), ("logged", &logged)];
    for (name, attack) in attacks {
        let each = bytes_of_groups(COUNT, attack) / COUNT as u64;
        println!("{name}: {each} bytes for each object");
        assert!(each <= MOST, "{name}: {each} bytes are held for each object");
    }
}

/// Whatever a Machine and its Node take in the index, with their texts and their places in all tables, counts. The
/// number of them fills the tables as a hundred thousand do: three quarters.
#[test]
fn a_machine_and_its_node_take_few_bytes() {
    const GROUPS: usize = 125;
    const EACH: usize = 100;
    let (context, index) = (Context::new(DEFAULT_GROUP), Index::new(Rules::new(Scope::All)));
    let management = "management-v1beta2.yaml";
    let named = |kind: &str, name: &str| {
        let mut found = object(management, kind);
        found["metadata"]["name"] = json!(name);
        found
    };
    let owned = |kind: &str, name: &str, owner: &str| {
        let mut found = named(kind, name);
        found["metadata"]["ownerReferences"][0]["name"] = json!(owner);
        found
    };
    for (kind, scalable) in
        [("MachineDeployment", ScalableKind::MachineDeployment), ("MachineSet", ScalableKind::MachineSet)]
    {
        let projection = ScalableResource::projection(scalable, &context);
        for number in 0..GROUPS {
            let found = match scalable {
                ScalableKind::MachineSet => owned(kind, &format!("md-{number}-x9wfq"), &format!("md-{number}")),
                ScalableKind::MachineDeployment | ScalableKind::MachinePool => named(kind, &format!("md-{number}")),
            };
            let read = projection.read(&found.to_string(), &context.interner).unwrap();
            index.apply(Change::Scalable(read.content.unwrap()));
        }
    }
    let (machines, nodes) = (Machine::projection(&context), Node::projection(&context));
    let (machine, node) = (object(management, "Machine"), object("workload-nodes.yaml", "Node"));
    let add = |number: usize| {
        let (set, place) = (format!("prod-md-{:04}-x9wfq", number / EACH), number.wrapping_mul(2_654_435_761));
        let name = format!("{set}-{:07x}", place & 0xfff_ffff);
        let uid = format!("{number:08x}-95ee-43d9-b9a3-c86079a72f87");
        let provider_id = format!("aws:///eu-central-1a/i-0{number:08x}9b4bf4b17");
        let node_name =
            format!("ip-10-{}-{}-{}.eu-central-1.compute.internal", number >> 16, number >> 8 & 255, number & 255);
        let (mut machine, mut node) = (machine.clone(), node.clone());
        machine["metadata"]["name"] = json!(name);
        machine["metadata"]["ownerReferences"][0]["name"] = json!(format!("md-{}-x9wfq", number / EACH));
        machine["status"]["nodeRef"]["name"] = json!(node_name);
        node["metadata"]["name"] = json!(node_name);
        node["metadata"]["annotations"]["cluster.x-k8s.io/machine"] = json!(name);
        node["metadata"]["annotations"]["cluster.x-k8s.io/cluster-namespace"] = json!("team-a");
        for object in [&mut machine, &mut node] {
            object["metadata"]["uid"] = json!(uid);
            object["spec"]["providerID"] = json!(provider_id);
        }
        let machine = machines.read_quickly(&machine.to_string(), &context.interner).unwrap();
        let node = nodes.read_quickly(&node.to_string(), &context.interner).unwrap();
        index.apply(Change::Machine(machine.content.unwrap()));
        index.apply(Change::Node(node.content.unwrap()));
    };
    let taken = measure(|| (0..GROUPS * EACH).for_each(add)).bytes_current;
    let each = usize::try_from(taken).unwrap() / (GROUPS * EACH);
    assert!(each <= 540, "a Machine and its Node take {each} bytes");
}

/// Returns one line for each Machine, with other versions in each round.
fn rounds(first: &str, later: &str) -> Vec<Bytes> {
    let machine = object("management-v1beta2.yaml", "Machine");
    let line = |round: usize, number: usize| {
        let mut machine = machine.clone();
        machine["metadata"]["name"] = json!(format!("machine-{number}"));
        machine["metadata"]["resourceVersion"] = json!((100 + round * MACHINES + number).to_string());
        let kind = if round == 0 { first } else { later };
        format!("{{\"type\":\"{kind}\",\"object\":{machine}}}\n")
    };
    (0..=ROUNDS).map(|round| (0..MACHINES).map(|number| line(round, number)).collect::<String>().into()).collect()
}

#[test]
fn an_event_takes_few_allocations_and_lines_that_come_together_wake_each_task_once() {
    let (rounds, go) = (rounds("ADDED", "MODIFIED"), Arc::new(Notify::new()));
    let answers = (rounds, Arc::clone(&go));
    let server = tower::service_fn(move |request: Request<kube::client::Body>| {
        let (rounds, go) = answers.clone();
        async move {
            let body = if request.uri().query().unwrap_or_default().contains("watch=true") {
                let round = move |round| {
                    let go = Arc::clone(&go);
                    async move {
                        go.notified().await;
                        Ok::<Bytes, Infallible>(round)
                    }
                };
                Body::from_stream(stream::iter(rounds).then(round).chain(stream::pending()))
            } else {
                Body::from(r#"{"metadata":{"resourceVersion":"10"},"items":[]}"#)
            };
            Ok::<_, Infallible>(Response::new(body))
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let _context = runtime.enter();
    let polls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&polls);
    let spawner =
        Spawner::from(runtime.handle()).around(move |task| Box::pin(Polled { task, polls: Arc::clone(&counted) }));
    let settings = Settings { streaming_lists: false, ..Settings::default() };
    let factory = Factory::new(Client::new(server, "default"), spawner, settings);
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
        go.notify_one();
        runtime.block_on(news.notified());
    };
    runtime.block_on(registration.synced());
    // The first round adds the Machines.
    round();
    let before = polls.load(Ordering::Relaxed);
    let allocations = measure(|| (0..ROUNDS).for_each(|_| round())).count_total;
    let polls = polls.load(Ordering::Relaxed) - before;
    assert_eq!(reported.load(Ordering::Relaxed), ((ROUNDS + 1) * MACHINES) as u64, "no two changes are merged");
    assert_eq!(informer.status().events.updated, (ROUNDS * MACHINES) as u64);
    let each = allocations.div_ceil((ROUNDS * MACHINES) as u64);
    // One is the old object of a handler's event, of which the store keeps only the content.
    assert!(each <= 11, "an event takes {each} allocations");
    // The informer's task is polled once more, since it yields to other tasks of its thread.
    assert!(polls <= 3 * ROUNDS, "{polls} polls of two tasks for {ROUNDS} parts of a watch");
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
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
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
