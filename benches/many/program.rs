//! The release binary in a process of its own, and the costs of its events.

use std::{
    net::SocketAddr,
    process::Command,
    time::{Duration, Instant},
};

use proto::{NodeGroupNodesRequest, RefreshRequest};
use sandbox::{
    api::{PatchKind, Resource, Selection, Subresource},
    clusters::ClusterOf,
};
use serde_json::json;
use testkit::{Wait, try_get};
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::{
    Args,
    callers::{self, Client, Plan},
    certificates::{FILES, TRUST_DOMAIN},
    world::{LABEL, World},
};

/// The longest time for the first lists.
const PATIENCE: Duration = Duration::from_secs(300);
const INTERVAL: Duration = Duration::from_millis(20);
/// The time between two events.
const BETWEEN_EVENTS: Duration = Duration::from_millis(1);
/// The time for which the process is idle before its events, to subtract that.
const IDLE: Duration = Duration::from_secs(3);

/// The Clusters that a process serves.
#[derive(Clone, Copy)]
pub(crate) enum Served<'a> {
    Fleet,
    One(&'a ClusterOf),
}

/// A running process of the program.
pub(crate) struct Program {
    process: testkit::Program,
    began: Instant,
    pub(crate) grpc: SocketAddr,
    http: SocketAddr,
}

impl Program {
    pub(crate) fn start(world: &World<'_>, served: Served<'_>) -> Self {
        let sandbox = world.sandbox();
        let mut command = Command::new(env!("CARGO_BIN_EXE_capi-autoscaler-provider"));
        command.args(["serve", "--no-events", "--admin-listen=none", "--log-format=json"]);
        command.args(["--listen=127.0.0.1:0", "--http-listen=127.0.0.1:0"]);
        command.arg(format!("--management-kubeconfig={}", sandbox.management_kubeconfig().display()));
        match served {
            Served::Fleet => {
                command.arg(format!("--fleet-selector={}={}", LABEL.0, LABEL.1));
                command.arg(format!("--fleet-trust-domain={TRUST_DOMAIN}"));
                for (flag, file) in ["cert", "key", "client-ca"].iter().zip(FILES) {
                    command.arg(format!("--tls-{flag}-file={}", sandbox.folder().join(file).display()));
                }
            }
            Served::One(cluster) => {
                command.arg(format!("--cluster={}", cluster.text()));
            }
        }
        let began = Instant::now();
        let process = testkit::Program::start(&mut command);
        let address = |message| world.block_on(process.address(message)).parse().expect("an address");
        let (http, grpc) = (address("serving HTTP"), address("serving gRPC"));
        Self { process, began, grpc, http }
    }

    pub(crate) fn memory(&self, field: &str) -> u64 {
        self.process.process().memory(field)
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

    /// Waits until the Nodes of all Clusters are watched, and returns its age then.
    pub(crate) async fn all_nodes(&self, world: &World<'_>) -> Duration {
        Wait::new("all Nodes").within(PATIENCE).every(INTERVAL).condition(|| world.all_are_watched()).await;
        self.age()
    }

    /// Connects the autoscaler of a Cluster.
    async fn client(&self, world: &World<'_>, number: usize) -> Client {
        let plan = Plan { provider: self.grpc, ..world.plan.clone() };
        callers::connect(&plan, &world.plan.callers[number]).await.expect("a connection")
    }

    /// Returns the processor time of a Machine's event.
    pub(crate) async fn event(&self, world: &World<'_>, args: &Args) -> Duration {
        let events = Events::of(world);
        let mut client = self.client(world, events.last_cluster(args.events)).await;
        // The connections of the autoscalers that have ended are closed first.
        sleep(IDLE).await;
        let before = self.processor_time();
        sleep(IDLE).await;
        let idle = self.processor_time().saturating_sub(before);
        let (began, before) = (Instant::now(), self.processor_time());
        let (group, last) = events.send(world, args.events).await;
        let wait = Wait::new("the last event").within(PATIENCE).every(INTERVAL);
        wait.value(async || {
            client.refresh(RefreshRequest {}).await.ok()?;
            let answer = client.node_group_nodes(NodeGroupNodesRequest { id: group.clone() }).await.ok()?;
            answer.into_inner().instances.iter().any(|instance| instance.id == last).then_some(())
        })
        .await;
        let busy = self.processor_time().saturating_sub(before);
        let idle = idle.mul_f64(began.elapsed().as_secs_f64() / IDLE.as_secs_f64());
        busy.saturating_sub(idle) / args.events as u32
    }
}

/// The Machines whose events are sent, in an order in which one Cluster follows another.
pub(crate) struct Events {
    machines: Vec<(usize, String)>,
}

impl Events {
    pub(crate) fn of(world: &World<'_>) -> Self {
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
        let clusters = world.clusters().iter().take(20).map(of_cluster).collect::<Vec<_>>();
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

    /// Sends events, and returns the group and the instance that the last one is about.
    pub(crate) async fn send(&self, world: &World<'_>, count: usize) -> (String, String) {
        let mut ticks = interval(BETWEEN_EVENTS);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = (String::new(), String::new());
        for number in 0..count {
            ticks.tick().await;
            let (cluster, name) = self.at(number);
            let ClusterOf { namespace, name: cluster, .. } = &world.clusters()[*cluster];
            let id = format!("sandbox:///{namespace}/{name}-{number}");
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
