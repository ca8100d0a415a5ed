//! The release binary in a process of its own, and the costs of its events.

use std::{
    collections::BTreeMap,
    fs,
    net::SocketAddr,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use proto::{NodeGroupNodesRequest, RefreshRequest};
use sandbox::{
    api::{PatchKind, Resource, Selection, Subresource},
    clusters::ClusterOf,
};
use serde_json::json;
use testkit::{Wait, try_get};
use tokio::{
    task::JoinHandle,
    time::{MissedTickBehavior, interval, sleep, timeout},
};

use crate::{
    Args, Fleet,
    callers::{self, Client, Plan},
    certificates::{FILES, TRUST_DOMAIN},
    environment,
    world::{SELECTOR, World},
};

/// The longest time for the first lists.
const PATIENCE: Duration = Duration::from_secs(300);
const INTERVAL: Duration = Duration::from_millis(20);
/// The time between two scrapes, which cost the program more than any other look at it.
const BETWEEN_SCRAPES: Duration = Duration::from_millis(100);
/// The series of a Cluster whose Nodes are in sync begin with this and end with 1.
const NODES_IN_SYNC: &str = "capi_autoscaler_provider_fleet_cluster_nodes_synced{";
/// The series of connections that ended in their handshake.
const REFUSED: &str = "capi_autoscaler_provider_tls_refused_connections_total{";
/// The time between two looks at its readiness, and that in which it must answer.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);
const ANSWER: Duration = Duration::from_secs(5);
/// The time between two events.
const BETWEEN_EVENTS: Duration = Duration::from_millis(1);
/// The time for which the process is idle before its events, to subtract that.
const IDLE: Duration = Duration::from_secs(3);

/// The Clusters that a process serves.
#[derive(Clone, Copy)]
pub(crate) enum Served<'a> {
    /// Those that a selector matches, and their number.
    Fleet(&'a str, usize),
    One(&'a ClusterOf),
}

impl Served<'_> {
    /// Returns all Clusters of a world.
    pub(crate) fn all_of(world: &World<'_>) -> Self {
        Self::Fleet(SELECTOR, world.clusters().len())
    }
}

/// A running process of the program.
pub(crate) struct Program {
    process: testkit::Program,
    /// The number of Clusters of a fleet; `None` for one without.
    fleet: Option<usize>,
    began: Instant,
    pub(crate) grpc: SocketAddr,
    http: SocketAddr,
}

impl Program {
    pub(crate) fn start(world: &World<'_>, served: Served<'_>) -> Self {
        let sandbox = world.sandbox();
        let mut command = Command::new(env!("CARGO_BIN_EXE_capi-autoscaler-provider"));
        command.envs(environment::of_image());
        command.args(["serve", "--no-events", "--admin-listen=none", "--log-format=json"]);
        command.args(["--listen=127.0.0.1:0", "--http-listen=127.0.0.1:0"]);
        command.arg(format!("--management-kubeconfig={}", sandbox.management_kubeconfig().display()));
        let fleet = match served {
            Served::Fleet(selector, count) => {
                command.arg(format!("--fleet-selector={selector}"));
                command.arg(format!("--fleet-trust-domain={TRUST_DOMAIN}"));
                for (flag, file) in ["cert", "key", "client-ca"].iter().zip(FILES) {
                    command.arg(format!("--tls-{flag}-file={}", sandbox.folder().join(file).display()));
                }
                Some(count)
            }
            Served::One(cluster) => {
                command.arg(format!("--cluster={}", cluster.text()));
                None
            }
        };
        let began = Instant::now();
        let process = testkit::Program::start(&mut command);
        let address = |message| world.block_on(process.address(message)).parse().expect("an address");
        let (http, grpc) = (address("serving HTTP"), address("serving gRPC"));
        Self { process, fleet, began, grpc, http }
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.process().id()
    }

    pub(crate) fn memory(&self, field: &str) -> u64 {
        self.process.process().memory(field)
    }

    /// Lets the peak of its memory begin anew.
    pub(crate) fn forget_peak(&self) {
        let file = format!("/proc/{}/clear_refs", self.id());
        fs::write(file, "5").expect("the peak begins anew");
    }

    /// Looks at its readiness from now on.
    pub(crate) fn readiness(&self, world: &World<'_>) -> Readiness {
        let (address, counts) = (self.http.to_string(), Arc::<[AtomicUsize; 2]>::default());
        let counted = Arc::clone(&counts);
        let looking = world.spawn(async move {
            let mut ticks = interval(BETWEEN_LOOKS);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                let answer = timeout(ANSWER, try_get(&address, "/readyz")).await;
                let is_ready = answer.is_ok_and(|answer| answer.is_ok_and(|(status, _)| status == 200));
                counted[usize::from(is_ready)].fetch_add(1, Ordering::Relaxed);
            }
        });
        Readiness { counts, looking }
    }

    /// Returns the number of connections that ended in their handshake, by reason.
    pub(crate) async fn refused(&self) -> BTreeMap<String, u64> {
        let (_, metrics) = try_get(&self.http.to_string(), "/metrics").await.expect("metrics");
        let series = metrics.lines().filter_map(|line| line.strip_prefix(REFUSED)?.split_once("} "));
        let counts = series.filter_map(|(labels, count)| {
            let reason = labels.split('"').nth(1)?;
            Some((reason.to_owned(), count.parse::<f64>().ok()? as u64))
        });
        counts.collect()
    }

    pub(crate) fn processor_time(&self) -> Duration {
        self.process.process().processor_time()
    }

    pub(crate) fn age(&self) -> Duration {
        self.began.elapsed()
    }

    /// Waits until it is ready, and returns its age then.
    pub(crate) async fn ready(&self) -> Duration {
        let address = self.http.to_string();
        let wait = Wait::new("the program is ready").within(PATIENCE).every(INTERVAL);
        wait.value(async || try_get(&address, "/readyz").await.ok().filter(|(status, _)| *status == 200)).await;
        self.age()
    }

    /// Waits until the Nodes of all Clusters are in sync, and returns its age then. A process of one Cluster is ready
    /// once they are.
    pub(crate) async fn all_nodes(&self, world: &World<'_>) -> Duration {
        Wait::new("all watches").within(PATIENCE).every(INTERVAL).condition(|| world.all_are_watched()).await;
        if let Some(all) = self.fleet {
            let address = self.http.to_string();
            let wait = Wait::new("all Nodes").within(PATIENCE).every(BETWEEN_SCRAPES);
            wait.value(async || {
                let (_, metrics) = try_get(&address, "/metrics").await.ok()?;
                let is_in_sync = |line: &&str| line.starts_with(NODES_IN_SYNC) && line.ends_with(" 1");
                (metrics.lines().filter(is_in_sync).count() == all).then_some(())
            })
            .await;
        }
        self.age()
    }

    /// Connects the autoscaler of a Cluster.
    async fn client(&self, world: &World<'_>, number: usize) -> Client {
        let plan = Plan { provider: self.grpc, ..world.plan.clone() };
        callers::connect(&plan, &world.plan.callers[number]).await.expect("a connection")
    }

    /// Sends the events of a turn, and returns the processor time of it and of as long a time without events.
    async fn event_turn(&self, world: &World<'_>, args: &Args, (events, turn): (&Events, usize)) -> EventTurn {
        let mut client = self.client(world, events.last_cluster(args.events)).await;
        let before = self.processor_time();
        sleep(IDLE).await;
        let idle = self.processor_time().saturating_sub(before);
        let (began, before) = (Instant::now(), self.processor_time());
        let (group, last) = events.send(world, args.events, turn).await;
        let wait = Wait::new("the last event").within(PATIENCE).every(INTERVAL);
        wait.value(async || {
            client.refresh(RefreshRequest {}).await.ok()?;
            let answer = client.node_group_nodes(NodeGroupNodesRequest { id: group.clone() }).await.ok()?;
            answer.into_inner().instances.iter().any(|instance| instance.id == last).then_some(())
        })
        .await;
        let busy = self.processor_time().saturating_sub(before);
        EventTurn { busy, idle: idle.mul_f64(began.elapsed().as_secs_f64() / IDLE.as_secs_f64()) }
    }
}

/// The processor time of a turn with events, and of as long a time without.
struct EventTurn {
    busy: Duration,
    idle: Duration,
}

/// Returns the processor time of a Machine's event in each of two fleets. The turns of one alternate with those of the
/// other, since times of both rise and fall together for seconds: the result is that of the turn whose ratio is the
/// median of all.
pub(crate) async fn events_in_turns(fleets: [&Fleet<'_>; 2], args: &Args) -> [Duration; 2] {
    let events = fleets.map(|fleet| Events::of(&fleet.world, args));
    // The connections of the autoscalers that have ended are closed first.
    sleep(IDLE).await;
    let (mut turns, mut idle) = (Vec::new(), [Duration::MAX; 2]);
    for turn in 0..=2 * args.turns {
        let mut busy = [Duration::ZERO; 2];
        for (number, Fleet { world, program, .. }) in fleets.into_iter().enumerate() {
            let turn = program.event_turn(world, args, (&events[number], turn)).await;
            busy[number] = turn.busy;
            // Bookmarks, which come each minute, aren't a part of every turn.
            idle[number] = turn.idle.min(idle[number]);
        }
        turns.push(busy);
    }
    let cost =
        |busy: [Duration; 2]| [0, 1].map(|number| busy[number].saturating_sub(idle[number]) / args.events as u32);
    let mut costs: Vec<_> = turns.into_iter().map(cost).collect();
    costs.sort_by(|a, b| event_ratio(*a).total_cmp(&event_ratio(*b)));
    costs[costs.len() / 2]
}

/// Returns the ratio of the cost of an event in the second fleet to that in the first.
pub(crate) fn event_ratio([of_one, of_all]: [Duration; 2]) -> f64 {
    of_all.as_secs_f64() / of_one.as_secs_f64().max(1e-9)
}

/// The looks at a program's readiness, which end when this is dropped.
pub(crate) struct Readiness {
    /// The looks at which it wasn't ready, and those at which it was.
    counts: Arc<[AtomicUsize; 2]>,
    looking: JoinHandle<()>,
}

impl Readiness {
    /// Returns the number of looks at which it wasn't ready, and that of all.
    pub(crate) fn missed(&self) -> (usize, usize) {
        let [missed, ready] = [0, 1].map(|at: usize| self.counts[at].load(Ordering::Relaxed));
        (missed, missed + ready)
    }
}

impl Drop for Readiness {
    fn drop(&mut self) {
        self.looking.abort();
    }
}

/// The Machines whose events are sent, in an order in which one Cluster follows another.
pub(crate) struct Events {
    machines: Vec<(usize, String)>,
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

    /// Returns the Cluster of the last of so many events.
    pub(crate) fn last_cluster(&self, count: usize) -> usize {
        self.at(count - 1).0
    }

    /// Sends events of a turn, and returns the group and the instance that the last one is about.
    pub(crate) async fn send(&self, world: &World<'_>, count: usize, turn: usize) -> (String, String) {
        let mut ticks = interval(BETWEEN_EVENTS);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = (String::new(), String::new());
        for number in 0..count {
            ticks.tick().await;
            let (cluster, name) = self.at(number);
            let ClusterOf { namespace, name: cluster, .. } = &world.clusters()[*cluster];
            let id = format!("sandbox:///{namespace}/{name}-{turn}-{number}");
            let body = json!({"spec": {"providerID": id}});
            let api = world.sandbox().management().api();
            api.patch(&machines(), namespace, name, PatchKind::Merge, Subresource::Main, body).expect("a change");
            last = (format!("MachineDeployment/{namespace}/{cluster}-group-0000"), id);
        }
        last
    }
}

fn machines() -> Resource {
    Resource::new("cluster.x-k8s.io", "v1beta2", "machines")
}
