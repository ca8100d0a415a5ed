//! Events of Machines, and what they cost the program.

use std::time::{Duration, Instant};

use proto::{NodeGroupNodesRequest, RefreshRequest};
use sandbox::{
    api::{PatchKind, Resource, Selection, Subresource},
    clusters::ClusterOf,
};
use serde_json::json;
use testkit::Wait;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::{
    Args, Fleet,
    callers::Client,
    program::{INTERVAL, PATIENCE},
    world::World,
};

/// The time between two events.
const BETWEEN_EVENTS: Duration = Duration::from_millis(1);
/// A turn of the other measurements has this many parts here, with pauses before and after each. What the processes do
/// in those is subtracted: bookmarks of all Clusters come within a second, and reading their Secrets again takes many.
const PARTS: usize = 4;
const PAUSE: Duration = Duration::from_secs(1);
/// The time after the last event of a part that belongs to it, for what events leave to be done later.
const DRAIN: Duration = Duration::from_millis(500);

/// The Machines whose events are sent, in an order in which one Cluster follows another.
pub(crate) struct Events {
    machines: Vec<(usize, String)>,
}

/// The group and the instance that an event is about.
struct Sent {
    group: String,
    instance: String,
}

impl Events {
    pub(crate) fn of(world: &World<'_>, args: &Args) -> Self {
        let resource = machines();
        let of_cluster = |cluster: &ClusterOf| {
            let prefix = format!("{}-", cluster.name);
            let selection = Selection::default();
            let all = world.sandbox().management().api().list(&resource, &selection).expect("Machines");
            let own = all.into_iter().filter(|machine| machine["metadata"]["namespace"] == *cluster.namespace);
            let names = own.filter_map(|machine| Some(machine["metadata"]["name"].as_str()?.to_owned()));
            let mut names: Vec<_> = names.filter(|name| name.starts_with(&prefix)).collect();
            names.sort_unstable();
            // The first one is the sample of its group, which looks at all others when that loses its Node: with each
            // such event, the cost would be that of the group's size.
            names.split_off(1)
        };
        // A fleet's events are of some of its Clusters, so that Machines are listed a few times only.
        let clusters = world.clusters().iter().take(args.changing).map(of_cluster).collect::<Vec<_>>();
        let rounds = clusters.iter().map(Vec::len).max().unwrap_or_default();
        let in_turns = (0..rounds).flat_map(|round| {
            clusters.iter().enumerate().filter_map(move |(number, names)| Some((number, names.get(round)?.clone())))
        });
        Self { machines: in_turns.collect() }
    }

    fn at(&self, number: usize) -> &(usize, String) {
        &self.machines[number % self.machines.len()]
    }

    /// Sends an event. Its change is unlike those of all other parts and numbers.
    fn send(&self, world: &World<'_>, part: usize, number: usize) -> Sent {
        let (cluster, name) = self.at(number);
        let ClusterOf { namespace, name: cluster, .. } = &world.clusters()[*cluster];
        let instance = format!("sandbox:///{namespace}/{name}-{part}-{number}");
        let body = json!({"spec": {"providerID": instance}});
        let api = world.sandbox().management().api();
        api.patch(&machines(), namespace, name, PatchKind::Merge, Subresource::Main, body).expect("a change");
        Sent { group: format!("MachineDeployment/{namespace}/{cluster}-group-0000"), instance }
    }
}

/// Returns the processor time of a Machine's event in each of two fleets. Their events alternate, since times of both
/// rise and fall together: the result is that of the part whose ratio is the median of all.
pub(crate) async fn side_by_side(fleets: [&Fleet<'_>; 2], args: &Args) -> [Duration; 2] {
    let events = fleets.map(|fleet| Events::of(&fleet.world, args));
    let count = args.events.div_ceil(PARTS);
    let mut clients = Vec::new();
    for (Fleet { world, program, .. }, events) in fleets.into_iter().zip(&events) {
        clients.push(program.client(world, events.at(count - 1).0).await);
    }
    let times = || fleets.map(|fleet| fleet.program.processor_time());
    let since = |start: [Duration; 2]| {
        let end = times();
        [0, 1].map(|number: usize| end[number].saturating_sub(start[number]))
    };
    let idle = async || {
        let (began, start) = (Instant::now(), times());
        sleep(PAUSE).await;
        let (times, duration) = (since(start), began.elapsed());
        times.map(|time| time.div_duration_f64(duration))
    };
    let (mut costs, mut before) = (Vec::new(), idle().await);
    for part in 0..=PARTS * args.turns {
        let (began, start) = (Instant::now(), times());
        let last = send_by_turns(fleets, &events, count, part).await;
        for (client, sent) in clients.iter_mut().zip(last) {
            until_known(client, &sent).await;
        }
        sleep(DRAIN).await;
        let (busy, duration) = (since(start), began.elapsed());
        let after = idle().await;
        costs.push([0, 1].map(|number: usize| {
            let idle = duration.mul_f64(f64::midpoint(before[number], after[number]));
            busy[number].saturating_sub(idle) / count as u32
        }));
        before = after;
    }
    costs.sort_by(|a, b| ratio(*a).total_cmp(&ratio(*b)));
    costs[costs.len() / 2]
}

/// Sends so many events of each fleet, one after the other's, and returns the last ones.
async fn send_by_turns(fleets: [&Fleet<'_>; 2], events: &[Events; 2], count: usize, part: usize) -> Vec<Sent> {
    let mut ticks = ticks();
    let mut last = Vec::new();
    for number in 0..count {
        last.clear();
        for (fleet, events) in fleets.into_iter().zip(events) {
            ticks.tick().await;
            last.push(events.send(&fleet.world, part, number));
        }
    }
    last
}

/// Returns the ratio of the cost of an event in the second fleet to that in the first.
pub(crate) fn ratio([of_one, of_all]: [Duration; 2]) -> f64 {
    of_all.as_secs_f64() / of_one.as_secs_f64().max(1e-9)
}

/// Waits until the answer for its group has an event.
async fn until_known(client: &mut Client, Sent { group, instance }: &Sent) {
    let wait = Wait::new("the last event").within(PATIENCE).every(INTERVAL);
    wait.value(async || {
        client.refresh(RefreshRequest {}).await.ok()?;
        let answer = client.node_group_nodes(NodeGroupNodesRequest { id: group.clone() }).await.ok()?;
        answer.into_inner().instances.iter().any(|known| known.id == *instance).then_some(())
    })
    .await;
}

fn ticks() -> tokio::time::Interval {
    let mut ticks = interval(BETWEEN_EVENTS);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

fn machines() -> Resource {
    Resource::new("cluster.x-k8s.io", "v1beta2", "machines")
}
