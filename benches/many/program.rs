//! The release binary in a process of its own.

use std::{
    fs,
    net::SocketAddr,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use testkit::{Wait, try_get};
use tokio::{
    task::JoinHandle,
    time::{MissedTickBehavior, interval, timeout},
};

use crate::{
    callers::{self, Client, Plan},
    certificates::{FILES, TRUST_DOMAIN},
    environment,
    world::{SELECTOR, World},
};

/// The longest time for the first lists.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);
/// The time between two looks that cost the program little.
pub(crate) const INTERVAL: Duration = Duration::from_millis(20);
/// The time between two scrapes, which cost the program more than any other look at it.
const BETWEEN_SCRAPES: Duration = Duration::from_millis(100);
/// The series of a Cluster whose Nodes are in sync begin with this and end with 1.
const NODES_IN_SYNC: &str = "capi_autoscaler_provider_fleet_cluster_nodes_synced{";
/// The time between two looks at its readiness, and that in which it must answer.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);
const ANSWER: Duration = Duration::from_secs(5);

/// A running process of the program.
pub(crate) struct Program {
    process: testkit::Program,
    /// The number of its Clusters.
    clusters: usize,
    began: Instant,
    pub(crate) grpc: SocketAddr,
    http: SocketAddr,
}

impl Program {
    pub(crate) fn start(world: &World<'_>) -> Self {
        let sandbox = world.sandbox();
        let mut command = Command::new(env!("CARGO_BIN_EXE_capi-autoscaler-provider"));
        command.envs(environment::of_image());
        command.args(["serve", "--no-events", "--admin-listen=none", "--log-format=json"]);
        command.args(["--listen=127.0.0.1:0", "--http-listen=127.0.0.1:0"]);
        command.arg(format!("--management-kubeconfig={}", sandbox.management_kubeconfig().display()));
        command.arg(format!("--fleet-selector={SELECTOR}")).arg(format!("--fleet-trust-domain={TRUST_DOMAIN}"));
        for (flag, file) in ["cert", "key", "client-ca"].iter().zip(FILES) {
            command.arg(format!("--tls-{flag}-file={}", sandbox.folder().join(file).display()));
        }
        let began = Instant::now();
        let process = testkit::Program::start(&mut command);
        let address = |message| world.block_on(process.address(message)).parse().expect("an address");
        let (http, grpc) = (address("serving HTTP"), address("serving gRPC"));
        Self { process, clusters: world.clusters().len(), began, grpc, http }
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

    /// Waits until the Nodes of all Clusters are in sync, and returns its age then.
    pub(crate) async fn all_nodes(&self, world: &World<'_>) -> Duration {
        Wait::new("all watches").within(PATIENCE).every(INTERVAL).condition(|| world.all_are_watched()).await;
        let address = self.http.to_string();
        let wait = Wait::new("all Nodes").within(PATIENCE).every(BETWEEN_SCRAPES);
        wait.value(async || {
            let (_, metrics) = try_get(&address, "/metrics").await.ok()?;
            let is_in_sync = |line: &&str| line.starts_with(NODES_IN_SYNC) && line.ends_with(" 1");
            (metrics.lines().filter(is_in_sync).count() == self.clusters).then_some(())
        })
        .await;
        self.age()
    }

    /// Connects the autoscaler of a Cluster.
    pub(crate) async fn client(&self, world: &World<'_>, number: usize) -> Client {
        let plan = Plan { provider: self.grpc, ..world.plan.clone() };
        callers::connect(&plan, &world.plan.callers[number]).await.expect("a connection")
    }
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
