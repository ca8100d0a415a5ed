//! The Cluster Autoscalers of a fleet, for a process of their own: each has the certificate of its Cluster, and makes
//! the calls of an idle loop again and again. Each looks for what belongs to another Cluster, which it must never find.

use std::{
    fs,
    future::Future,
    io::{self, Write as _},
    net::SocketAddr,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use proto::{
    ExternalGrpcNode, NodeGroupForNodeRequest, NodeGroupNodesRequest, NodeGroupTargetSizeRequest,
    NodeGroupTemplateNodeInfoRequest, NodeGroupsRequest, RefreshRequest, cloud_provider_client::CloudProviderClient,
};
use sandbox::clusters::ClusterOf;
use serde::{Deserialize, Serialize};
use tokio::{
    sync::{Semaphore, mpsc, oneshot},
    task::JoinSet,
    time::{Interval, MissedTickBehavior, interval, interval_at, sleep},
};
use tonic::{
    Code, Request, Response, Status,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};

use super::certificates::{Authority, Pair};

/// The client of one autoscaler.
pub(crate) type Client = CloudProviderClient<Channel>;

/// The file of the plan in its folder.
pub(crate) const PLAN: &str = "callers.json";
/// Cluster Autoscaler's deadline of a call.
const DEADLINE: Duration = Duration::from_secs(5);
/// The number of connections that are opened at once: a server may limit the handshakes of one address.
const CONNECTING: usize = 8;
/// The pause before a connection is tried again.
const RETRY: Duration = Duration::from_millis(200);
/// The number of calls that an autoscaler without end has under way.
const ENDLESS: usize = 64;

/// The longest time of an attempt: that of gRPC.
const CONNECT: Duration = Duration::from_secs(20);

/// The autoscalers of a process.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Plan {
    /// The address of the provider.
    pub(crate) provider: SocketAddr,
    /// The name in its certificate.
    pub(crate) host: String,
    /// The authority of its certificate, in PEM.
    pub(crate) authority: String,
    /// The pause between two loops of one autoscaler.
    pub(crate) pause: Duration,
    /// The time between two reports.
    pub(crate) report: Duration,
    pub(crate) callers: Vec<Autoscaler>,
}

/// An autoscaler.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Autoscaler {
    pub(crate) namespace: String,
    pub(crate) cluster: String,
    /// Its certificate and key, in PEM.
    pub(crate) certificate: String,
    pub(crate) key: String,
    /// Name and providerID of a Node of another Cluster.
    pub(crate) foreign: Option<(String, String)>,
    /// True if its calls are measured.
    pub(crate) is_measured: bool,
    /// True if it calls without end.
    pub(crate) is_endless: bool,
}

/// Returns the autoscalers of all Clusters, each with its certificate. Each knows a Node of the next Cluster.
pub(crate) fn autoscalers(
    clusters: &[ClusterOf],
    authority: &Authority,
    is_measured: impl Fn(usize) -> bool,
) -> Result<Vec<Autoscaler>, rcgen::Error> {
    let autoscaler = |(number, cluster): (usize, &ClusterOf)| {
        let Pair { certificate, key } = authority.client(&cluster.namespace, &cluster.name)?;
        let next = &clusters[(number + 1) % clusters.len()];
        Ok(Autoscaler {
            namespace: cluster.namespace.clone(),
            cluster: cluster.name.clone(),
            certificate,
            key,
            foreign: if clusters.len() > 1 { node_of(next) } else { None },
            is_measured: is_measured(number),
            is_endless: false,
        })
    };
    clusters.iter().enumerate().map(autoscaler).collect()
}

/// Returns name and providerID of a Node of a Cluster.
fn node_of(cluster: &ClusterOf) -> Option<(String, String)> {
    let prefix = format!("sandbox:///{}/{}-", cluster.namespace, cluster.name);
    cluster.nodes().iter().find_map(|node| {
        let id = node["spec"]["providerID"].as_str().filter(|id| id.starts_with(&prefix))?;
        Some((node["metadata"]["name"].as_str()?.to_owned(), id.to_owned()))
    })
}

/// The command to all autoscalers to measure anew, as a line of text: the next report begins now.
pub(crate) const MEASURE: &str = "measure";

/// The state of the autoscalers since the last report or command.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Report {
    /// The number of commands so far.
    pub(crate) commands: u64,
    /// The autoscalers whose last loop came to its end.
    pub(crate) served: usize,
    /// Those whose last loop was denied.
    pub(crate) denied: usize,
    /// The groups and instances that all have seen in their last loops.
    pub(crate) groups: usize,
    pub(crate) instances: usize,
    /// The calls that were measured, and those without end.
    pub(crate) calls: usize,
    pub(crate) endless: u64,
    /// The answers that named something of another Cluster, since the start.
    pub(crate) crossed: u64,
    /// The duration of the measured calls in µs.
    pub(crate) median: u32,
    pub(crate) p99: u32,
}

/// The outcome of a loop.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Outcome {
    #[default]
    None,
    Served,
    Denied,
    Failed,
}

/// The results of one loop.
#[derive(Clone, Debug, Default)]
struct Seen {
    outcome: Outcome,
    groups: usize,
    instances: usize,
    crossed: u64,
    took: Vec<u32>,
}

#[derive(Debug, Default)]
struct Totals {
    commands: u64,
    last: Vec<(Outcome, usize, usize)>,
    took: Vec<u32>,
    crossed: u64,
    endless: u64,
}

impl Totals {
    fn begin(&mut self) {
        self.commands += 1;
        self.took.clear();
        self.endless = 0;
    }

    fn note(&mut self, number: usize, mut seen: Seen) {
        self.crossed += seen.crossed;
        self.last[number] = (seen.outcome, seen.groups, seen.instances);
        self.took.append(&mut seen.took);
    }
}

type Shared = Arc<Mutex<Totals>>;

fn locked(totals: &Shared) -> MutexGuard<'_, Totals> {
    totals.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Plays the autoscalers of the plan in a folder, and prints a report as a line of JSON after each interval, until the
/// input ends, whose lines are commands.
pub(crate) async fn process(folder: &Path) -> anyhow::Result<()> {
    let plan: Plan = serde_json::from_slice(&fs::read(folder.join(PLAN))?)?;
    let (ended, has_ended) = oneshot::channel::<()>();
    let (commanded, commands) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        // An input that can't be read has ended.
        for _ in io::stdin().lines().map_while(Result::ok).filter(|line| line == MEASURE) {
            // The receiver ends with the process.
            let _ = commanded.send(());
        }
        drop(ended);
    });
    let print = |report: Report| {
        let mut out = io::stdout().lock();
        // The reader may have ended.
        let _ = writeln!(out, "{}", serde_json::to_string(&report).unwrap_or_default()).and_then(|()| out.flush());
    };
    tokio::select! {
        () = play(plan, commands, print) => {}
        _ = has_ended => {}
    }
    Ok(())
}

/// Plays the autoscalers of a plan. Never returns; drop the future to stop.
pub(crate) async fn play(plan: Plan, mut commands: mpsc::UnboundedReceiver<()>, mut report: impl FnMut(Report)) {
    let plan = Arc::new(plan);
    let totals = Shared::default();
    locked(&totals).last = vec![(Outcome::None, 0, 0); plan.callers.len()];
    let connecting = Arc::new(Semaphore::new(CONNECTING));
    let mut callers = JoinSet::new();
    for number in 0..plan.callers.len() {
        let (plan, totals, connecting) = (Arc::clone(&plan), Arc::clone(&totals), Arc::clone(&connecting));
        callers.spawn(Caller { plan, number, totals, connecting }.follow());
    }
    let mut ticks = interval(plan.report);
    ticks.tick().await;
    loop {
        tokio::select! {
            Some(()) = commands.recv() => {
                locked(&totals).begin();
                ticks.reset();
            }
            _ = ticks.tick() => report(reported(&totals)),
        }
    }
}

fn reported(totals: &Shared) -> Report {
    let mut totals = locked(totals);
    let mut took = std::mem::take(&mut totals.took);
    let endless = std::mem::take(&mut totals.endless);
    let count = |outcome: Outcome| totals.last.iter().filter(|last| last.0 == outcome).count();
    let mut report = Report {
        commands: totals.commands,
        served: count(Outcome::Served),
        denied: count(Outcome::Denied),
        groups: totals.last.iter().map(|last| last.1).sum(),
        instances: totals.last.iter().map(|last| last.2).sum(),
        calls: took.len(),
        endless,
        crossed: totals.crossed,
        median: 0,
        p99: 0,
    };
    drop(totals);
    took.sort_unstable();
    let at = |percent: usize| took.get((took.len() * percent / 100).min(took.len().saturating_sub(1)));
    report.median = at(50).copied().unwrap_or_default();
    report.p99 = at(99).copied().unwrap_or_default();
    report
}

/// One of the autoscalers.
struct Caller {
    plan: Arc<Plan>,
    number: usize,
    totals: Shared,
    connecting: Arc<Semaphore>,
}

impl Caller {
    async fn follow(self) {
        // They begin at different times, as autoscalers do, and stay apart: those that have waited for the same thing
        // must not go on together.
        let part = u32::try_from(self.number).unwrap_or_default();
        let pause = self.plan.pause;
        let first = pause * part / u32::try_from(self.plan.callers.len()).unwrap_or(1).max(1);
        let mut turns = interval_at(tokio::time::Instant::now() + first, pause);
        turns.set_missed_tick_behavior(MissedTickBehavior::Skip);
        turns.tick().await;
        self.call(&mut turns).await;
    }

    /// Connects, and makes loop after loop.
    async fn call(&self, turns: &mut Interval) {
        let own = &self.plan.callers[self.number];
        let mut client = self.connected_in_turn().await;
        if own.is_endless {
            return call_without_end(&client, &self.totals).await;
        }
        loop {
            let mut seen = Seen::default();
            let done = one_loop(&mut client, own, &mut seen).await;
            seen.outcome = match done {
                Ok(()) => Outcome::Served,
                Err(status) if status.code() == Code::PermissionDenied => Outcome::Denied,
                Err(_) => Outcome::Failed,
            };
            if !own.is_measured {
                seen.took.clear();
            }
            locked(&self.totals).note(self.number, seen);
            turns.tick().await;
        }
    }

    /// Connects as one of a few at a time.
    async fn connected_in_turn(&self) -> Client {
        loop {
            let connected = {
                let _permit = self.connecting.acquire().await;
                connect(&self.plan, &self.plan.callers[self.number]).await
            };
            match connected {
                Ok(client) => return client,
                Err(_) => sleep(RETRY).await,
            }
        }
    }
}

/// Connects an autoscaler to the provider.
pub(crate) async fn connect(plan: &Plan, own: &Autoscaler) -> Result<Client, tonic::transport::Error> {
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(&plan.authority))
        .identity(Identity::from_pem(&own.certificate, &own.key))
        .domain_name(&plan.host);
    let endpoint = Endpoint::from_shared(format!("https://{}", plan.provider))?.tls_config(tls)?;
    let endpoint = endpoint.connect_timeout(CONNECT);
    Ok(CloudProviderClient::new(endpoint.connect().await?))
}

/// Wraps a message in a request with Cluster Autoscaler's deadline.
fn ask<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(DEADLINE);
    request
}

/// Times a call that is answered.
async fn timed<T>(seen: &mut Seen, call: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, Status> {
    let began = Instant::now();
    let answer = call.await?.into_inner();
    seen.took.push(u32::try_from(began.elapsed().as_micros()).unwrap_or(u32::MAX));
    Ok(answer)
}

async fn one_loop(client: &mut Client, own: &Autoscaler, seen: &mut Seen) -> Result<(), Status> {
    timed(seen, client.refresh(ask(RefreshRequest {}))).await?;
    let groups = timed(seen, client.node_groups(ask(NodeGroupsRequest {}))).await?.node_groups;
    let group_prefix = format!("MachineDeployment/{}/{}-", own.namespace, own.cluster);
    let instance_prefix = format!("sandbox:///{}/{}-", own.namespace, own.cluster);
    for group in groups {
        let id = group.id;
        seen.groups += 1;
        seen.crossed += u64::from(!id.starts_with(&group_prefix));
        timed(seen, client.node_group_target_size(ask(NodeGroupTargetSizeRequest { id: id.clone() }))).await?;
        let template = NodeGroupTemplateNodeInfoRequest { id: id.clone() };
        timed(seen, client.node_group_template_node_info(ask(template))).await?;
        let instances = timed(seen, client.node_group_nodes(ask(NodeGroupNodesRequest { id: id.clone() }))).await?;
        for instance in instances.instances {
            seen.instances += 1;
            // An instance that is being created has no providerID yet.
            let is_node = instance.id.starts_with("sandbox:///");
            seen.crossed += u64::from(is_node && !instance.id.starts_with(&instance_prefix));
            let name = instance.id.rsplit('/').next().unwrap_or_default().to_owned();
            let of = group_of(client, seen, (name, instance.id)).await?;
            // A Node that is gone has no group.
            seen.crossed += u64::from(!of.is_empty() && !of.starts_with(&group_prefix));
        }
    }
    if let Some(foreign) = &own.foreign {
        let of = group_of(client, seen, foreign.clone()).await?;
        seen.crossed += u64::from(!of.is_empty());
    }
    Ok(())
}

/// Returns the id of a Node's group; empty if it has none.
async fn group_of(
    client: &mut Client,
    seen: &mut Seen,
    (name, provider_id): (String, String),
) -> Result<String, Status> {
    let node = ExternalGrpcNode { name, provider_id, ..ExternalGrpcNode::default() };
    let request = NodeGroupForNodeRequest { node: Some(node) };
    let answer = timed(seen, client.node_group_for_node(ask(request))).await?;
    Ok(answer.node_group.map(|group| group.id).unwrap_or_default())
}

async fn call_without_end(client: &Client, totals: &Shared) {
    let mut calling = JoinSet::new();
    for _ in 0..ENDLESS {
        let (mut client, totals) = (client.clone(), Arc::clone(totals));
        calling.spawn(async move {
            loop {
                // Refused or not, it calls again.
                let answer = client.node_groups(ask(NodeGroupsRequest {})).await;
                locked(&totals).endless += 1;
                if answer.is_err() {
                    tokio::task::yield_now().await;
                }
            }
        });
    }
    while calling.join_next().await.is_some() {}
}
