//! The resident memory of the serving process: the release binary follows a fleet that an API server in this process
//! generates page by page, and the kernel's figures are read once it is ready. Linux only, run by hand:
//!
//! ```console
//! cargo bench --bench memory                 # both fleets, against their targets
//! cargo bench --bench memory -- 200 25       # 200 groups of 25 Machines
//! cargo bench --bench memory -- 200 25 pages # an API server that has no streamed lists
//! cargo bench --bench memory -- 1000 100 templates    # each group has an infrastructure template
//! cargo bench --bench memory -- 1000 100 remember     # the same, whose Nodes are remembered
//! ```
//!
//! This process must never hold the whole fleet: every page is generated on request, from real objects of
//! tests/fixtures.

// A bench may panic: it is a test of its own input.
#![allow(clippy::expect_used, clippy::panic)]
// The counts are far below the limits of their types.
#![allow(clippy::cast_precision_loss)]

#[path = "serving/mod.rs"]
mod serving;

use std::{
    collections::HashMap,
    fmt::Write as _,
    fs, io,
    ops::Range,
    path::Path,
    sync::Arc,
    thread::sleep,
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::Body,
    extract::{Path as UrlPath, State},
    http::{StatusCode, Uri},
    response::{IntoResponse, Response},
    routing::get,
};
use futures::{StreamExt as _, stream};
use serde_json::{Value, json};

use self::serving::Serving;

const GROUP: &str = "cluster.x-k8s.io";
const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";
/// The version of every list and bookmark.
const VERSION: &str = "900000000";
/// The time for which the process is idle before its memory is read.
const REST: Duration = Duration::from_secs(8);

/// The number of events in one chunk.
const EVENTS_AT_ONCE: usize = 50;

/// The number of groups, of Machines in each, and the max MiB that may be resident at rest.
const TARGETS: [(usize, usize, Option<u64>); 2] = [(200, 25, Some(60)), (1_000, 100, Some(120))];

/// The size of the served fleet: the number of groups, each of a MachineDeployment and a MachineSet, and of Machines
/// with Nodes in each.
#[derive(Clone, Copy)]
struct Fleet {
    groups: usize,
    machines_per_group: usize,
}

/// Real objects as text, with placeholders where each generated one differs.
struct Templates {
    infrastructure: String,
    deployment: String,
    set: String,
    machine: String,
    node: String,
}

struct Api {
    fleet: Fleet,
    templates: Templates,
    ways: Ways,
}

/// The ways of the API server and of the program.
#[derive(Clone, Copy)]
struct Ways {
    /// True if lists are streamed on request.
    streams: bool,
    /// True if groups have infrastructure templates.
    templates: bool,
    /// True if Nodes are remembered.
    remembers: bool,
}

fn main() {
    let has = |word: &str| std::env::args().any(|argument| argument == word);
    let remembers = has("remember");
    let ways = Ways { streams: !has("pages"), templates: remembers || has("templates"), remembers };
    let numbers: Vec<usize> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let fleets = match numbers[..] {
        [groups, machines] => vec![(groups, machines, None)],
        _ => TARGETS.to_vec(),
    };
    println!(
        "groups  machines   ready after  CPU per object  at rest   its own  peak     bytes per Machine and its Node"
    );
    let mut missed = false;
    let empty = measure(Fleet { groups: 0, machines_per_group: 0 }, ways);
    for (groups, machines_per_group, target) in fleets {
        let fleet = Fleet { groups, machines_per_group };
        let seen = measure(fleet, ways);
        let machines = groups * machines_per_group;
        let each = seen.rest.saturating_sub(empty.rest) * 1024 / machines.max(1) as u64;
        println!(
            "{groups:>6}  {machines:>8}   {:>9.1} s  {:>11.1} µs  {:>3} MiB   {:>3} MiB  {:>3} MiB  {each}",
            seen.ready.as_secs_f64(),
            seen.busy.saturating_sub(empty.busy).as_secs_f64() * 1e6 / (2 * machines.max(1)) as f64,
            seen.rest / 1024,
            seen.own / 1024,
            seen.peak / 1024,
        );
        if target.is_some_and(|target| seen.rest / 1024 > target) {
            println!("        more at rest than the target of {} MiB", target.unwrap_or_default());
            missed = true;
        }
    }
    assert!(!missed, "a target was missed");
}

/// The measurements of one process: times, and memory in KiB.
struct Seen {
    ready: Duration,
    /// Its processor time until it was ready.
    busy: Duration,
    rest: u64,
    /// Its memory at rest without the pages of the program's file, which the kernel can drop.
    own: u64,
    peak: u64,
}

fn measure(fleet: Fleet, ways: Ways) -> Seen {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (address, _) = runtime.block_on(testkit::serve(router(Api { fleet, templates: Templates::read(ways), ways })));
    let began = Instant::now();
    let mut arguments = vec!["--listen=127.0.0.1:0".to_owned()];
    arguments.extend(ways.remembers.then(|| "--remember-in=team-a/remembered-nodes".to_owned()));
    let serving = Serving::start(address, testkit::free_address(), &arguments);
    runtime.block_on(serving.wait_until_ready(fleet.groups * fleet.machines_per_group));
    let process = serving.process();
    let (ready, busy) = (began.elapsed(), process.processor_time());
    sleep(REST);
    Seen { ready, busy, rest: process.memory("VmRSS"), own: process.memory("RssAnon"), peak: process.memory("VmHWM") }
}

fn router(api: Api) -> Router {
    Router::new()
        .route("/apis", get(group_list))
        .route("/apis/{group}/{version}", get(resource_list))
        .route("/apis/{group}/{version}/{plural}", get(resource))
        .route("/apis/{group}/{version}/namespaces/{namespace}/{plural}", get(resource_of_namespace))
        .route("/api/v1/namespaces/{namespace}/{plural}", get(config_maps))
        .route("/api/{version}/{plural}", get(nodes))
        .with_state(Arc::new(api))
}

async fn group_list() -> String {
    let groups = [GROUP, INFRASTRUCTURE].map(|group| {
        let version = json!({"groupVersion": format!("{group}/v1beta2"), "version": "v1beta2"});
        json!({"name": group, "versions": [version], "preferredVersion": version})
    });
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}).to_string()
}

async fn resource_list(UrlPath((group, _)): UrlPath<(String, String)>) -> String {
    let resource = |kind: &&str| {
        json!({"name": format!("{}s", kind.to_lowercase()), "singularName": kind.to_lowercase(), "kind": kind,
            "namespaced": true, "verbs": ["list", "watch"]})
    };
    let kinds = if group == GROUP {
        &["Cluster", "MachineDeployment", "MachineSet", "Machine"][..]
    } else {
        &["AWSMachineTemplate"]
    };
    let kinds: Vec<_> = kinds.iter().map(resource).collect();
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{group}/v1beta2"), "resources": kinds})
        .to_string()
}

async fn config_maps(State(api): State<Arc<Api>>, uri: Uri) -> Response {
    api.answer("configmaps", uri.query().unwrap_or_default())
}

async fn resource_of_namespace(
    State(api): State<Arc<Api>>,
    UrlPath((_, _, _, plural)): UrlPath<(String, String, String, String)>,
    uri: Uri,
) -> Response {
    api.answer(&plural, uri.query().unwrap_or_default())
}

async fn nodes(State(api): State<Arc<Api>>, uri: Uri) -> Response {
    api.answer("nodes", uri.query().unwrap_or_default())
}

async fn resource(
    State(api): State<Arc<Api>>,
    UrlPath((_, _, plural)): UrlPath<(String, String, String)>,
    uri: Uri,
) -> Response {
    api.answer(&plural, uri.query().unwrap_or_default())
}

impl Api {
    fn answer(self: Arc<Self>, plural: &str, query: &str) -> Response {
        let query: HashMap<&str, &str> = query.split('&').filter_map(|item| item.split_once('=')).collect();
        let number = |name: &str| query.get(name).and_then(|text| text.parse::<usize>().ok());
        let count = self.count(plural);
        let pending = || stream::pending::<Result<String, io::Error>>();
        if query.contains_key("sendInitialEvents") {
            if !self.ways.streams {
                return StatusCode::UNPROCESSABLE_ENTITY.into_response();
            }
            let plural = plural.to_owned();
            let events = stream::iter((0..count).step_by(EVENTS_AT_ONCE)).map(move |from| {
                Ok(self.items(&plural, from..count.min(from + EVENTS_AT_ONCE), (r#"{"type":"ADDED","object":"#, "}\n")))
            });
            let end = json!({"type": "BOOKMARK", "object": {"metadata": {
                "resourceVersion": VERSION, "annotations": {"k8s.io/initial-events-end": "true"},
            }}});
            let end = stream::once(async move { Ok(format!("{end}\n")) });
            return Body::from_stream(events.chain(end).chain(pending())).into_response();
        }
        if query.contains_key("watch") {
            // The watch stays open and idle.
            return Body::from_stream(pending()).into_response();
        }
        let from = number("continue").unwrap_or(0);
        let to = number("limit").map_or(count, |limit| count.min(from + limit));
        let next = if to < count { to.to_string() } else { String::new() };
        let metadata = json!({"resourceVersion": VERSION, "continue": next});
        let items = self.items(plural, from..to, ("", ","));
        let items = items.trim_end_matches(',');
        format!(r#"{{"kind":"List","apiVersion":"v1","metadata":{metadata},"items":[{items}]}}"#).into_response()
    }

    fn count(&self, plural: &str) -> usize {
        match plural {
            "machinedeployments" | "machinesets" => self.fleet.groups,
            "awsmachinetemplates" if self.ways.templates => self.fleet.groups,
            "configmaps" if self.ways.remembers => 1,
            "machines" | "nodes" => self.fleet.groups * self.fleet.machines_per_group,
            _ => 0,
        }
    }

    /// Returns objects of a resource as JSON, each between `before` and `after`.
    fn items(&self, plural: &str, range: Range<usize>, (before, after): (&str, &str)) -> String {
        let Templates { infrastructure, deployment, set, machine, node } = &self.templates;
        let config_map =
            r#"{"metadata":{"name":"remembered-nodes","namespace":"team-a","uid":"uid","resourceVersion":"1"}}"#;
        let (template, per_group) = match plural {
            "awsmachinetemplates" => (infrastructure.as_str(), 1),
            "configmaps" => (config_map, 1),
            "machinedeployments" => (deployment.as_str(), 1),
            "machinesets" => (set.as_str(), 1),
            "machines" => (machine.as_str(), self.fleet.machines_per_group),
            _ => (node.as_str(), self.fleet.machines_per_group),
        };
        let mut items = String::new();
        for position in range {
            items.push_str(before);
            fill(&mut items, template, position / per_group, position);
            items.push_str(after);
        }
        items
    }
}

/// Writes an object with its placeholders replaced: `@g` its group, `@n` its number, `@u` the start of a uid, `@v` its
/// version, `@h` the Node's name.
fn fill(page: &mut String, template: &str, group: usize, number: usize) {
    let mut rest = template;
    while let Some(mark) = rest.find('@') {
        page.push_str(&rest[..mark]);
        let name = rest.as_bytes().get(mark + 1).copied();
        let written = match name {
            Some(b'g') => write!(page, "{group:04}"),
            // Names end in pseudo-random characters, which spreads them like real ones.
            Some(b'n') => write!(page, "{:07x}", number.wrapping_mul(2_654_435_761) & 0xfff_ffff),
            Some(b'u') => write!(page, "{number:08x}"),
            Some(b'v') => write!(page, "{}", 1_000_000 + number),
            Some(b'h') => {
                write!(
                    page,
                    "ip-10-{}-{}-{}.eu-central-1.compute.internal",
                    number >> 16,
                    number >> 8 & 255,
                    number & 255
                )
            }
            _ => panic!("an unknown mark"),
        };
        written.expect("a text takes all");
        rest = &rest[mark + 2..];
    }
    page.push_str(rest);
}

impl Templates {
    fn read(ways: Ways) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/steady");
        let objects = ["management-v1beta2.yaml", "workload-nodes.yaml"].map(|file| {
            let text = fs::read_to_string(folder.join(file)).expect("the fixture is there");
            let list: Value = serde_yaml::from_str(&text).expect("the fixture is YAML");
            list["items"].as_array().expect("a list").clone()
        });
        let find = |objects: &[Value], kind: &str| {
            let found = |object: &&Value| {
                object["kind"] == kind
                    && object["metadata"]["labels"].get("cluster.x-k8s.io/control-plane").is_none()
                    && !object.to_string().contains("node-role.kubernetes.io/control-plane")
            };
            objects.iter().find(found).unwrap_or_else(|| panic!("no {kind} in the fixtures")).clone()
        };
        let marked = |mut object: Value, name: &str| {
            object["metadata"]["name"] = json!(name);
            object["metadata"]["uid"] = json!("@u-95ee-43d9-b9a3-c86079a72f87");
            object["metadata"]["resourceVersion"] = json!("@v");
            object
        };
        let [management, workload] = &objects;
        let (deployment, set, machine) = ("prod-md-@g", "prod-md-@g-x9wfq", "prod-md-@g-x9wfq-@n");
        let provider_id = "aws:///eu-central-1a/i-0@u9b4bf4b17";
        let mut deployments = marked(find(management, "MachineDeployment"), deployment);
        let annotations = &mut deployments["metadata"]["annotations"];
        annotations[format!("{GROUP}/cluster-api-autoscaler-node-group-max-size")] = json!("1000");
        annotations["capacity.cluster-autoscaler.kubernetes.io/cpu"] = json!("8");
        annotations["capacity.cluster-autoscaler.kubernetes.io/memory"] = json!("32Gi");
        // A template causes discovery, which is measured only where it is asked for.
        let reference = json!({"apiGroup": INFRASTRUCTURE, "kind": "AWSMachineTemplate", "name": "prod-md-@g"});
        let reference = if ways.templates { reference } else { Value::Null };
        let infrastructure = json!({
            "apiVersion": format!("{INFRASTRUCTURE}/v1beta2"), "kind": "AWSMachineTemplate",
            "metadata": {"name": "prod-md-@g", "namespace": "team-a", "uid": "template-@g", "resourceVersion": "@v"},
            "spec": {"template": {"spec": {"instanceType": "m5.2xlarge", "ami": {"id": "ami-@g"}}}},
        });
        deployments["spec"]["template"]["spec"]["infrastructureRef"] = reference.clone();
        let mut sets = marked(find(management, "MachineSet"), set);
        sets["metadata"]["ownerReferences"][0]["name"] = json!(deployment);
        sets["spec"]["template"]["spec"]["infrastructureRef"] = reference;
        let mut machines = marked(find(management, "Machine"), machine);
        machines["metadata"]["ownerReferences"][0]["name"] = json!(set);
        machines["spec"]["providerID"] = json!(provider_id);
        machines["status"]["nodeRef"]["name"] = json!("@h");
        let mut nodes = marked(find(workload, "Node"), "@h");
        nodes["metadata"]["annotations"][format!("{GROUP}/machine")] = json!(machine);
        nodes["metadata"]["annotations"][format!("{GROUP}/cluster-namespace")] = json!("team-a");
        nodes["metadata"]["labels"] = json!({
            "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "kubernetes.io/hostname": "@h",
            "node.kubernetes.io/instance-type": "m5.2xlarge", "topology.kubernetes.io/region": "eu-central-1",
            "topology.kubernetes.io/zone": "eu-central-1a",
        });
        nodes["spec"]["providerID"] = json!(provider_id);
        let image = |number: usize| json!({"names": [format!("registry.example/team/image-{number}:v1.2.3")], "sizeBytes": 1 << 26});
        nodes["status"]["images"] = (0..30).map(image).collect();
        let text = |object: Value| object.to_string();
        Self {
            infrastructure: text(infrastructure),
            deployment: text(deployments),
            set: text(sets),
            machine: text(machines),
            node: text(nodes),
        }
    }
}
