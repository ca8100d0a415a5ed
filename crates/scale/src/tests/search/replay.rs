//! A copy of the program: the code that ships, run again from its first event whenever it is asked what it does. Its
//! index, its memory and its clock are its own, so that the list of its events is all of its state.

use std::{collections::HashMap, sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use capi::{Keys, Machine as CapiMachine, Node, ScalableKind, ScalableResource};
use futures::FutureExt as _;
use http::{Method, Request, Response};
use kube::client::{Body, Client};
use nodegroup::GroupId;
use parking_lot::Mutex;
use serde_json::{Value, json};
use shared_informer::Spawner;
use tokio::{
    runtime::{Builder, Handle},
    sync::{Notify, oneshot},
    task::{JoinHandle, yield_now},
    time::{advance, sleep, timeout},
};

use super::world::{Answer, Bounds, Call, Command, Life, Machine, Set, Shown, each};
use crate::{
    Api, EventRecorder, NodeName, Scale, ScaleMetrics, ScaleOptions,
    fake::{
        Path, answer, context, empty_index, instance, machine, machine_set, meta, nodes, resources, status, workers,
    },
};
use index::{Change, Index};

/// What happens to a copy.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Event {
    /// Its watches show the objects as they are now.
    Watch(Shown),
    Ask(Command),
    /// The call at this position among those without an answer is answered.
    Answer(usize, Answer),
    /// Time passes until it does something by itself, for five seconds at most.
    Wait,
    /// Its callers leave.
    Leave,
}

/// What a copy does after its events.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    /// The calls without an answer.
    pub(super) calls: Vec<Call>,
    pub(super) is_running: bool,
    /// The Machines whose deletion was answered OK.
    pub(super) accepted: Set,
    pub(super) has_failed_decrease: bool,
}

type Sender = oneshot::Sender<Result<Response<Body>, tower::BoxError>>;

/// The calls and results of a copy.
#[derive(Default)]
struct Desk {
    calls: Mutex<Vec<(Call, Sender)>>,
    /// The field managers of size writes, whose names are random.
    managers: Mutex<Vec<String>>,
    outcome: Mutex<Outcome>,
    changed: Notify,
}

impl Desk {
    async fn serve(self: Arc<Self>, request: Request<Body>) -> Result<Response<Body>, tower::BoxError> {
        let (head, body) = request.into_parts();
        let body = serde_json::from_slice(&body.collect_bytes().await?).unwrap_or_default();
        let (sender, receiver) = oneshot::channel();
        let call = self.call(&head.method, &Path::parse(&head.uri), &body);
        self.calls.lock().push((call, sender));
        self.changed.notify_one();
        receiver.await?
    }

    fn call(&self, method: &Method, path: &Path, body: &Value) -> Call {
        let machine = usize::from(path.name.as_bytes().first().map_or(0, |name| name - b'a'));
        match (method, path.plural.as_str()) {
            (&Method::GET, "machines") if path.name.is_empty() => Call::List,
            (&Method::GET, "machines") => Call::ReadMachine(machine),
            (&Method::GET, _) => Call::ReadGroup,
            (&Method::DELETE, _) => {
                let version = body["preconditions"]["resourceVersion"].as_str().map(|text| text.parse().unwrap());
                let is_tried = body["dryRun"].is_array();
                if is_tried { Call::TryDelete(machine, version) } else { Call::Delete(machine, version) }
            }
            _ => {
                let [from, to] =
                    [1, 2].map(|at| usize::try_from(body[at]["value"].as_u64().unwrap_or_default()).unwrap());
                let mut managers = self.managers.lock();
                managers.push(path.manager.clone());
                let writer = managers.iter().position(|known| *known == path.manager).unwrap();
                if path.is_dry_run { Call::TrySize(from, to) } else { Call::Size(from, to, writer) }
            }
        }
    }

    fn answer(&self, position: usize, given: Answer, bounds: Bounds) {
        let (call, sender) = self.calls.lock().remove(position);
        let Answer { code, objects, writer } = given;
        let machines = objects.machines.iter().enumerate().filter(|(_, machine)| machine.is_there());
        let mut machines = machines.map(|(number, machine)| machine_object(bounds, number, *machine));
        let value = match call {
            _ if code == 403 => status(code, "admission webhook \"policy\" denied the request"),
            _ if code != 200 => status(code, "it is gone, or has changed"),
            Call::List => json!({"metadata": {}, "items": machines.collect::<Vec<_>>()}),
            Call::ReadMachine(_) | Call::TryDelete(..) | Call::Delete(..) => machines.next().unwrap(),
            Call::ReadGroup | Call::TrySize(..) | Call::Size(..) => {
                let (mut group, managers) = (group_object(bounds, &objects), self.managers.lock());
                let manager = writer.and_then(|writer| managers.get(writer)).map_or("another", String::as_str);
                let entry = json!({"manager": manager, "fieldsV1": {"f:spec": {"f:replicas": {}}}});
                group["metadata"]["managedFields"] = json!([entry]);
                if call != Call::ReadGroup {
                    (group["apiVersion"], group["kind"]) = (json!("autoscaling/v1"), json!("Scale"));
                }
                group
            }
        };
        // Nobody waits for it if its command has ended.
        let _ = sender.send(if code == 0 { Err("connection reset".into()) } else { Ok(answer(code, &value)) });
    }
}

/// Runs a copy through its events, on a clock that goes on only by them.
fn replay(bounds: Bounds, events: &[Event]) -> Outcome {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let (desk, index) = (Arc::new(Desk::default()), Arc::new(empty_index()));
        let calls = Arc::clone(&desk);
        let client = Client::new(tower::service_fn(move |request| Arc::clone(&calls).serve(request)), "default");
        let api = Api::new(client, Arc::new(ArcSwapOption::from_pointee(resources())), Keys::default());
        // Wrapped tasks don't yield the thread, which takes long on a busy machine.
        let tasks = Spawner::from(Handle::current()).around(|task| task);
        let (options, metrics) = (ScaleOptions::default(), ScaleMetrics::default());
        let scale = Scale::new(Arc::clone(&index), api, options, metrics, EventRecorder::off(), tasks);
        let mut callers = Vec::new();
        for event in events {
            match event {
                Event::Watch(now) => {
                    let waiting = desk.calls.lock().len();
                    watch(&index, bounds, now);
                    for _ in 0..30 {
                        yield_now().await;
                        // The observer of sizes, which only reports, asks who has written one.
                        if desk.calls.lock().len() > waiting {
                            desk.answer(waiting, Answer::failed(403), bounds);
                        }
                    }
                    continue;
                }
                Event::Ask(command) => {
                    callers.push(ask(&desk, &scale, *command, bounds));
                    // Deletes that arrive together are gathered for so long.
                    for _ in 0..120 {
                        yield_now().await;
                    }
                    advance(Duration::from_micros(400)).await;
                }
                Event::Answer(position, answer) => desk.answer(*position, *answer, bounds),
                Event::Wait => {
                    let _ = desk.changed.notified().now_or_never();
                    let _ = timeout(Duration::from_secs(5), desk.changed.notified()).await;
                }
                Event::Leave => callers.iter().for_each(JoinHandle::abort),
            }
            // A paused clock goes on when all tasks wait.
            sleep(Duration::from_millis(1)).await;
        }
        let calls = desk.calls.lock().iter().map(|(call, _)| *call).collect();
        Outcome { calls, is_running: scale.remembered() > 0, ..desk.outcome.lock().clone() }
    })
}

fn ask(desk: &Arc<Desk>, scale: &Scale, command: Command, bounds: Bounds) -> JoinHandle<()> {
    let kind = if bounds.of("bare") > 0 { "MachineSet" } else { "MachineDeployment" };
    let id = GroupId::parse(&format!("{kind}/team-a/workers")).unwrap();
    let (desk, scale) = (Arc::clone(desk), scale.clone());
    tokio::spawn(async move {
        let result = match command {
            Command::Increase => scale.increase(id, 1).await,
            Command::Decrease => scale.decrease(id, -1).await,
            Command::Delete(named, bare, replicas) => {
                let mut all: Vec<NodeName> = each(named & !bare).flat_map(|it| nodes(&[&name(it)])).collect();
                all.extend(each(bare).flat_map(|it| instance(&format!("pending-machine-team-a_{}", name(it)))));
                all.extend((0..replicas).flat_map(|it| instance(&format!("replica-{kind}-team-a_workers-{it}"))));
                scale.delete(id, all).await
            }
        };
        let mut outcome = desk.outcome.lock();
        match (command, result) {
            (Command::Delete(named, ..), Ok(())) => outcome.accepted |= named,
            (Command::Decrease, Err(_)) => outcome.has_failed_decrease = true,
            _ => {}
        }
        desk.changed.notify_one();
    })
}

fn watch(index: &Index, bounds: Bounds, now: &Shown) {
    let apply = |change| drop(index.apply_quietly(change));
    let size = i32::try_from(now.size).unwrap();
    let kind = if bounds.of("bare") > 0 { ScalableKind::MachineSet } else { ScalableKind::MachineDeployment };
    for (kind, value) in [(ScalableKind::MachineSet, machine_set(size)), (kind, group_object(bounds, now))] {
        apply(Change::Scalable(Arc::new(ScalableResource::decode(kind, meta(&value), &value, &context()).unwrap())));
    }
    for (number, machine) in now.machines.iter().enumerate() {
        let (name, value) = (name(number), machine_object(bounds, number, *machine));
        apply(if machine.is_there() {
            Change::Machine(Arc::new(CapiMachine::decode(meta(&value), &value, &context()).unwrap()))
        } else {
            Change::MachineGone(meta(&value).key)
        });
        let node = json!({"metadata": {"name": name, "uid": name}, "spec": {"providerID": format!("cloud:///{name}")}});
        apply(if machine.has_node {
            Change::Node(Arc::new(Node::decode(meta(&node), &node, &context()).unwrap()))
        } else {
            Change::NodeGone(name.into())
        });
    }
}

fn group_object(bounds: Bounds, now: &Shown) -> Value {
    let mut group = workers(i32::try_from(now.size).unwrap());
    let (metadata, min) = (&mut group["metadata"], bounds.of("min").to_string());
    metadata["annotations"]["cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size"] = json!(min);
    (metadata["uid"], metadata["generation"]) = (json!("uid-of-group"), json!(now.version));
    metadata["resourceVersion"] = json!(now.version.to_string());
    group
}

fn machine_object(bounds: Bounds, number: usize, it: Machine) -> Value {
    let name = name(number);
    // One of the distant future was deleted a moment ago, however long the search takes.
    let deleted = if it.hangs { "2026-01-01T00:00:00Z" } else { "2999-01-01T00:00:00Z" };
    let metadata = json!({
        "resourceVersion": it.version.to_string(), "deletionTimestamp": (it.life == Life::Deleting).then_some(deleted),
    });
    // A nodeRef stays when its Node has gone.
    let node = (it.has_node || it.hangs).then(|| json!({"name": name}));
    let phase = if it.is_seen { "Deleting" } else { "Running" };
    let mut machine = machine(&name, &json!({"nodeRef": node, "phase": phase}), &metadata);
    if bounds.of("bare") > 0 {
        machine["metadata"]["ownerReferences"][0]["name"] = json!("workers");
    }
    machine
}

fn name(machine: usize) -> String {
    char::from(b'a' + u8::try_from(machine).unwrap()).to_string()
}

/// The lists of events that copies have had, each with what the copy does then. A list is known by its number.
pub(super) struct Logs {
    bounds: Bounds,
    pub(super) lists: Vec<List>,
    after: HashMap<(usize, Event), usize>,
}

#[derive(Clone, Default)]
pub(super) struct List {
    before: usize,
    pub(super) events: Vec<Event>,
    /// The objects that its watches have shown last.
    pub(super) shown: Option<Shown>,
    pub(super) outcome: Arc<Outcome>,
}

impl Logs {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self { bounds, lists: vec![List::default()], after: HashMap::new() }
    }

    /// Returns the list with one more event.
    pub(super) fn then(&mut self, list: usize, event: Event) -> usize {
        let is_again = matches!((self.lists[list].events.last(), event), (Some(Event::Watch(_)), Event::Watch(_)));
        let before = if is_again { self.lists[list].before } else { list };
        *self.after.entry((before, event)).or_insert_with(|| {
            let mut next = List { before, ..self.lists[before].clone() };
            next.events.push(event);
            match event {
                // What it does after that it does when time passes, or at the next answer.
                Event::Watch(shown) => next.shown = Some(shown),
                _ => next.outcome = Arc::new(replay(self.bounds, &next.events)),
            }
            self.lists.push(next);
            self.lists.len() - 1
        })
    }
}
