//! A copy of the program: the code that ships, run again from its first event whenever it is asked what it does. Its
//! index, its memory and its clock are its own, so that the list of its events is all of its state.

use std::{collections::HashMap, sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use futures::FutureExt as _;
use http::{Method, Request, Response};
use kube::client::{Body, Client};
use parking_lot::Mutex;
use rules::GroupId;
use rules::capi::Keys;
use serde_json::{Value, json};
use shared_informer::Spawner;
use tokio::{
    runtime::{Builder, Handle},
    sync::{Notify, oneshot},
    task::yield_now,
    time::{sleep, timeout},
};

use super::world::{Bounds, Call, Command, SLOTS, Set, Shown, each, one};
use crate::{
    Api, EventRecorder, NamedNode, Scale, ScaleMetrics, ScaleOptions,
    fake::{Path, answer, empty_index, instance, machine, machine_set, meta, nodes, resources, show, status, workers},
};
use index::{Change, Index};

/// What happens to a copy.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Event {
    /// Its watches show the objects as they are now.
    Watch(Shown),
    Ask(Command),
    /// The call at this position among those without an answer is answered, with a code, 0 if the connection is cut.
    Answer(usize, u16, Shown),
    /// Time passes until it does something by itself, for five seconds at most.
    Wait,
}

/// What a copy does after its events.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    /// The calls without an answer.
    pub(super) calls: Vec<Call>,
    pub(super) is_running: bool,
    /// The Machines whose deletion was answered OK.
    pub(super) accepted: Set,
}

type Sender = oneshot::Sender<Result<Response<Body>, tower::BoxError>>;

/// What a copy sees, its calls and its results.
struct Desk {
    bounds: Bounds,
    index: Arc<Index>,
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
                Call::Delete(machine, version, body["dryRun"].is_array())
            }
            _ => {
                let size = |at: usize| usize::try_from(body[at]["value"].as_u64().unwrap_or_default()).unwrap();
                let mut managers = self.managers.lock();
                managers.push(path.manager.clone());
                let writer = managers.iter().position(|known| *known == path.manager);
                Call::Size(size(1), size(2), writer.filter(|_| !path.is_dry_run))
            }
        }
    }

    fn answer(&self, position: usize, code: u16, objects: &Shown) {
        let (call, sender) = self.calls.lock().remove(position);
        let mut machines = each(objects.there()).map(|it| self.machine(it, objects));
        let value = match call {
            _ if code == 403 => status(code, "admission webhook \"policy\" denied the request"),
            _ if code != 200 => status(code, "it is gone, or has changed"),
            Call::List => json!({"metadata": {}, "items": machines.collect::<Vec<_>>()}),
            Call::ReadMachine(_) | Call::Delete(..) => machines.next().unwrap(),
            Call::ReadGroup | Call::Size(..) => {
                let (mut group, managers) = (self.group(objects), self.managers.lock());
                let manager = objects.writer.and_then(|writer| managers.get(writer)).map_or("another", String::as_str);
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

    fn ask(self: Arc<Self>, scale: Scale, command: Command) {
        drop(tokio::spawn(async move {
            let id = GroupId::parse(&format!("{}/team-a/workers", self.kind())).unwrap();
            let Command(named, bare) = command;
            let mut all: Vec<NamedNode> = each(named & !bare).flat_map(|it| nodes(&[&name(it)])).collect();
            all.extend(each(bare).flat_map(|it| instance(&format!("pending-machine-team-a_{}", name(it)))));
            if scale.delete(id, all).await.is_ok() {
                self.outcome.lock().accepted |= named;
            }
            self.changed.notify_one();
        }));
    }

    fn watch(&self, now: &Shown) {
        show(&self.index, &machine_set(i32::try_from(now.size).unwrap()));
        show(&self.index, &self.group(now));
        for it in 0..SLOTS {
            let (name, machine) = (name(it), self.machine(it, now));
            let node = json!({"kind": "Node", "metadata": {"name": name, "uid": name}, "spec": {"providerID": format!("cloud:///{name}")}});
            let (machine_gone, node_gone) = (Change::MachineGone(meta(&machine).key), Change::NodeGone(name.into()));
            for (set, object, gone) in [(now.there(), machine, machine_gone), (now.with_node, node, node_gone)] {
                if set & one(it) != 0 {
                    show(&self.index, &object);
                } else {
                    drop(self.index.apply_and_take_notices(gone));
                }
            }
        }
    }

    fn kind(&self) -> &'static str {
        if self.bounds.of("bare") > 0 { "MachineSet" } else { "MachineDeployment" }
    }

    fn group(&self, now: &Shown) -> Value {
        let mut group = workers(i32::try_from(now.size).unwrap());
        group["kind"] = json!(self.kind());
        let metadata = &mut group["metadata"];
        (metadata["uid"], metadata["generation"]) = (json!("uid-of-group"), json!(now.version));
        metadata["resourceVersion"] = json!(now.version.to_string());
        metadata["annotations"]["cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size"] = json!("0");
        group
    }

    fn machine(&self, number: usize, now: &Shown) -> Value {
        let (name, is_in) = (name(number), |set: Set| set & one(number) != 0);
        // One of the distant future was deleted a moment ago, however long the search takes.
        let deleted = is_in(now.deleting).then_some("2999-01-01T00:00:00Z");
        let metadata = json!({"resourceVersion": now.versions[number].to_string(), "deletionTimestamp": deleted});
        let node = is_in(now.with_node).then(|| json!({"name": name}));
        let phase = if is_in(now.seen) { "Deleting" } else { "Running" };
        let mut machine = machine(&name, &json!({"nodeRef": node, "phase": phase}), &metadata);
        if self.bounds.of("bare") > 0 {
            machine["metadata"]["ownerReferences"][0]["name"] = json!("workers");
        }
        machine
    }
}

fn name(machine: usize) -> String {
    char::from(b'a' + u8::try_from(machine).unwrap()).to_string()
}

/// Runs a copy through its events, on a clock that goes on only by them.
fn replay(bounds: Bounds, events: &[Event]) -> Outcome {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let (index, calls, managers) = (Arc::new(empty_index()), Mutex::default(), Mutex::default());
        let (outcome, changed) = (Mutex::default(), Notify::default());
        let desk = Arc::new(Desk { bounds, index: Arc::clone(&index), calls, managers, outcome, changed });
        let calls = Arc::clone(&desk);
        let client = Client::new(tower::service_fn(move |request| Arc::clone(&calls).serve(request)), "default");
        let api = Api::new(client, Arc::new(ArcSwapOption::from_pointee(resources())), Keys::default());
        // Wrapped tasks don't yield the thread, which takes long on a busy machine.
        let tasks = Spawner::from(Handle::current()).around(|task| task);
        let (options, metrics) = (ScaleOptions::default(), ScaleMetrics::default());
        let scale = Scale::new(index, api, options, metrics, EventRecorder::off(), tasks);
        for event in events {
            match event {
                Event::Watch(now) => {
                    let waiting = desk.calls.lock().len();
                    desk.watch(now);
                    for _ in 0..30 {
                        yield_now().await;
                        // The observer of sizes, which only reports, asks who has written one.
                        if desk.calls.lock().len() > waiting {
                            desk.answer(waiting, 403, &Shown::default());
                        }
                    }
                    continue;
                }
                Event::Ask(command) => {
                    Arc::clone(&desk).ask(scale.clone(), *command);
                    // Deletes that arrive together are gathered for so long.
                    sleep(Duration::from_millis(6)).await;
                }
                Event::Answer(position, code, objects) => desk.answer(*position, *code, objects),
                Event::Wait => {
                    let _ = desk.changed.notified().now_or_never();
                    let _ = timeout(Duration::from_secs(5), desk.changed.notified()).await;
                }
            }
            // A paused clock goes on when all tasks wait.
            sleep(Duration::from_millis(1)).await;
        }
        let calls = desk.calls.lock().iter().map(|(call, _)| *call).collect();
        Outcome { calls, is_running: scale.busy_groups() > 0, ..desk.outcome.lock().clone() }
    })
}

/// The lists of events that copies have had, each with what the copy does then. A list is known by its number.
pub(super) struct Logs {
    bounds: Bounds,
    pub(super) lists: Vec<List>,
    numbers: HashMap<Vec<Event>, usize>,
}

#[derive(Clone, Default)]
pub(super) struct List {
    pub(super) events: Vec<Event>,
    /// The objects that its watches have shown last.
    pub(super) shown: Shown,
    pub(super) outcome: Arc<Outcome>,
}

impl Logs {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self { bounds, lists: vec![List::default()], numbers: HashMap::new() }
    }

    /// Returns the list with one more event.
    pub(super) fn then(&mut self, list: usize, event: Event) -> usize {
        let mut next = self.lists[list].clone();
        // What it does after a watch it does when time passes, or at the next answer.
        if let Event::Watch(shown) = event {
            next.shown = shown;
            next.events.pop_if(|last| matches!(last, Event::Watch(_)));
        }
        next.events.push(event);
        *self.numbers.entry(next.events.clone()).or_insert_with(|| {
            if !matches!(event, Event::Watch(_)) {
                next.outcome = Arc::new(replay(self.bounds, &next.events));
            }
            self.lists.push(next);
            self.lists.len() - 1
        })
    }
}
