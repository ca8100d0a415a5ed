//! A run: starts the APIs, the program, a scheduler and Cluster Autoscaler, lets them act until nothing moves, and
//! reports.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use app::{App, Config, IndexConfig};
use connect::{Source, WorkloadSource};
use page::state::{CheckState, LeftOutObject, Selection};
use rules::{Rules, Scope, ScopeSpec};
use sandbox::{
    Contract, GroupKey, Models, Object, Sandbox, SandboxOptions, Settings, Times,
    api::Api,
    autoscaler::{Backoff, Caller, Driver, Settings as DriverSettings, Version, Workload},
};
use serde_json::Value;
use service::listen::Shutdown;
use tokio::{task::JoinHandle, time::timeout};
use tonic::transport::Endpoint;

use crate::{
    flags::Flags,
    groups::{self, Groups, Served, id_of},
    manifests::{self, Change, Manifests},
    observer::{self, Observer, Status, digest},
    process::{Process, start_autoscaler, start_scheduler},
    report::{Ended, Entry, Excluded, Group, Pending, Report, SCHEMA_VERSION, clock},
    scheduler::{self, Scheduler},
    state::{State, is_finished, is_ready, node_of, title, title_of},
    workloads::{DURATION, Priorities, Workloads},
};

/// The longest wait for the program, and for the first loop of Cluster Autoscaler, which lists everything first.
const PATIENCE: Duration = Duration::from_secs(120);
/// The longest wait for templates, which concern only the groups that use them.
const TEMPLATES_PATIENCE: Duration = Duration::from_secs(5);
/// The longest pause between two looks at the APIs, and the shortest, in which changes gather.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_millis(20));
/// The time between two words to the one who waits.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// The loops that must end without a change before nothing moves any more.
const QUIET_LOOPS: u64 = 3;
/// Cluster Autoscaler's own fixed wait for new Pods, which nothing shortens, and some more.
const FIXED_WAIT: Duration = Duration::from_secs(3);
/// Cluster Autoscaler's fixed waits while it drains a Node, which nothing shortens.
const DRAIN_WAIT: Duration = Duration::from_secs(30);
/// The flags of its other waits while it drains a Node, which come one after another.
const DRAIN_WAITS: [&str; 4] = [
    "max-pod-eviction-time",
    "node-delete-delay-after-taint",
    "node-deletion-batcher-interval",
    "node-deletion-delay-timeout",
];
/// The flags of its waits for the next removal of a Node, which pass at the same time.
const DELAYS: [&str; 3] =
    ["scale-down-delay-after-add", "scale-down-delay-after-delete", "scale-down-delay-after-failure"];
/// What no run simulates.
const LIMITS: [&str; 4] = [
    "a lack of capacity, Machines that fail, and kubelets: every Machine becomes a Node; Pods start and end at once",
    "volumes' binding, rollouts of Pods, autoscalers of Pods, evictions because of taints, webhooks and quotas",
    "what came before: Cluster Autoscaler starts anew, without backoffs and removals under way, and \
     capi-autoscaler-provider with its default flags, without Nodes that it remembers",
    "drivers of devices and volumes: a new Node has no ResourceSlice, CSINode or declared features",
];
/// What isn't known of a Pod that the scheduler here leaves out, and Cluster Autoscaler perhaps doesn't.
const DOUBT: &str = "rules that the scheduler here may lack: Cluster Autoscaler gives no reason against the Pod";
/// The taint of a Node that Cluster Autoscaler is about to remove.
const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";

/// The version that the driver plays.
const DRIVEN: Version = Version::new(37, 0);

/// What a run is asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// The files of the manifests.
    pub manifests: Vec<String>,
    /// The changes of the manifests.
    pub changes: Vec<Change>,
    /// The Cluster, as `namespace/name`.
    pub cluster: Option<String>,
    /// The price file.
    pub prices: Option<PathBuf>,
    /// The simulated time after which the run ends.
    pub until: Duration,
    /// The factor by which simulated time goes faster.
    pub speed: u32,
    /// The time from a new Machine to a Ready Node, for all groups.
    pub machine_time: Option<Duration>,
    /// Who plays Cluster Autoscaler.
    pub player: Player,
    /// The binary of kube-scheduler; `None` for the scheduler here.
    pub scheduler: Option<PathBuf>,
    /// Cluster Autoscaler's flags.
    pub flags: Vec<String>,
    /// The folder in which logs are kept.
    pub logs: Option<PathBuf>,
}

/// Who plays Cluster Autoscaler.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Player {
    /// Its binary.
    Binary(PathBuf),
    /// A model of it, for tests.
    Driver,
}

/// A word to the one who waits.
#[derive(Clone, Debug, PartialEq)]
pub enum Progress {
    /// The run goes on.
    Note(String),
    /// Something has happened in it.
    Happened(Entry),
}

/// The receiver of words to the one who waits.
type Say<'a> = &'a mut (dyn FnMut(Progress) + Send);

/// Runs Cluster Autoscaler on the manifests until nothing moves.
pub async fn run(options: &Options, say: Say<'_>) -> anyhow::Result<Report> {
    let flags = Flags::new(&options.flags, options.speed)?;
    let mut passed_over = Vec::new();
    let objects = manifests::read(&options.manifests, &mut passed_over)?;
    let cluster = options.cluster.clone().or_else(|| only_cluster(&flags.scope));
    let mut manifests = manifests::arrange(objects, &options.changes, cluster.as_deref(), options.speed)?;
    manifests.not_simulated.extend(passed_over);
    let priorities = Priorities::of(&manifests.workload);
    for pod in manifests.workload.iter_mut().filter(|object| object.kind() == "Pod") {
        priorities.admit(pod);
    }
    say(Progress::Note(format!(
        "{} objects of Cluster API, {} of the workload cluster",
        manifests.management.len(),
        manifests.workload.len()
    )));
    let clusters = Clusters::start(&manifests, &flags, options).await?;
    let report = clusters.act(manifests, &flags, priorities, options, say).await;
    clusters.end().await;
    report
}

fn only_cluster(scope: &[ScopeSpec]) -> Option<String> {
    match scope {
        [ScopeSpec { namespace: Some(namespace), cluster_name: Some(name), .. }] => Some(format!("{namespace}/{name}")),
        _ => None,
    }
}

/// Both clusters, with the program.
struct Clusters {
    sandbox: Sandbox,
    program: App,
    shutdown: Shutdown,
    caller: Caller,
    contract: Contract,
    folder: tempfile::TempDir,
}

impl Clusters {
    async fn start(manifests: &Manifests, flags: &Flags, options: &Options) -> anyhow::Result<Self> {
        // Until the models of Nodes are known no Machine becomes one.
        let settings =
            Settings { contract: manifests.contract, times: Times::ZERO, models: Some(Arc::new(Models::new())) };
        let (management, workload) = (manifests.management.clone(), manifests.workload.clone());
        let sandbox = Sandbox::start(SandboxOptions {
            settings,
            manifests: management,
            workload_manifests: workload,
            ..SandboxOptions::default()
        });
        let sandbox = sandbox.await.context("the manifests can't be loaded")?;
        let scope = match (&manifests.cluster, flags.scope.is_empty()) {
            (_, false) => Scope::Specs(flags.scope.clone()),
            (Some((namespace, name)), true) => Scope::Specs(vec![ScopeSpec::cluster(namespace, name)]),
            (None, true) => Scope::All,
        };
        let index = IndexConfig {
            management: Source::File(sandbox.management_kubeconfig()),
            workload: WorkloadSource::Own(Source::File(sandbox.workload_kubeconfig())),
            prices: options.prices.clone(),
            ..IndexConfig::new(Rules::new(scope))
        };
        let shutdown = Shutdown::new();
        let program = App::start(Config::new(index).on_free_ports(), shutdown.clone()).await?;
        let channel = Endpoint::from_shared(format!("http://{}", program.grpc_address()))?.connect_lazy();
        let folder = tempfile::Builder::new().prefix("whatif-").tempdir().context("can't make a folder")?;
        let caller = Caller::new(channel);
        let clusters = Self { sandbox, program, shutdown, caller, contract: manifests.contract, folder };
        clusters.in_sync().await?;
        Ok(clusters)
    }

    /// Waits until the program has read everything.
    async fn in_sync(&self) -> anyhow::Result<()> {
        let refreshed = async {
            while self.caller.refresh().await.is_err() {
                tokio::time::sleep(PAUSES.1).await;
            }
        };
        timeout(PATIENCE, refreshed).await.context("the program isn't in sync with the APIs in memory")?;
        let all_known = async {
            while !self.program_state().head.checks.iter().all(|check| check.state == CheckState::Ready) {
                tokio::time::sleep(PAUSES.1).await;
            }
        };
        // A template that can't be read is a problem of its groups.
        let _ = timeout(TEMPLATES_PATIENCE, all_known).await;
        // The groups that depend on templates are known from the next Refresh on.
        self.caller.refresh().await.context("the program isn't in sync with the APIs in memory")
    }

    fn program_state(&self) -> page::state::State {
        let selection = Selection { instances: false, group: None };
        self.program.state().only().map(|source| source.read(&selection)).unwrap_or_default()
    }

    /// Returns what the program doesn't serve as a group, with its reasons.
    fn excluded(&self) -> Vec<Excluded> {
        let left_out = self.program_state().left_out.into_iter().filter(|it| it.reason != LeftOutObject::OWNED);
        let excluded = |LeftOutObject { id, message, problems, .. }| {
            let problems = problems.into_iter().map(|problem| problem.message);
            Excluded { id, reason: [message].into_iter().chain(problems).collect::<Vec<_>>().join("; ") }
        };
        left_out.map(excluded).collect()
    }

    fn workload(&self) -> &Api {
        self.sandbox.workload().api()
    }

    fn state(&self) -> State {
        State::read(self.workload())
    }

    fn groups(&self, state: &State) -> Groups {
        Groups::read(self.sandbox.management().api(), &state.nodes, self.contract)
    }

    async fn end(self) {
        self.shutdown.request();
        // Nothing depends on how it ends.
        let _ = self.program.finish().await;
        self.sandbox.stop().await;
    }

    /// Makes the Nodes that the manifests lack, and returns the groups that the program serves.
    async fn complete(
        &self,
        options: &Options,
        changed: &BTreeSet<GroupKey>,
        not_simulated: &mut Vec<String>,
    ) -> anyhow::Result<BTreeMap<String, Served>> {
        let state = self.state();
        let groups = self.groups(&state);
        if let [first, others @ ..] = groups.missing.as_slice() {
            bail!(
                "the manifests lack the Node {first}, and {} others: add the Nodes of the workload cluster (kubectl get \
                 nodes -o yaml)",
                others.len()
            );
        }
        let served = groups::served(&self.caller).await?;
        let (models, notes) =
            groups::models(&groups, &state.nodes, &served, changed, options.machine_time, options.speed)?;
        not_simulated.extend(notes);
        self.sandbox.simulation().set_models(models);
        self.sandbox.simulation().settle().await;
        self.caller.refresh().await.context("the program isn't in sync with the APIs in memory")?;
        groups::served(&self.caller).await
    }

    async fn act(
        &self,
        manifests: Manifests,
        flags: &Flags,
        priorities: Priorities,
        options: &Options,
        say: Say<'_>,
    ) -> anyhow::Result<Report> {
        let was_pending = observer::pending_before(&manifests.workload);
        let mut not_simulated = manifests.not_simulated;
        let served = self.complete(options, &manifests.changed, &mut not_simulated).await?;
        let logs = match &options.logs {
            Some(logs) => {
                std::fs::create_dir_all(logs).with_context(|| format!("can't make {}", logs.display()))?;
                logs.clone()
            }
            None => self.folder.path().to_owned(),
        };
        let places = (self.folder.path(), logs.as_path());
        let kubeconfig = self.sandbox.workload_kubeconfig();
        let scheduling = match &options.scheduler {
            Some(binary) => Scheduling::Binary(start_scheduler(binary, &kubeconfig, places)?),
            None => Scheduling::Here(Scheduler::default()),
        };
        let player = self.start_player(options, flags, &kubeconfig, places)?;
        let state = self.state();
        let groups = self.groups(&state);
        let scene = Scene {
            clusters: self,
            flags,
            options,
            before: groups.sizes.clone(),
            was_pending,
            excluded: self.excluded(),
            waits: manifests.waits,
            observer: Observer::new(&state, &groups),
            workloads: Workloads::new(options.speed, priorities),
            scheduling,
            player,
            status: Status::default(),
            timeline: Vec::new(),
            began: None,
            spoke: Instant::now(),
            step_took: Duration::ZERO,
            moved: Moved { digest: 0, at: Instant::now(), loops: 0 },
        };
        scene.play(served, not_simulated, say).await
    }

    fn start_player(
        &self,
        options: &Options,
        flags: &Flags,
        kubeconfig: &Path,
        places: (&Path, &Path),
    ) -> anyhow::Result<Playing> {
        match &options.player {
            Player::Binary(binary) => {
                let provider = self.program.grpc_address().to_string();
                Ok(Playing::Binary(Box::new(start_autoscaler(binary, flags, kubeconfig, &provider, places)?)))
            }
            Player::Driver => {
                let url = self.sandbox.workload().url().parse().context("the API in memory has no URL")?;
                let client = kube::Client::try_from(kube::Config::new(url))?;
                let driver = Driver::new(
                    self.caller.clone(),
                    Workload::new(client),
                    DRIVEN,
                    driver_settings(flags),
                    fastrand::Rng::with_seed(0),
                    |_| {},
                );
                let loops = driver.loops();
                Ok(Playing::Driver { task: tokio::spawn(driver.run()), loops })
            }
        }
    }
}

fn driver_settings(flags: &Flags) -> DriverSettings {
    DriverSettings {
        pause: flags.scan(),
        unneeded: flags.wait("scale-down-unneeded-time"),
        unready: flags.wait("scale-down-unready-time"),
        provision: flags.wait("max-node-provision-time"),
        delay_after_add: flags.wait("scale-down-delay-after-add"),
        delay_after_failure: flags.wait("scale-down-delay-after-failure"),
        delay_after_taint: flags.wait("node-delete-delay-after-taint"),
        recheck: flags.wait("unremovable-node-recheck-timeout"),
        backoff: Backoff {
            initial: flags.wait("initial-node-group-backoff-duration"),
            max: flags.wait("max-node-group-backoff-duration"),
            reset: flags.wait("node-group-backoff-reset-timeout"),
        },
        ..DriverSettings::default()
    }
}

enum Scheduling {
    Here(Scheduler),
    Binary(Process),
}

/// Cluster Autoscaler, or who plays it.
enum Playing {
    Binary(Box<Process>),
    Driver { task: JoinHandle<()>, loops: Arc<AtomicU64> },
}

impl Playing {
    fn still_plays(&mut self) -> anyhow::Result<()> {
        match self {
            Self::Binary(process) => process.still_runs(),
            Self::Driver { task, .. } if task.is_finished() => bail!("the driver has ended"),
            Self::Driver { .. } => Ok(()),
        }
    }
}

struct Moved {
    digest: u64,
    at: Instant,
    /// The loops until then.
    loops: u64,
}

/// The owner of pending Pods, whether they were pending before, the words of Cluster Autoscaler and of the scheduler,
/// and what isn't simulated.
type Reasons = (String, bool, Option<String>, Option<String>, Vec<String>);

struct Scene<'a> {
    clusters: &'a Clusters,
    flags: &'a Flags,
    options: &'a Options,
    before: BTreeMap<GroupKey, i64>,
    /// The Pods that were Pending in the manifests, by their uids.
    was_pending: BTreeSet<String>,
    excluded: Vec<Excluded>,
    /// The longest times that annotations state, by the flags for the same.
    waits: BTreeMap<&'static str, Duration>,
    observer: Observer,
    workloads: Workloads,
    scheduling: Scheduling,
    player: Playing,
    status: Status,
    timeline: Vec<Entry>,
    /// The end of Cluster Autoscaler's first loop.
    began: Option<Instant>,
    spoke: Instant,
    /// The duration of the last step.
    step_took: Duration,
    moved: Moved,
}

impl Scene<'_> {
    async fn play(
        mut self,
        served: BTreeMap<String, Served>,
        not_simulated: Vec<String>,
        say: Say<'_>,
    ) -> anyhow::Result<Report> {
        self.first_loop(say).await?;
        self.began = Some(Instant::now());
        self.moved.at = Instant::now();
        let ended = loop {
            let (state, groups) = self.step(say)?;
            if self.is_quiet(&state, &groups) {
                break Ended::Quiet;
            }
            if self.simulated(Instant::now()) >= self.options.until {
                break Ended::Until;
            }
            self.pause().await;
        };
        let report = self.report(ended, served, not_simulated).await;
        match self.player {
            Playing::Binary(process) => process.end().await,
            Playing::Driver { task, .. } => task.abort(),
        }
        match self.scheduling {
            Scheduling::Binary(process) => process.end().await,
            Scheduling::Here(_) => {}
        }
        Ok(report)
    }

    /// Waits until Cluster Autoscaler has ended its first loop. Pods that fit a Node get it meanwhile.
    async fn first_loop(&mut self, say: Say<'_>) -> anyhow::Result<()> {
        let started = Instant::now();
        loop {
            self.step(say)?;
            if self.loops() > 0 {
                return Ok(());
            }
            if started.elapsed() > PATIENCE {
                let why = match &self.player {
                    Playing::Binary(process) => process.text(),
                    Playing::Driver { .. } => String::new(),
                };
                let last: Vec<&str> = why.lines().rev().take(5).collect();
                bail!(
                    "Cluster Autoscaler has ended no loop within {} s; its last words, newest first:\n  {}",
                    PATIENCE.as_secs(),
                    last.join("\n  ")
                );
            }
            self.pause().await;
        }
    }

    /// Lets the controllers act, and notes what has happened.
    fn step(&mut self, say: Say<'_>) -> anyhow::Result<(State, Groups)> {
        self.player.still_plays()?;
        let now = Instant::now();
        let workload = self.clusters.workload();
        self.workloads.act(workload, &self.clusters.state(), now);
        match &mut self.scheduling {
            Scheduling::Here(scheduler) => scheduler.act(workload, &self.clusters.state()),
            Scheduling::Binary(process) => process.still_runs()?,
        }
        self.status.read(workload, &self.flags.status);
        let state = self.clusters.state();
        let groups = self.clusters.groups(&state);
        let seconds = self.simulated(now).as_secs();
        for what in self.observer.look(workload, &state, &groups) {
            let entry = Entry { seconds, what };
            self.timeline.push(entry.clone());
            say(Progress::Happened(entry));
            self.spoke = now;
        }
        let digest = digest(&state, &groups);
        if digest != self.moved.digest {
            self.moved = Moved { digest, at: now, loops: self.loops() };
        }
        if now - self.spoke > HEARTBEAT {
            self.spoke = now;
            let waiting = observer::pending(&state).len();
            say(Progress::Note(format!("{} of simulated time, {waiting} Pods without a Node", clock(seconds))));
        }
        self.step_took = now.elapsed();
        Ok((state, groups))
    }

    /// Waits until something changes in the workload cluster, or for a moment.
    async fn pause(&self) {
        let mut changes = self.clusters.workload().subscribe();
        changes.borrow_and_update();
        let _ = timeout(PAUSES.0, changes.changed()).await;
        // Cluster Autoscaler needs the cores too.
        tokio::time::sleep(PAUSES.1.max(self.step_took * 2)).await;
    }

    fn simulated(&self, now: Instant) -> Duration {
        self.began.map_or(Duration::ZERO, |began| now.saturating_duration_since(began) * self.options.speed)
    }

    /// Returns true if nothing moves any more, and nothing is waited for.
    fn is_quiet(&self, state: &State, groups: &Groups) -> bool {
        let waited = self.moved.at.elapsed();
        if self.loops() - self.moved.loops < QUIET_LOOPS || self.workloads.has_ends() || self.status.is_backing_off() {
            return false;
        }
        let scans = self.flags.scan() * 3;
        let fixed = match self.player {
            Playing::Binary(_) => FIXED_WAIT,
            Playing::Driver { .. } => Duration::ZERO,
        };
        let mut needed = fixed + scans + self.wait("unremovable-node-recheck-timeout");
        if !observer::pending(state).is_empty() {
            needed += self.wait("new-pod-scale-up-delay") + self.wait("pending-pods-batching-timeout");
        }
        if self.has_candidates() {
            let delays = DELAYS.map(|flag| self.wait(flag));
            needed += self.longest_unneeded(state) + delays.into_iter().max().unwrap_or_default();
        }
        let is_drained =
            |node: &Arc<Value>| node.list("/spec/taints").iter().any(|taint| taint["key"] == TO_BE_DELETED);
        if state.nodes.iter().any(is_drained) {
            needed += DRAIN_WAIT + DRAIN_WAITS.map(|flag| self.wait(flag)).into_iter().sum::<Duration>();
        }
        if groups.in_motion(&state.nodes) > 0 {
            needed += self.wait("max-node-provision-time").max(self.wait("max-node-startup-time"));
        }
        waited >= needed
    }

    /// Returns the number of loops that have ended.
    fn loops(&self) -> u64 {
        match &self.player {
            Playing::Binary(_) => self.status.loops,
            Playing::Driver { loops, .. } => loops.load(Ordering::Relaxed),
        }
    }

    /// Returns how long Cluster Autoscaler waits at most: as its flag says, or an annotation where that is longer.
    fn wait(&self, flag: &str) -> Duration {
        self.flags.wait(flag).max(self.waits.get(flag).copied().unwrap_or_default())
    }

    fn has_candidates(&self) -> bool {
        match self.player {
            Playing::Binary(_) => self.status.has_candidates(),
            Playing::Driver { .. } => true,
        }
    }

    /// Returns the longest time for which a Node must be unneeded.
    fn longest_unneeded(&self, state: &State) -> Duration {
        let unneeded = self.wait("scale-down-unneeded-time");
        if state.nodes.iter().all(|node| is_ready(node)) {
            return unneeded;
        }
        unneeded.max(self.wait("scale-down-unready-time"))
    }

    async fn report(&mut self, ended: Ended, served: BTreeMap<String, Served>, not_simulated: Vec<String>) -> Report {
        let state = self.clusters.state();
        let groups = self.clusters.groups(&state);
        let mut rows = Vec::new();
        for (group, after) in &groups.sizes {
            let id = id_of(group);
            let Some(of_group) = served.get(&id) else { continue };
            let node = state.nodes.iter().find(|node| groups.of_node.get(node.name()) == Some(group));
            let price_per_hour = groups::price(&self.clusters.caller, &id, node.map(|node| &**node), of_group).await;
            let before = self.before.get(group).copied().unwrap_or_default();
            let most = self.observer.most(group).unwrap_or(*after);
            rows.push(Group { id, min: of_group.min, max: of_group.max, before, most, after: *after, price_per_hour });
        }
        let finished = state.pods.iter().filter(|pod| is_finished(pod)).count();
        let running = state.pods.iter().filter(|pod| !is_finished(pod) && node_of(pod).is_some()).count();
        let pending = self.pending(&state);
        Report {
            schema_version: SCHEMA_VERSION,
            autoscaler: self.autoscaler(),
            scheduler: match &self.scheduling {
                Scheduling::Here(_) => "built in".to_owned(),
                Scheduling::Binary(_) => "kube-scheduler".to_owned(),
            },
            speed: self.options.speed,
            seconds: self.simulated(Instant::now()).as_secs(),
            ended,
            groups: rows,
            excluded: self.excluded.clone(),
            running,
            finished,
            pending,
            removed: self.observer.removed(),
            timeline: std::mem::take(&mut self.timeline),
            not_simulated: self.limits(not_simulated),
        }
    }

    fn autoscaler(&self) -> String {
        match &self.player {
            Playing::Binary(process) => process.version().unwrap_or_else(|| "of unknown version".to_owned()),
            Playing::Driver { .. } => format!("a model of {DRIVEN}"),
        }
    }

    fn pending(&mut self, state: &State) -> Vec<Pending> {
        let mut rows: HashMap<Reasons, Vec<String>> = HashMap::new();
        for pod in observer::pending(state) {
            let of = pod.controller().map_or_else(
                || title_of(pod),
                |owner| {
                    let text = |field: &str| owner[field].as_str().unwrap_or_default();
                    title(text("kind"), pod.namespace(), text("name"))
                },
            );
            let mut beyond = match &mut self.scheduling {
                Scheduling::Here(scheduler) => scheduler.beyond(state, pod),
                Scheduling::Binary(_) => Vec::new(),
            };
            let condition = pod.list("/status/conditions").iter().find(|it| it["type"] == "PodScheduled");
            let said = condition.and_then(|condition| condition.text("/message")).map(str::to_owned);
            let mut verdict = self.observer.verdict(pod).map(str::to_owned);
            if beyond.is_empty() && matches!(self.player, Playing::Binary(_)) {
                let is_doubtful = matches!(self.scheduling, Scheduling::Here(_));
                if is_doubtful && observer::may_fit(pod, verdict.as_deref()) {
                    beyond.push(DOUBT.to_owned());
                }
                verdict.get_or_insert_with(|| {
                    "said nothing of it: it may hold that the Pod fits a Node, where the scheduler doesn't".to_owned()
                });
            }
            let was_pending = self.was_pending.contains(pod.uid());
            let reasons = (of, was_pending, verdict, said, beyond);
            rows.entry(reasons).or_default().push(format!("{}/{}", pod.namespace(), pod.name()));
        }
        let row = |((of, was_pending, autoscaler, scheduler, not_simulated), pods)| Pending {
            of,
            pods,
            was_pending,
            autoscaler,
            scheduler,
            not_simulated,
        };
        let mut pending: Vec<Pending> = rows.into_iter().map(row).collect();
        pending.sort_by(|a, b| (&a.of, &a.pods).cmp(&(&b.of, &b.pods)));
        pending
    }

    /// Returns everything that the answer leaves out.
    fn limits(&self, mut not_simulated: Vec<String>) -> Vec<String> {
        not_simulated.push(format!(
            "time: all waits are divided by {}. Cluster Autoscaler's fixed waits aren't: 2 s before a new Pod counts, 5 s \
             between looks at a drain, 10 s between tries of an eviction. They look {} times as long, and loops come every \
             {} at most",
            self.options.speed,
            self.options.speed,
            clock((self.flags.scan() * self.options.speed).as_secs())
        ));
        if matches!(self.scheduling, Scheduling::Here(_)) {
            not_simulated.push(scheduler::LIMITS.to_owned());
        }
        not_simulated.extend(LIMITS.map(str::to_owned));
        not_simulated.push(format!("the end of a Job's Pods, unless the Job states it in the annotation {DURATION}"));
        not_simulated
    }
}
