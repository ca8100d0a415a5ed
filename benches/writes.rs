//! What commands cost, in requests and in ratio to bare PATCHes of the same run: an increase, and 50 DeleteNodes of one
//! Node each at once. The program runs in-process on a sandbox, whose API server answers at once or, so that it is more
//! like a real one, after some milliseconds. `tests/writes/requests.rs` asserts the requests.

// A bench may panic: it is a test of its own input.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code, reason = "a bench asks for less than the tests do")]
#[path = "../tests/writes/world.rs"]
mod world;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use futures::{StreamExt as _, future::join_all, stream};
use kube::{
    Api, Client, Config,
    api::{Patch, PatchParams},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use sandbox::{
    Times,
    faults::{Effect, Fault},
};
use serde_json::json;
use tokio::runtime::Builder;

use crate::world::{Start, World, is_of_a_command};

const MACHINES: usize = 200;
const DELETES: usize = 50;
/// As many as the program writes side by side.
const SIDE_BY_SIDE: usize = 16;
const PATIENT: Duration = Duration::from_secs(30);
const LATENCIES: [u64; 3] = [0, 5, 20];

fn main() {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    println!("{:<10} {:<26} {:>10} {:>10} {:>6}  requests", "latency", "what", "took", "bare", "ratio");
    for latency in LATENCIES {
        runtime.block_on(measure(Duration::from_millis(latency)));
    }
}

async fn measure(latency: Duration) {
    let world = World::start(Start { machines: MACHINES, ..Start::default() }).await;
    world.until_known(0).await;
    world.rest().await;
    // Cluster API stands still, so that the commands alone are counted.
    world.sandbox.simulation().set_times(Times { react: Duration::from_secs(3_600), ..Times::ZERO });
    if !latency.is_zero() {
        world.sandbox.management().faults().add(Fault::new(Effect::Delay(latency)).on_writes());
    }
    let bare = Bare::of(&world);
    bare.group().await;

    let bare_increase = timed(bare.group()).await;
    let increase = timed(async { world.increase(0, 1, PATIENT).await.unwrap() });
    let (increase, asked) = counted(&world, increase).await;
    report(latency, "an increase", increase, bare_increase, &asked);

    let names: Vec<_> = world.nodes().into_iter().map(|node| node.name).collect();
    let (others, named) = names.split_at(MACHINES - DELETES);
    let bare_deletes = timed(async {
        bare.group().await;
        bare.machines(&others[..DELETES]).await;
        bare.group().await;
    });
    let bare_deletes = bare_deletes.await;
    let nodes: Vec<_> = world.nodes().into_iter().filter(|node| named.contains(&node.name)).collect();
    let deletes = timed(async {
        let answers = join_all(nodes.into_iter().map(|node| world.delete(0, vec![node], PATIENT))).await;
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    });
    let (deletes, asked) = counted(&world, deletes).await;
    report(latency, "50 deletes of one Node", deletes, bare_deletes, &asked);
    world.stop().await;
}

async fn timed(what: impl Future<Output = ()>) -> Duration {
    let began = Instant::now();
    what.await;
    began.elapsed()
}

/// What was asked of the API server meanwhile, by verb and kind.
async fn counted(world: &World, what: impl Future<Output = Duration>) -> (Duration, BTreeMap<String, usize>) {
    let requests = world.sandbox.management().requests();
    requests.clear();
    let took = what.await;
    let mut counts = BTreeMap::new();
    for request in requests.all().into_iter().filter(|request| is_of_a_command(request) || request.verb == "list") {
        let kinds = ["/scale", "/machinedeployments", "/machines"];
        let kind = kinds.into_iter().find(|kind| request.path.contains(kind)).unwrap_or("others");
        *counts.entry(format!("{} {kind}", request.verb)).or_default() += 1;
    }
    (took, counts)
}

fn report(latency: Duration, what: &str, took: Duration, bare: Duration, asked: &BTreeMap<String, usize>) {
    let ratio = took.as_secs_f64() / bare.as_secs_f64();
    let millis = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
    let (took, bare) = (millis(took), millis(bare));
    println!("{:<10} {what:<26} {took:>10} {bare:>10} {ratio:>6.2}  {asked:?}", format!("{latency:?}"));
}

/// PATCHes and nothing else.
struct Bare {
    groups: Api<DynamicObject>,
    machines: Api<DynamicObject>,
}

impl Bare {
    fn of(world: &World) -> Self {
        let config = Config::new(world.sandbox.management().url().parse().unwrap());
        let client = Client::try_from(config).unwrap();
        let api = |kind: &str| {
            let kind = GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", kind);
            Api::namespaced_with(client.clone(), "team-a", &ApiResource::from_gvk(&kind))
        };
        Self { groups: api("MachineDeployment"), machines: api("Machine") }
    }

    async fn group(&self) {
        let patch = json!({ "metadata": { "annotations": { "bare": format!("{:?}", Instant::now()) } } });
        self.groups.patch("workers", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    async fn machines(&self, names: &[String]) {
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { "bare": "bare" } } }));
        let params = PatchParams::default();
        let patches = stream::iter(names).map(|name| self.machines.patch(name, &params, &patch));
        patches.buffer_unordered(SIDE_BY_SIDE).for_each(|patched| async { drop(patched.unwrap()) }).await;
    }
}
