//! The cost of informers: the memory per object and the rate of events, for this program's informer with slim typed
//! objects and with whole JSON, and for kube's own reflector. All follow the same Machines of one API, each in a
//! process of its own. The slim objects are Cluster API's, which the crate of the informer doesn't know. Linux only,
//! run by hand:
//!
//! ```console
//! cargo bench --bench informer                    # 20,000 Machines, each changed once
//! cargo bench --bench informer -- --objects 5000 --only json --only reflector
//! ```
//!
//! All variants must have the same conditions: same server, same objects, and in Rust the same client.

// A bench may panic: it is a test of its own input.
#![allow(clippy::expect_used, clippy::panic)]
// The counts are far below the limits of their types.
#![allow(clippy::cast_precision_loss)]

use std::{
    borrow::Cow,
    fs,
    path::{Path, PathBuf},
    pin::pin,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::sleep,
    time::{Duration, Instant},
};

use clap::{Parser, ValueEnum};
use futures::{Stream, StreamExt as _};
use kube::{
    Api, Client, Config,
    core::{ApiResource, DynamicObject, DynamicResourceScope, GroupVersionKind, ObjectMeta, PartialObjectMeta},
};
use kube_runtime::{WatchStreamExt as _, reflector, reflector::store::Writer, watcher};
use rules::capi::{Context, DEFAULT_GROUP, Machine};
use sandbox::{
    Contract,
    api::{PatchKind, Resource, Subresource},
    clock::Clock,
    define_cluster_api,
    faults::{Fault, WatchFault},
    http::ApiServer,
};
use serde::Deserialize;
use serde_json::{Value, json};
use shared_informer::{Event, Factory, Informer, Projection, Query, Settings};
use testkit::{Piped, memory_of};
use tokio::{runtime::Runtime, sync::Notify};

/// The time for which a process is idle before its memory is read.
const REST: Duration = Duration::from_secs(3);
const NAMESPACE: &str = "default";

#[derive(Parser)]
struct Arguments {
    /// The number of Machines.
    #[arg(long, default_value_t = 20_000)]
    objects: usize,
    /// Only this follower. Repeatable.
    #[arg(long)]
    only: Vec<Variant>,
    /// client-go's informers too, which needs Go 1.26 or later on PATH.
    #[arg(long)]
    client_go: bool,
    /// The informer of a process that follows.
    #[arg(long, hide = true, requires = "url")]
    variant: Option<Variant>,
    /// The URL that a process that follows watches.
    #[arg(long, hide = true)]
    url: Option<String>,
    /// Given by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

/// The informer that follows, and the form of the objects that it keeps.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Variant {
    Machine,
    Json,
    ReflectorMachine,
    Reflector,
    ReflectorMetadata,
    GoUnstructured,
    GoTyped,
    GoMetadata,
}

impl Variant {
    fn title(self) -> &'static str {
        match self {
            Self::Machine => "this informer, slim typed Machine",
            Self::Json => "this informer, serde_json::Value",
            Self::ReflectorMachine => "kube's reflector, slim typed Machine",
            Self::Reflector => "kube's reflector, DynamicObject, streamed",
            Self::ReflectorMetadata => "kube's reflector, metadata only",
            Self::GoUnstructured => "client-go, unstructured, streamed",
            Self::GoTyped => "client-go, typed Machine, streamed",
            Self::GoMetadata => "client-go, metadata only",
        }
    }

    /// Returns the command that runs this program as the follower.
    fn command(self) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
        command.args(["--variant", self.to_possible_value().expect("no variant is hidden").get_name()]);
        command
    }

    /// Returns the form of the objects in e2e/client-go, and true if it may stream lists, or `None` if this program is
    /// the follower.
    fn of_client_go(self) -> Option<(&'static str, bool)> {
        match self {
            Self::GoUnstructured => Some(("unstructured", true)),
            Self::GoTyped => Some(("typed", true)),
            Self::GoMetadata => Some(("metadata", false)),
            Self::Machine | Self::Json | Self::ReflectorMachine | Self::Reflector | Self::ReflectorMetadata => None,
        }
    }
}

fn main() {
    let arguments = Arguments::parse();
    let runtime = Runtime::new().expect("a runtime");
    if let (Some(variant), Some(url)) = (arguments.variant, &arguments.url) {
        runtime.block_on(follow(variant, url, arguments.objects));
        return;
    }
    let client_go = arguments.client_go.then(build_client_go);
    let only = if arguments.only.is_empty() { Variant::value_variants() } else { arguments.only.as_slice() };
    compare(only, arguments.objects, client_go.as_deref(), &runtime);
}

/// Builds the program that follows with client-go's informers.
fn build_client_go() -> PathBuf {
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("e2e/client-go");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("client-go");
    let status = Command::new("go")
        .arg("-C")
        .arg(module)
        .args(["build", "-trimpath", "-buildvcs=false", "-o"])
        .arg(&program)
        .arg(".")
        .status()
        .expect("Go is on PATH");
    assert!(status.success(), "e2e/client-go is built: {status}");
    program
}

fn compare(variants: &[Variant], objects: usize, client_go: Option<&Path>, runtime: &Runtime) {
    let settings = sandbox::api::Settings { history: 2 * objects };
    let api = sandbox::api::Api::with_settings(Clock::real(), settings);
    define_cluster_api(&api, Contract::V1Beta2).expect("Cluster API's kinds are known");
    let size = fill(&api, objects);
    let server = runtime.block_on(ApiServer::start(api)).expect("the API is served");
    println!("{objects} Machines of {size} bytes of JSON");
    println!("{:<36} listed in  at rest     per object  peak        events/s  CPU per event", "");
    for variant in variants {
        let command = match (variant.of_client_go(), client_go) {
            (None, _) => variant.command(),
            (Some((keeps, streams)), Some(program)) => {
                let mut command = Command::new(program);
                command.args(["--variant", keeps]).env("KUBE_FEATURE_WatchListClient", streams.to_string());
                command
            }
            (Some(_), None) => continue,
        };
        let Seen { listed, before, rest, peak, pace, effort } = measure(*variant, command, &server, objects, runtime);
        println!(
            "{:<36} {:>7.2} s  {:>6} KiB  {:>8} B  {:>6} KiB  {pace:>8.0}  {:>10.1} µs",
            variant.title(),
            listed,
            rest,
            rest.saturating_sub(before) * 1024 / objects as u64,
            peak,
            effort.as_secs_f64() * 1e6,
        );
    }
}

/// Creates Machines modelled on a real one. Returns the JSON size of one.
fn fill(api: &sandbox::api::Api, objects: usize) -> usize {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/steady/management-v1beta2.yaml");
    let text = fs::read_to_string(file).expect("the fixture is there");
    let list: Value = serde_yaml::from_str(&text).expect("the fixture is YAML");
    let mut items = list["items"].as_array().expect("a list").iter();
    let worker = |object: &&Value| {
        object["kind"] == "Machine"
            && object["metadata"]["labels"].get("cluster.x-k8s.io/control-plane").is_none()
            && object["status"]["nodeRef"].is_object()
    };
    let template = items.find(worker).expect("a Machine with a Node");
    for batch in (0..objects).collect::<Vec<_>>().chunks(1_000) {
        let machines = batch.iter().map(|number| {
            let mut machine = template.clone();
            let metadata = &mut machine["metadata"];
            metadata["name"] = json!(name(*number));
            metadata["namespace"] = json!(NAMESPACE);
            metadata["uid"] = json!(format!("{number:08x}-95ee-43d9-b9a3-c86079a72f87"));
            machine["spec"]["providerID"] = json!(format!("aws:///eu-central-1a/i-0{number:08x}9b4bf4b17"));
            machine["status"]["nodeRef"]["name"] = json!(format!("ip-10-{}-{}", number >> 8, number & 255));
            machine
        });
        api.load_values(machines.collect()).expect("Machines are taken");
    }
    api.get(&machines(), NAMESPACE, &name(0)).expect("a Machine is there").to_string().len()
}

fn name(number: usize) -> String {
    // Names end in pseudo-random characters, which spreads them like real ones.
    format!("prod-md-{:04}-x9wfq-{:07x}", number / 100, number.wrapping_mul(2_654_435_761) & 0xfff_ffff)
}

fn machines() -> Resource {
    Resource::new(DEFAULT_GROUP, "v1beta2", "machines")
}

/// The measurements of one process: seconds, KiB, events per second, and its CPU time per event.
struct Seen {
    listed: f64,
    before: u64,
    rest: u64,
    peak: u64,
    pace: f64,
    effort: Duration,
}

fn measure(variant: Variant, mut command: Command, server: &ApiServer, objects: usize, runtime: &Runtime) -> Seen {
    server.api().forget_history();
    command.args(["--url", server.url(), "--objects", &objects.to_string()]);
    let mut follower = Piped::start(&mut command);
    let before: u64 = follower.line().parse().expect("its memory before");
    let listed = follower.line().parse().expect("how long its list took");
    sleep(REST);
    let (rest, peak) = (follower.process().memory("VmRSS"), follower.process().memory("VmHWM"));
    // The server holds all events back until the changes are made, so that only processing is timed.
    let stall = server.faults().add(Fault::watch(WatchFault::Stall));
    runtime.block_on(stall.wait_for_hits(1));
    for number in 0..objects {
        let body = json!({ "metadata": { "annotations": { "example.io/for": variant.title() } } });
        let patched =
            server.api().patch(&machines(), NAMESPACE, &name(number), PatchKind::Merge, Subresource::Main, body);
        patched.expect("a Machine is changed");
    }
    let busy = follower.process().processor_time();
    stall.remove();
    let took: f64 = follower.line().parse().expect("how long the events took");
    let effort =
        follower.process().processor_time().saturating_sub(busy) / u32::try_from(objects).expect("not that many");
    Seen { listed, before, rest, peak, pace: objects as f64 / took, effort }
}

/// The fields of the informer's slim Machine, as a user of kube would write them: the fair rival.
#[expect(dead_code, reason = "kept as the informer keeps it")]
#[derive(Clone, Debug, Deserialize)]
struct SlimMachine {
    metadata: ObjectMeta,
    spec: SlimSpec,
    #[serde(default)]
    status: SlimStatus,
}

#[expect(dead_code, reason = "kept as the informer keeps it")]
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SlimSpec {
    cluster_name: String,
    #[serde(rename = "providerID")]
    provider_id: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimStatus {
    phase: Option<String>,
    node_ref: Option<SlimReference>,
    conditions: Vec<SlimCondition>,
}

#[expect(dead_code, reason = "kept as the informer keeps it")]
#[derive(Clone, Debug, Deserialize)]
struct SlimReference {
    name: String,
}

#[expect(dead_code, reason = "kept as the informer keeps it")]
#[derive(Clone, Debug, Deserialize)]
struct SlimCondition {
    r#type: String,
    status: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
}

impl SlimMachine {
    /// Drops what no rule reads.
    fn forget_unread(&mut self) {
        let metadata = &mut self.metadata;
        metadata.managed_fields = None;
        metadata.labels = None;
        metadata.finalizers = None;
        if let Some(annotations) = &mut metadata.annotations {
            annotations.retain(|key, _| key == "cluster.x-k8s.io/delete-machine");
        }
        let conditions = &mut self.status.conditions;
        conditions.retain(|condition| condition.r#type == "InfrastructureReady" && condition.status == "False");
        conditions.shrink_to_fit();
    }
}

impl kube::Resource for SlimMachine {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        resource.kind.as_str().into()
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        resource.group.as_str().into()
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        resource.version.as_str().into()
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        resource.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Runs the follower. Its first line is its memory at the start, the second the duration of the list, the third the
/// duration from the first to the last event; then it waits to be ended.
async fn follow(variant: Variant, url: &str, objects: usize) {
    let mut config = Config::new(url.parse().expect("a URL"));
    config.default_retry = false;
    let client = Client::try_from(config).expect("a client");
    client.apiserver_version().await.expect("the API answers");
    println!("{}", memory_of("self", "VmRSS"));
    let began = Instant::now();
    let resource =
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(DEFAULT_GROUP, "v1beta2", "Machine"), "machines");
    let context = Context::new(DEFAULT_GROUP);
    let machine = Machine::projection(&context);
    let lists = watcher::Config::default();
    match variant {
        Variant::Machine => inform(client, resource, machine, objects, began).await,
        Variant::Json => inform(client, resource, Projection::<Value>::serde(), objects, began).await,
        Variant::ReflectorMachine => {
            let api = Api::<SlimMachine>::all_with(client, &resource);
            let events = watcher(api, lists.streaming_lists()).modify(SlimMachine::forget_unread);
            reflect(reflector(Writer::new(resource), events), objects, began).await;
        }
        Variant::Reflector => {
            let api = Api::<DynamicObject>::all_with(client, &resource);
            reflect(reflector(Writer::new(resource), watcher(api, lists.streaming_lists())), objects, began).await;
        }
        Variant::ReflectorMetadata => {
            let api = Api::<PartialObjectMeta<DynamicObject>>::all_with(client, &resource);
            reflect(reflector(Writer::new(resource), watcher(api, lists)), objects, began).await;
        }
        Variant::GoUnstructured | Variant::GoTyped | Variant::GoMetadata => {
            panic!("e2e/client-go follows in this way")
        }
    }
}

async fn inform<T: Send + Sync + 'static>(
    client: Client,
    resource: ApiResource,
    projection: Projection<T>,
    objects: usize,
    began: Instant,
) {
    let factory = Factory::new(client, tokio::runtime::Handle::current(), Settings::default());
    let informer: Informer<T> = factory.informer(Query::all(resource), projection);
    let (updated, news) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let (counted, reported) = (Arc::clone(&updated), Arc::clone(&news));
    let registration = informer.add_handler(move |event: Event<T>| {
        if let Event::Updated { .. } = event {
            counted.fetch_add(1, Ordering::Relaxed);
            reported.notify_one();
        }
    });
    registration.synced().await;
    assert_eq!(informer.store().len(), objects, "everything is listed");
    println!("{}", began.elapsed().as_secs_f64());
    news.notified().await;
    let first = Instant::now();
    // Every object changes once, so that no two changes are merged.
    while updated.load(Ordering::Relaxed) < objects {
        news.notified().await;
    }
    println!("{}", first.elapsed().as_secs_f64());
    std::future::pending::<()>().await;
}

async fn reflect<K>(
    events: impl Stream<Item = Result<watcher::Event<K>, watcher::Error>>,
    objects: usize,
    began: Instant,
) {
    let mut events = pin!(events);
    let (mut listed, mut updated, mut first) = (0, 0, None);
    loop {
        match events.next().await.expect("it never ends").expect("nothing fails") {
            watcher::Event::Init => {}
            watcher::Event::InitApply(_) => listed += 1,
            watcher::Event::InitDone => {
                assert_eq!(listed, objects, "everything is listed");
                println!("{}", began.elapsed().as_secs_f64());
            }
            watcher::Event::Apply(_) | watcher::Event::Delete(_) => {
                updated += 1;
                let first = *first.get_or_insert_with(Instant::now);
                if updated == objects {
                    println!("{}", first.elapsed().as_secs_f64());
                }
            }
        }
    }
}
