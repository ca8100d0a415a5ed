//! Reads. First on the index alone, in a fleet and in one five times as large: the cost of an answer must grow with the
//! answer and not with the fleet. Then one loop of a Cluster Autoscaler over a real connection to the service, with 200
//! groups of 5,000 Machines and 200 empty ones, beside as many empty calls, and the same where the empty ones have what is
//! remembered of Nodes; server and client are in one process on two threads. It fails when a template's median costs more
//! than 1.5 times that of an empty call. `cargo test` makes each read once.

// A bench may panic: it is a test of its own input.
#![allow(clippy::expect_used)]

#[allow(dead_code, reason = "the example has a main of its own")]
#[path = "../examples/autoscaler_loop.rs"]
mod autoscaler_loop;
mod fleet;
#[path = "fleet/service.rs"]
mod service;

use std::{
    collections::HashMap,
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use clap::Parser as _;
use index::{Change, Index, Memory, NodeQuery};
use rules::GroupId;
use rules::capi::{
    Context, InfrastructureRef, InfrastructureTemplate, KindRef, Meta, ObjectKey, ScalableKind, ScalableResource,
    SpecDigest,
};
use rules::remembered::{Bootstrap, Key, Templates};
use serde_json::json;
use tokio::runtime::Builder;
use tokio_util::sync::CancellationToken;

const MACHINES_PER_GROUP: usize = 25;
const FLEETS: [usize; 2] = [200, 1_000];
/// The time for which each read is repeated, of which the best of so many parts counts.
const TIME: Duration = Duration::from_millis(500);
const PARTS: u32 = 10;
const LOOPS: usize = 3;
const LIMIT: f64 = 1.5;
/// The template of all empty groups.
const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";
const KIND: &str = "CloudMachineTemplate";
const TEMPLATE: &str = "large";

fn main() {
    // `cargo bench` gives this flag, and `cargo test` none.
    let measures = std::env::args().any(|argument| argument == "--bench");
    for groups in FLEETS {
        of_index(groups, if measures { TIME / PARTS } else { Duration::ZERO });
    }
    if measures {
        over_grpc(None);
        over_grpc(Some(remembered()));
    }
}

/// Repeats a read for some time, and returns the duration of one.
fn time(part: Duration, run: &dyn Fn()) -> Duration {
    let began = Instant::now();
    let mut count = 0;
    while count == 0 || began.elapsed() < part {
        (0..100).for_each(|_| run());
        count += 100;
    }
    began.elapsed() / count
}

fn of_index(groups: usize, part: Duration) {
    let index = Index::new(fleet::rules());
    fleet::fill(&index, groups, MACHINES_PER_GROUP);
    println!("{groups} groups, {} Machines, on the index alone", groups * MACHINES_PER_GROUP);
    let id = GroupId::parse("MachineDeployment/fleet/pool-77").expect("an id");
    let annotations = HashMap::new();
    let name = "pool-77-abcde-7";
    let provider_id = format!("cloud:///zone-a/{name}");
    let query = NodeQuery { name, provider_id: &provider_id, annotations: &annotations };
    assert_eq!(index.group_of_node(query).expect("the Node has a group").id, id);
    assert_eq!(index.instances(&id).expect("the group answers").len(), MACHINES_PER_GROUP);
    assert_eq!(index.groups().len(), groups);
    let reads: [(&str, &dyn Fn()); 6] = [
        ("group of a Node", &|| drop(black_box(index.group_of_node(black_box(query))))),
        ("25 instances of a group", &|| drop(black_box(index.instances(black_box(&id))))),
        ("target size", &|| {
            black_box(index.target_size(black_box(&id)));
        }),
        ("template and options", &|| drop(black_box(index.served(black_box(&id))))),
        // This answer grows with the number of groups: the list itself is shared, its copy to the wire is not.
        ("all groups", &|| {
            black_box(index.groups().iter().map(|group| group.text.len()).sum::<usize>());
        }),
        ("refresh without a change", &|| index.refresh()),
    ];
    for (read, run) in reads {
        let best = (0..PARTS).map(|_| time(part, run)).min().unwrap_or_default();
        println!("  {read:<26} {best:>10.0?}");
    }
}

/// Returns the memory of a Node that all empty groups' templates lead to.
fn remembered() -> Arc<Memory> {
    let reference = InfrastructureRef { group: INFRASTRUCTURE.into(), kind: KIND.into(), name: TEMPLATE.into() };
    let templates = Templates::new(&"fleet".into(), (&reference, SpecDigest::default()), Bootstrap::None);
    let key = Key::new(&templates, "amd64").expect("a key").to_string();
    let amounts = json!({"cpu": "8", "memory": "32Gi", "ephemeral-storage": "100Gi", "nvidia.com/gpu": "2"});
    let entry = json!({
        "node": "seen", "group": "MachineDeployment/fleet/pool-0", "seen": "2026-01-01T00:00:00Z",
        "capacity": amounts, "allocatable": amounts,
    });
    let config_map = ObjectKey::new("fleet", "remembered-nodes");
    let memory = Memory::new(std::slice::from_ref(&config_map));
    memory.set_content(&config_map, "1", [(key.as_str(), entry.to_string().as_str())]);
    Arc::new(memory)
}

fn over_grpc(memory: Option<Arc<Memory>>) {
    let remembers = memory.is_some();
    println!("\n{}", if remembers { "empty groups by what is remembered" } else { "empty groups by annotations" });
    let writes = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let shutdown = CancellationToken::new();
    let (index, context) = (Index::new(fleet::rules()).remembering(memory), Context::new("cluster.x-k8s.io"));
    let kind = KindRef { group: INFRASTRUCTURE.into(), kind: KIND.into() };
    let template = InfrastructureTemplate::decode(meta(TEMPLATE.to_owned()), &json!({})).expect("a template");
    index.apply(Change::Template(kind, Arc::new(template)));
    fleet::fill(&index, FLEETS[0], MACHINES_PER_GROUP);
    for number in 0..FLEETS[0] {
        index.apply(empty_group(&context, number, remembers));
    }
    index.refresh();
    assert_eq!(index.groups().len(), 2 * FLEETS[0]);
    let server = service::serve(index, writes.handle(), &shutdown);
    let (address, loops) = (server.address().to_string(), LOOPS.to_string());
    let args = autoscaler_loop::Args::parse_from(["reads", "--address", &address, "--loops", &loops]);
    let client = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let report = client.block_on(autoscaler_loop::play(&args)).expect("loops");
    println!("\n{}", report.table(&args));
    shutdown.cancel();
    let ratio = report.rpcs["NodeGroupTemplateNodeInfo"].quantile(50) / report.empty.quantile(50);
    assert!(ratio <= LIMIT, "a template answer costs {ratio:.2} empty calls, more than {LIMIT}");
}

fn meta(name: String) -> Meta {
    Meta { uid: format!("uid-{name}").into(), key: ObjectKey::new("fleet", name), resource_version: "1".into() }
}

/// Returns an empty group like real ones: a dozen labels, taints, GPUs.
fn empty_group(context: &Context, number: usize, remembers: bool) -> Change {
    let prefix = "capacity.cluster-autoscaler.kubernetes.io";
    let labels: Vec<_> = (0..12).map(|label| format!("team-{label}.example.com/purpose=batch-{number}")).collect();
    let mut annotations = json!({
        "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": "0",
        "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": "100",
        (format!("{prefix}/labels")): labels.join(","),
        (format!("{prefix}/taints")): "dedicated=batch:NoSchedule,spot:NoExecute",
        "capacity.capi-autoscaler-provider.io/overhead": "cpu=100m,memory=800Mi",
    });
    if !remembers {
        for (name, value) in [
            ("cpu", "8"),
            ("memory", "32Gi"),
            ("ephemeral-disk", "100Gi"),
            ("gpu-type", "nvidia.com/gpu"),
            ("gpu-count", "2"),
        ] {
            annotations[format!("{prefix}/{name}")] = json!(value);
        }
    }
    let reference = json!({"apiGroup": INFRASTRUCTURE, "kind": KIND, "name": TEMPLATE});
    let spec = json!({"replicas": 0, "template": {"spec": {"infrastructureRef": reference}}});
    let value = json!({"metadata": {"annotations": annotations}, "spec": spec});
    let meta = meta(format!("rich-{number}"));
    let object = ScalableResource::decode(ScalableKind::MachineDeployment, meta, &value, context);
    Change::Scalable(Arc::new(object.expect("the object decodes")))
}
