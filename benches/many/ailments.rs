//! Clusters that are ill in turns, while the autoscalers of others are measured.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use sandbox::{
    api::{Api, PatchKind, Resource, Subresource},
    clusters::ClusterOf,
    faults::{Effect, Fault, FaultHandle, Faults, WatchFault},
};
use serde_json::{Map, Value, json};
use testkit::Wait;

use crate::{
    parts::Part,
    world::{World, may_be_ill},
};

/// The delay of each answer of a slow API.
const SLOW: Duration = Duration::from_secs(2);
/// The length of an annotation of each Node in an endless list or watch.
const FILLER: usize = 1_000;
/// The requests for a list, and those for a watch that goes on after one.
const STREAMED_LIST: &str = "sendInitialEvents=true";
const WATCH_FROM: &str = "[?&]resourceVersion=";
/// The number of annotations, which are 250,000 bytes together: an API server takes 256 KiB.
const ANNOTATIONS: usize = 10_000;
/// The time between two changes of them.
const BETWEEN_CHANGES: Duration = Duration::from_millis(20);
/// The longest time until a Cluster has recovered: twice the longest pause between two attempts.
const RECOVERY: Duration = Duration::from_secs(120);
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);
/// The number of changes that the management API keeps of each kind, for watches that are behind.
const KEPT: usize = 100;

/// The ailment of some Clusters.
pub(crate) struct Ailing<'w> {
    world: &'w World<'w>,
    part: Part,
    ill: Vec<Ill<'w>>,
    changes: usize,
}

/// A Cluster that is ill in turns.
struct Ill<'w> {
    number: usize,
    cluster: &'w ClusterOf,
    /// The faults that are its ailment.
    faults: Vec<FaultHandle>,
    /// True if nobody watched its Nodes at the end of a turn with the ailment: a Secret that has become a bad one may
    /// be read before the first request meets the fault.
    was_lost: bool,
    changing: Option<Changing>,
}

impl<'w> Ailing<'w> {
    pub(crate) fn new(world: &'w World<'w>, part: Part) -> Self {
        let is_ill = |number: usize| match part {
            Part::Hostile => matches!(number % 100, 1 | 2),
            Part::EndlessWatch | Part::Annotations => number == 1,
            _ => may_be_ill(number),
        };
        let all = world.clusters().iter().enumerate().filter(|(number, _)| is_ill(*number));
        let ill =
            all.map(|(number, cluster)| Ill { number, cluster, faults: Vec::new(), was_lost: false, changing: None });
        Self { world, part, ill: ill.collect(), changes: 0 }
    }

    /// Begins the ailment, or ends it and waits until the Nodes of all Clusters are watched again.
    pub(crate) fn set(&mut self, is_on: bool) {
        let management = self.world.sandbox().management().api();
        for ill in &mut self.ill {
            if is_on {
                ill.begin(self.part, management);
            } else {
                self.changes += ill.end(self.part, management);
            }
        }
        if !is_on {
            let wait = Wait::new("the Nodes are watched again").within(RECOVERY).every(BETWEEN_LOOKS);
            self.world.block_on(wait.condition(|| self.ill.iter().all(Ill::is_watched)));
            // After a watch with an event the pauses begin anew. Otherwise they grow to a minute, and the next turn
            // with the ailment would be one without a request.
            self.ill.iter().for_each(Ill::change_node);
        }
    }

    /// Returns the number of ill Clusters of which the program has never noticed it.
    pub(crate) fn unnoticed(&self) -> usize {
        if self.part == Part::Annotations {
            return usize::from(!self.ill.is_empty() && self.changes == 0);
        }
        let is_unnoticed = |ill: &&Ill<'_>| !ill.was_lost && ill.faults.iter().all(|fault| fault.hits() == 0);
        self.ill.iter().filter(is_unnoticed).count()
    }

    /// Returns the number of requests that met an ailment, or that of changes.
    pub(crate) fn count(&self) -> usize {
        self.changes + self.ill.iter().flat_map(|ill| &ill.faults).map(FaultHandle::hits).sum::<usize>()
    }
}

impl Ill<'_> {
    fn begin(&mut self, part: Part, management: &Api) {
        let faults = self.cluster.workload.faults();
        let begun = match part {
            Part::Dead => {
                faults.add(Fault::watch(WatchFault::Cut));
                vec![faults.add(Fault::new(Effect::CutBefore))]
            }
            Part::Silent => with_a_cut(faults, Fault::new(Effect::Hold)),
            Part::Slow => with_a_cut(faults, Fault::new(Effect::Delay(SLOW))),
            Part::Hostile if self.number % 100 == 1 => {
                faults.add(Fault::watch(WatchFault::Expire).times(1));
                let [list, stream] = endless_lists();
                vec![faults.add(list), faults.add(stream)]
            }
            Part::Hostile => with_a_cut(faults, endless_watch(&event_of(self.cluster, None))),
            Part::EndlessWatch => with_a_cut(faults, endless_watch(&event_of(self.cluster, Some("9{number}")))),
            Part::Secret => {
                self.set_kubeconfig(management, &bad_kubeconfig(self.cluster, self.number));
                with_a_cut(faults, Fault::refuse(401, "Unauthorized", "Unauthorized"))
            }
            Part::Annotations => {
                self.changing = Some(Changing::start(management.clone(), self.cluster));
                Vec::new()
            }
            _ => Vec::new(),
        };
        self.faults.extend(begun);
    }

    /// Ends the ailment, and returns the number of changes.
    fn end(&mut self, part: Part, management: &Api) -> usize {
        self.was_lost |= part == Part::Secret && !self.is_watched();
        self.cluster.workload.faults().clear();
        if part == Part::Secret {
            self.set_kubeconfig(management, &self.cluster.workload.kubeconfig());
        }
        self.changing.take().map_or(0, Changing::end)
    }

    fn is_watched(&self) -> bool {
        self.cluster.workload.api().watches(&Resource::core("nodes")).is_ok_and(|watches| watches > 0)
    }

    fn change_node(&self) {
        let (api, node) = (self.cluster.workload.api(), &self.cluster.nodes()[0]);
        let name = node["metadata"]["name"].as_str().unwrap_or_default();
        let change = json!({"metadata": {"labels": {"example.com/change": api.revision().to_string()}}});
        let nodes = Resource::core("nodes");
        api.patch(&nodes, "", name, PatchKind::Merge, Subresource::Main, change).expect("another Node");
    }

    fn set_kubeconfig(&self, management: &Api, kubeconfig: &str) {
        let (namespace, name) = (&self.cluster.namespace, format!("{}-kubeconfig", self.cluster.name));
        let body = json!({"stringData": {"value": kubeconfig}});
        let secrets = Resource::core("secrets");
        management.patch(&secrets, namespace, &name, PatchKind::Merge, Subresource::Main, body).expect("a Secret");
    }
}

/// Cuts the watch in progress once, so that the client meets the fault.
fn with_a_cut(faults: &Faults, fault: Fault) -> Vec<FaultHandle> {
    let begun = vec![faults.add(fault)];
    faults.add(Fault::watch(WatchFault::Cut).times(1));
    begun
}

/// Returns the faults of lists in pages and of streamed ones, which never end.
fn endless_lists() -> [Fault; 2] {
    let filler = "x".repeat(FILLER);
    let node = |kind: Value| {
        let mut node = json!({
            "metadata": {
                "name": "node-{number}", "uid": "uid-{number}", "resourceVersion": "{number}",
                "annotations": {"example.com/filler": filler},
            },
            "spec": {"providerID": "sandbox:///none/node-{number}"},
        });
        if let (Some(node), Value::Object(kind)) = (node.as_object_mut(), kind) {
            node.extend(kind);
        }
        node
    };
    let opening = r#"{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":["#;
    let pages = Effect::Endless { opening: opening.into(), part: format!("{},", node(json!({}))).into() };
    let event = json!({"type": "ADDED", "object": node(json!({"kind": "Node", "apiVersion": "v1"}))});
    let stream = Effect::Endless { opening: "".into(), part: format!("{event}\n").into() };
    let stream = Fault::new(stream).on_verb("watch").on_path(STREAMED_LIST).expect("an expression");
    [Fault::new(pages).on_verb("list"), stream]
}

/// Returns the fault of watches that send this event without end.
fn endless_watch(event: &Value) -> Fault {
    let effect = Effect::Endless { opening: "".into(), part: format!("{event}\n").into() };
    Fault::new(effect).on_verb("watch").on_path(WATCH_FROM).expect("an expression")
}

/// Returns an event of a Node of a Cluster, of its own version or of another one.
fn event_of(cluster: &ClusterOf, version: Option<&str>) -> Value {
    let mut node = Value::clone(&cluster.nodes()[0]);
    (node["kind"], node["apiVersion"]) = (json!("Node"), json!("v1"));
    if let Some(version) = version {
        node["metadata"]["resourceVersion"] = json!(version);
        node["metadata"]["labels"]["example.com/change"] = json!("{number}");
    }
    json!({"type": "MODIFIED", "object": node})
}

/// Returns a text that is no kubeconfig, or a kubeconfig without a token.
fn bad_kubeconfig(cluster: &ClusterOf, number: usize) -> String {
    if number.is_multiple_of(2) {
        return "clusters: [".to_owned();
    }
    let (name, server) = ("sandbox", cluster.workload.url());
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": server}}],
        "users": [{"name": name, "user": {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    });
    config.to_string()
}

/// A MachineDeployment whose annotations change.
struct Changing {
    group: Group,
    ended: Arc<AtomicBool>,
    thread: JoinHandle<usize>,
}

#[derive(Clone)]
struct Group {
    api: Api,
    namespace: String,
    name: String,
}

impl Group {
    fn annotate(&self, annotations: &Map<String, Value>) {
        let resource = Resource::new("cluster.x-k8s.io", "v1beta2", "machinedeployments");
        let body = json!({"metadata": {"annotations": annotations}});
        let (namespace, name) = (&self.namespace, &self.name);
        let changed = self.api.patch(&resource, namespace, name, PatchKind::Merge, Subresource::Main, body);
        changed.expect("other annotations");
    }
}

fn annotation(number: usize) -> String {
    format!("example.com/a{number:04}")
}

impl Changing {
    fn start(api: Api, cluster: &ClusterOf) -> Self {
        let name = format!("{}-group-0000", cluster.name);
        let group = Group { api, namespace: cluster.namespace.clone(), name };
        let ended = Arc::new(AtomicBool::new(false));
        let (target, has_ended) = (group.clone(), Arc::clone(&ended));
        let thread = thread::spawn(move || {
            target.annotate(&(0..ANNOTATIONS).map(|number| (annotation(number), json!("00000000"))).collect());
            let mut changes = 1;
            let mut due = Instant::now();
            while !has_ended.load(Ordering::Relaxed) {
                due = due.max(Instant::now()) + BETWEEN_CHANGES;
                let change = (annotation(changes % ANNOTATIONS), json!(format!("{changes:08}")));
                target.annotate(&Map::from_iter([change]));
                changes += 1;
                if changes.is_multiple_of(KEPT) {
                    target.api.keep_history(KEPT);
                }
                thread::sleep(due.saturating_duration_since(Instant::now()));
            }
            changes
        });
        Self { group, ended, thread }
    }

    /// Ends the changes, takes the annotations away, and returns the number of changes.
    fn end(self) -> usize {
        self.ended.store(true, Ordering::Relaxed);
        let changes = self.thread.join().expect("it changes annotations");
        self.group.annotate(&(0..ANNOTATIONS).map(|number| (annotation(number), Value::Null)).collect());
        self.group.api.keep_history(KEPT);
        changes
    }
}
