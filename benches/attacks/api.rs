//! An API server with a small fleet, which sends events or misbehaves for an attack. It must never be the bottleneck of
//! an attack; only the program may limit it.

use std::{
    collections::HashMap,
    convert::Infallible,
    fmt::Write as _,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Path, State},
    http::{StatusCode, Uri},
    response::{IntoResponse, Response},
    routing::get,
};
use futures::{StreamExt as _, stream};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{sync::mpsc, time::sleep};

pub(crate) const GROUPS: usize = 50;
pub(crate) const MACHINES: usize = 10;
pub(crate) const NAMESPACE: &str = "team-a";
const TENANT: &str = "tenant";
const GROUP: &str = "cluster.x-k8s.io";
/// The API group and kind of a tenant's infrastructure template.
pub(crate) const TEMPLATE_GROUP: &str = "infrastructure.example.com";
pub(crate) const TEMPLATE_KIND: &str = "TenantMachineTemplate";
pub(crate) const TEMPLATES: &str = "tenantmachinetemplates";
const CORE: [&str; 4] = ["Cluster", "MachineDeployment", "MachineSet", "Machine"];
/// The number of events of one watch that may be queued.
const WAITING: usize = 8;

/// The length of a providerID of the most bytes that are read of one.
const LONG: usize = 16 << 10;
/// The number of objects with such providerIDs on a page: less than 8 MiB.
const LONG_PER_PAGE: u64 = 400;
/// The number of their pages that are less than the 96 MiB that are kept of a kind.
const KEPT_PAGES: u64 = 14;

/// The misbehaviour of lists and watches of one resource.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Misbehaviour {
    #[default]
    None,
    /// Each page announces another one.
    EndlessPages,
    /// The same of Machines as large as they are read, after as many as are kept.
    LongMachines,
    /// The same of Nodes.
    LongNodes,
    /// The same of both at once.
    LongBoth,
    /// The body of a page never ends.
    GrowingBody,
    /// A watch repeats its events again and again.
    RepeatingWatch,
}

impl Misbehaviour {
    fn resources(self) -> &'static [&'static str] {
        match self {
            Self::LongNodes => &["nodes"],
            Self::LongBoth => &["machines", "nodes"],
            Self::None | Self::EndlessPages | Self::LongMachines | Self::GrowingBody | Self::RepeatingWatch => {
                &["machines"]
            }
        }
    }
}

#[derive(Default)]
pub(crate) struct Api {
    watches: Mutex<HashMap<String, Vec<mpsc::Sender<Bytes>>>>,
    misbehaviour: Mutex<Misbehaviour>,
    version: AtomicU64,
    /// The number of lists of long objects of each resource.
    long_lists: Mutex<HashMap<String, u64>>,
    discoveries: AtomicUsize,
    requests: AtomicUsize,
}

impl Api {
    /// Serves on a loopback port.
    pub(crate) async fn serve(self: Arc<Self>) -> SocketAddr {
        self.version.store(1_000, Ordering::Relaxed);
        let router = Router::new()
            .route("/apis", get(group_list))
            .route("/apis/{group}/{version}", get(resource_list))
            .route("/apis/{group}/{version}/{plural}", get(resource))
            .route("/api/{version}/{plural}", get(core_resource))
            .with_state(self);
        testkit::serve(router).await.0
    }

    pub(crate) fn next_version(&self) -> u64 {
        self.version.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Sends an event to all watches of a resource, as fast as they read it.
    pub(crate) async fn send(&self, plural: &str, event: Bytes) {
        let watches = self.watches.lock().get(plural).cloned().unwrap_or_default();
        for watch in watches {
            let _ = watch.send(event.clone()).await;
        }
    }

    /// Begins or ends a misbehaviour, and cuts the watches.
    pub(crate) fn misbehave(&self, misbehaviour: Misbehaviour) {
        *self.misbehaviour.lock() = misbehaviour;
        self.watches.lock().retain(|resource, _| !misbehaviour.resources().contains(&resource.as_str()));
    }

    /// Returns the number of requests so far, and of discovery requests among them.
    pub(crate) fn requests(&self) -> (usize, usize) {
        (self.requests.load(Ordering::Relaxed), self.discoveries.load(Ordering::Relaxed))
    }

    fn answer(self: Arc<Self>, plural: &str, uri: &Uri) -> Response {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let query = uri.query().unwrap_or_default();
        let misbehaviour = *self.misbehaviour.lock();
        let misbehaviour = if misbehaviour.resources().contains(&plural) { misbehaviour } else { Misbehaviour::None };
        let is_watch = query.contains("watch=");
        let is_streamed = query.contains("sendInitialEvents");
        match misbehaviour {
            Misbehaviour::EndlessPages
            | Misbehaviour::LongMachines
            | Misbehaviour::LongNodes
            | Misbehaviour::LongBoth
            | Misbehaviour::GrowingBody
                if is_watch =>
            {
                // Refuses streamed lists, and forces a new list.
                let code = if is_streamed { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::GONE };
                code.into_response()
            }
            Misbehaviour::EndlessPages => self.endless_page().into_response(),
            Misbehaviour::LongMachines | Misbehaviour::LongNodes | Misbehaviour::LongBoth => {
                self.long_page(plural, query).into_response()
            }
            Misbehaviour::GrowingBody => growing_body(),
            Misbehaviour::RepeatingWatch if is_watch => self.repeating_watch(is_streamed),
            Misbehaviour::None | Misbehaviour::RepeatingWatch if is_watch => self.watch(plural, is_streamed),
            Misbehaviour::None | Misbehaviour::RepeatingWatch => {
                let items = objects(plural).join(",");
                self.list(&items, "").into_response()
            }
        }
    }

    fn list(&self, items: &str, next: &str) -> String {
        let metadata = json!({"resourceVersion": self.next_version().to_string(), "continue": next});
        format!(r#"{{"kind":"List","apiVersion":"v1","metadata":{metadata},"items":[{items}]}}"#)
    }

    fn endless_page(&self) -> String {
        let from = self.next_version();
        let machine = |number| {
            json!({"metadata": {"namespace": NAMESPACE, "name": format!("m-{from}-{number}"), "uid": "u",
            "resourceVersion": "1"}})
            .to_string()
        };
        self.list(&(0..500).map(machine).collect::<Vec<_>>().join(","), "more")
    }

    /// Returns a page of the fleet's objects, and of others as large as they are read, with new texts each time. Every
    /// other list ends below the limit of bytes, so that the next one comes beside as many as may be known.
    fn long_page(&self, plural: &str, query: &str) -> String {
        let number = |text: &str| text.parse::<u64>().expect("a number of this server");
        let token = query.split('&').find_map(|parameter| parameter.strip_prefix("continue="));
        let (list, page) = token.and_then(|token| token.split_once('.')).map_or_else(
            || {
                let mut lists = self.long_lists.lock();
                let count = lists.entry(plural.to_owned()).or_default();
                *count += 1;
                (*count, 0)
            },
            |(list, page)| (number(list), number(page)),
        );
        let (from, filler) = (self.next_version(), "x".repeat(LONG - 30));
        let namespace = if plural == "nodes" { String::new() } else { format!(r#""namespace":"{NAMESPACE}","#) };
        let long = |number| {
            format!(
                r#"{{"metadata":{{{namespace}"name":"long-{from}-{number}","uid":"u","resourceVersion":"1"}},"spec":{{"clusterName":"prod","providerID":"cloud:///{from:010}/{number:010}{filler}"}}}}"#
            )
        };
        let own = if page == 0 { objects(plural) } else { Vec::new() };
        let items: Vec<_> = own.into_iter().chain((0..LONG_PER_PAGE).map(long)).collect();
        let ends = list.is_multiple_of(2) && page + 1 == KEPT_PAGES;
        let next = if ends { String::new() } else { format!("{list}.{}", page + 1) };
        self.list(&items.join(","), &next)
    }

    fn initial(&self, plural: &str, is_streamed: bool) -> Vec<Result<Bytes, Infallible>> {
        if !is_streamed {
            return Vec::new();
        }
        let added = |object: String| Ok(format!("{{\"type\":\"ADDED\",\"object\":{object}}}\n").into());
        let end = json!({"type": "BOOKMARK", "object": {"metadata": {
            "resourceVersion": self.next_version().to_string(), "annotations": {"k8s.io/initial-events-end": "true"},
        }}});
        objects(plural).into_iter().map(added).chain([Ok(format!("{end}\n").into())]).collect()
    }

    fn watch(&self, plural: &str, is_streamed: bool) -> Response {
        let (sender, receiver) = mpsc::channel(WAITING);
        let initial = self.initial(plural, is_streamed);
        self.watches.lock().entry(plural.to_owned()).or_default().push(sender);
        let events = stream::unfold(receiver, async |mut receiver| Some((Ok(receiver.recv().await?), receiver)));
        Body::from_stream(stream::iter(initial).chain(events)).into_response()
    }

    fn repeating_watch(&self, is_streamed: bool) -> Response {
        let odd = Misbehaviour::RepeatingWatch.resources()[0];
        let initial = self.initial(odd, is_streamed);
        let event = format!("{{\"type\":\"MODIFIED\",\"object\":{}}}\n", objects(odd).swap_remove(0));
        let event = Bytes::from(event.repeat(100));
        let events = stream::repeat_with(move || Ok::<_, Infallible>(event.clone()));
        Body::from_stream(stream::iter(initial).chain(events)).into_response()
    }
}

/// Returns a list whose first object has no end.
fn growing_body() -> Response {
    let begin = r#"{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":""#;
    let more = Bytes::from("n".repeat(64 << 10));
    let more = stream::repeat_with(move || Ok::<_, Infallible>(more.clone()));
    Body::from_stream(stream::iter([Ok(Bytes::from(begin))]).chain(more)).into_response()
}

async fn group_list(State(api): State<Arc<Api>>) -> String {
    api.discoveries.fetch_add(1, Ordering::Relaxed);
    let group = |group: &str| {
        let version = json!({"groupVersion": format!("{group}/v1beta2"), "version": "v1beta2"});
        json!({"name": group, "versions": [version], "preferredVersion": version})
    };
    let groups = [GROUP, TEMPLATE_GROUP].map(group);
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}).to_string()
}

async fn resource_list(State(api): State<Arc<Api>>, Path((group, _)): Path<(String, String)>) -> Response {
    api.discoveries.fetch_add(1, Ordering::Relaxed);
    let kinds = match group.as_str() {
        GROUP => CORE.to_vec(),
        TEMPLATE_GROUP => vec![TEMPLATE_KIND],
        _ => {
            // As slow as a remote API server.
            sleep(Duration::from_millis(1)).await;
            return StatusCode::NOT_FOUND.into_response();
        }
    };
    let resource = |kind: &str| {
        json!({"name": format!("{}s", kind.to_lowercase()), "singularName": kind.to_lowercase(), "kind": kind,
            "namespaced": true, "verbs": ["list", "watch"]})
    };
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{group}/v1beta2"),
        "resources": kinds.into_iter().map(resource).collect::<Vec<_>>()})
    .to_string()
    .into_response()
}

async fn resource(
    State(api): State<Arc<Api>>,
    Path((_, _, plural)): Path<(String, String, String)>,
    uri: Uri,
) -> Response {
    api.answer(&plural, &uri)
}

async fn core_resource(State(api): State<Arc<Api>>, Path((_, plural)): Path<(String, String)>, uri: Uri) -> Response {
    api.answer(&plural, &uri)
}

pub(crate) fn node_name(group: usize, machine: usize) -> String {
    format!("pool-{group}-abcde-{machine}")
}

pub(crate) fn provider_id(group: usize, machine: usize) -> String {
    format!("cloud:///zone-a/{}", node_name(group, machine))
}

/// Returns the objects of the fleet: groups of one MachineDeployment with one MachineSet and its Machines, with their
/// Nodes.
fn objects(plural: &str) -> Vec<String> {
    let metadata = |name: &str, more: Value| {
        let mut metadata =
            json!({"namespace": NAMESPACE, "name": name, "uid": format!("uid-{name}"), "resourceVersion": "1"});
        for (key, value) in more.as_object().into_iter().flatten() {
            metadata[key] = value.clone();
        }
        metadata
    };
    let owned_by = |kind: &str, name: &str| {
        json!({"ownerReferences": [{"apiVersion": format!("{GROUP}/v1beta2"),
        "kind": kind, "name": name, "controller": true}]})
    };
    let deployment = |group: usize| {
        json!({"metadata": metadata(&format!("pool-{group}"), json!({"annotations": bounds()})),
            "spec": {"clusterName": "prod", "replicas": MACHINES}})
    };
    let set = |group: usize| {
        let owner = owned_by("MachineDeployment", &format!("pool-{group}"));
        json!({"metadata": metadata(&format!("pool-{group}-abcde"), owner),
            "spec": {"clusterName": "prod", "replicas": MACHINES}})
    };
    let machine = |(group, machine): (usize, usize)| {
        let owner = owned_by("MachineSet", &format!("pool-{group}-abcde"));
        let name = node_name(group, machine);
        json!({"metadata": metadata(&name, owner),
            "spec": {"clusterName": "prod", "providerID": provider_id(group, machine)},
            "status": {"phase": "Running", "nodeRef": {"name": name}}})
    };
    let node = |(group, machine): (usize, usize)| {
        json!({"metadata": {"name": node_name(group, machine), "uid": format!("uid-{group}-{machine}"), "resourceVersion": "1"},
            "spec": {"providerID": provider_id(group, machine)}})
    };
    let machines = || (0..GROUPS).flat_map(|group| (0..MACHINES).map(move |machine| (group, machine)));
    let objects: Vec<Value> = match plural {
        "machinedeployments" => (0..GROUPS).map(deployment).collect(),
        "machinesets" => (0..GROUPS).map(set).collect(),
        "machines" => machines().map(machine).collect(),
        "nodes" => machines().map(node).collect(),
        TEMPLATES => vec![tenants_template(1, 0)],
        _ => Vec::new(),
    };
    objects.iter().map(Value::to_string).collect()
}

/// Returns the annotations of a group.
pub(crate) fn bounds() -> Value {
    json!({
        format!("{GROUP}/cluster-api-autoscaler-node-group-min-size"): "0",
        format!("{GROUP}/cluster-api-autoscaler-node-group-max-size"): "100",
        "capacity.cluster-autoscaler.kubernetes.io/cpu": "8",
        "capacity.cluster-autoscaler.kubernetes.io/memory": "32Gi",
    })
}

/// Returns a tenant's template, whose Nodes have this many GiB of disk.
fn tenants_template(version: u64, disk: usize) -> Value {
    json!({"metadata": {"namespace": TENANT, "name": "shared", "uid": "uid-shared", "resourceVersion": version.to_string()},
        "status": {"capacity": {"cpu": "8", "memory": "32Gi", "ephemeral-storage": format!("{disk}Gi")}}})
}

/// Returns an event of that template.
pub(crate) fn templates_event(version: u64, disk: usize) -> Bytes {
    format!("{}\n", json!({"type": "MODIFIED", "object": tenants_template(version, disk)})).into()
}

/// Returns an event of a tenant's MachineDeployment, with these annotations and this infrastructure template.
pub(crate) fn tenants_event(kind: &str, number: usize, version: u64, annotations: &str, infrastructure: &str) -> Bytes {
    let mut event = String::with_capacity(annotations.len() + 512);
    let written = writeln!(
        event,
        r#"{{"type":"{kind}","object":{{"metadata":{{"namespace":"{TENANT}","name":"attack-{number}","uid":"uid-attack-{number}","resourceVersion":"{version}","annotations":{annotations}}},"spec":{{"clusterName":"theirs","replicas":1,"template":{{"spec":{{"infrastructureRef":{infrastructure}}}}}}}}}}}"#
    );
    written.expect("a text takes all");
    event.into()
}
