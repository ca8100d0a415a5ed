//! The cost of commands, in requests and relative to plain PATCHes of the same run: an increase, and 50 concurrent
//! DeleteNodes of one Node each. The program runs in-process on a sandbox, whose API server answers at once or, like a
//! real one, after some milliseconds. Each round has a world of its own. `tests/writes/requests.rs` asserts the
//! requests.

// A bench may panic: it is a test of its own input.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code, reason = "a bench needs less than the tests do")]
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
use sandbox::faults::{Effect, Fault};
use serde_json::json;
use tokio::runtime::Builder;

use crate::world::{World, is_of_a_command};

const MACHINES: usize = 200;
const DELETES: usize = 50;
/// The number of concurrent writes, the same as the program's.
const SIDE_BY_SIDE: usize = 16;
const PATIENT: Duration = Duration::from_secs(30);

/// The API server's latency of a write in milliseconds, and the number of rounds with it.
const ROUNDS: [(u64, usize); 3] = [(0, 20), (5, 5), (20, 5)];

fn main() {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    for (latency, rounds) in ROUNDS {
        let latency = Duration::from_millis(latency);
        let rounds: Vec<_> = (0..rounds).map(|_| runtime.block_on(round(latency))).collect();
        let (increases, deletes): (Vec<_>, Vec<_>) = rounds.into_iter().unzip();
        report(latency, "an increase", increases);
        report(latency, "50 deletes of one Node", deletes);
    }
}

/// The durations of commands and of as many plain PATCHes.
struct Measured {
    took: Duration,
    bare: Duration,
    requests: BTreeMap<String, usize>,
}

impl Measured {
    fn ratio(&self) -> f64 {
        self.took.as_secs_f64() / self.bare.as_secs_f64()
    }
}

/// Measures an increase, and deletes.
async fn round(latency: Duration) -> (Measured, Measured) {
    let world = World::start(MACHINES).await;
    world.until_known().await;
    world.rest().await;
    // The simulated controllers have ended, so that only the commands' requests are counted.
    world.sandbox.simulation().end().await;
    if !latency.is_zero() {
        world.sandbox.management().faults().add(Fault::new(Effect::Delay(latency)).on_writes());
    }
    let bare = Bare::of(&world);
    bare.group().await;

    let bare_increase = timed(bare.group()).await;
    let increase = timed(async { world.increase(1, PATIENT).await.unwrap() });
    let (took, requests) = counted(&world, increase).await;
    let increase = Measured { took, bare: bare_increase, requests };

    let machines: Vec<_> = world.nodes().into_iter().map(|node| node.name).collect();
    let (others, named) = machines.split_at(MACHINES - DELETES);
    let bare_deletes = timed(async {
        bare.group().await;
        bare.machines(&others[..DELETES]).await;
        bare.group().await;
    });
    let bare_deletes = bare_deletes.await;
    let nodes: Vec<_> = world.nodes().into_iter().filter(|node| named.contains(&node.name)).collect();
    let deletes = timed(async {
        let answers = join_all(nodes.into_iter().map(|node| world.delete(vec![node], PATIENT))).await;
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    });
    let (took, requests) = counted(&world, deletes).await;
    world.stop().await;
    (increase, Measured { took, bare: bare_deletes, requests })
}

async fn timed(what: impl Future<Output = ()>) -> Duration {
    let began = Instant::now();
    what.await;
    began.elapsed()
}

/// Returns the duration, and counts the concurrent requests to the API server by verb and kind.
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

/// Prints the median of the ratios with its round, and the 90th percentile of the ratios.
fn report(latency: Duration, what: &str, mut rounds: Vec<Measured>) {
    rounds.sort_by(|one, other| one.ratio().total_cmp(&other.ratio()));
    let (median, ninth) = (&rounds[rounds.len() / 2], &rounds[rounds.len() * 9 / 10 - 1]);
    let fewest = rounds.iter().map(|round| round.requests.values().sum::<usize>()).min().unwrap_or_default();
    let most = rounds.iter().max_by_key(|round| round.requests.values().sum::<usize>()).expect("a round");
    println!(
        "{:<6} {what:<23} {} rounds, median {:.2} ({:.1} ms and {:.1} ms bare), nine of ten within {:.2}; {fewest} requests at \
         least, at most {:?}",
        format!("{latency:?}"),
        rounds.len(),
        median.ratio(),
        median.took.as_secs_f64() * 1e3,
        median.bare.as_secs_f64() * 1e3,
        ninth.ratio(),
        most.requests,
    );
}

/// Plain PATCHes.
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

    async fn machines(&self, machines: &[String]) {
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { "bare": "bare" } } }));
        let params = PatchParams::default();
        let patches = stream::iter(machines).map(|name| self.machines.patch(name, &params, &patch));
        patches.buffer_unordered(SIDE_BY_SIDE).for_each(|patched| async { drop(patched.unwrap()) }).await;
    }
}
