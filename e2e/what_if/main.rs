//! Compares `whatif` with reality: generated clusters, each on real API servers with Cluster API's core, kube-scheduler
//! and an unmodified Cluster Autoscaler, and its dump in `whatif` with the same Cluster Autoscaler. Some Pods run before,
//! of which some go, and others come. The sizes of the node groups and the Pods without a Node must be the same.

// A scenario of its own that needs a part of the stage.
#[allow(dead_code, reason = "the scenarios of side-by-side use the rest")]
#[path = "../side_by_side/stage.rs"]
mod stage;

use std::{
    collections::BTreeMap,
    fmt, fs,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser;
use e2e::{
    autoscaling::{Autoscaler, Binary, Settings, binary::VARIABLE},
    controllers::groups::{Group, Workers},
    go::{self, Components},
    objects::Objects,
    program,
};
use fastrand::Rng;
use futures::{StreamExt as _, stream};
use serde_json::{Value, json};
use stage::{Side, Stage};
use tokio::signal::unix::{SignalKind, signal};
use whatif::{Change, Options, Player};

/// The begin of the names of ReplicaSets, and of their Pods.
const OLD: &str = "old-";
/// The label of Nodes, which Cluster API propagates to them.
const POOL: &str = "node.cluster.x-k8s.io/pool";
/// The CPUs that a Node may have. No two groups of a cluster have the same: Cluster Autoscaler chooses at random then.
const CPUS: [u32; 6] = [2, 4, 6, 8, 12, 16];
/// The most Pods that come.
const MOST_PODS: usize = 11;
/// The priority of the first Pod that comes. Each has a lower one than those before: which of equals gets the last room
/// is a matter of time.
const HIGHEST: usize = 1000;
/// The time for which nothing must have moved.
const QUIET: Duration = Duration::from_secs(20);
/// The number of requests in a row that may fail.
const MOST_FAILURES: usize = 10;
/// A cluster that takes longer is broken.
const LONGEST: Duration = Duration::from_secs(300);
/// The factor of `whatif`, and the times that are those of the real Cluster Autoscaler after it.
const SPEED: u32 = 60;
const WAITS: [&str; 5] = [
    "--scale-down-unneeded-time=2m",
    "--scale-down-unready-time=2m",
    "--scale-down-delay-after-add=1m",
    "--unremovable-node-recheck-timeout=1m",
    "--expander=least-waste",
];

/// Compares what `whatif` answers with what happens on real components.
///
/// CLUSTER_AUTOSCALER names a binary of Cluster Autoscaler.
#[derive(Parser)]
#[command(name = "what-if")]
struct Args {
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The number of seeds
    #[arg(long, default_value_t = 10)]
    seeds: u64,
    /// Compare this many at once
    #[arg(long, default_value = "1", value_name = "N")]
    at_once: NonZeroUsize,
    /// Make a real cluster that ended otherwise anew up to this often, to see whether it ends so too
    #[arg(long, default_value_t = 4, value_name = "N")]
    again: usize,
    /// Let `whatif` use kube-scheduler too
    #[arg(long)]
    kube_scheduler: bool,
    /// Use this binary of the program, instead of building one
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Print a dump of 200 groups with 25 Nodes each and 5,000 Pods instead, to measure `whatif` with
    #[arg(long)]
    large: bool,
    /// Keep the logs and dumps here, a directory for each seed
    #[arg(long, value_name = "DIRECTORY", default_value = "target/tmp/what-if")]
    logs: PathBuf,
}

/// How a cluster ended.
#[derive(Clone, Debug, Eq, PartialEq)]
struct End {
    sizes: BTreeMap<String, i64>,
    /// The Pods without a Node: those of a ReplicaSet are counted by its name, and any other by its own.
    pending: BTreeMap<String, usize>,
}

/// What `whatif` answered of a cluster, and how the real ones that were made of the same seed ended, in their order. More
/// than one was made only while none had ended as `whatif` answered: which Node is ready first, and which of equal ones
/// kube-scheduler takes, may decide how large a group becomes.
struct Compared {
    answered: End,
    reals: Vec<End>,
}

/// A ReplicaSet whose Pods run on Nodes of one group before the comparison. kube-controller-manager doesn't run, so that
/// its Pods are made here.
#[derive(Clone, Debug)]
struct Old {
    name: String,
    group: String,
    milli_cpus: u32,
    replicas: usize,
    /// True if it is deleted before Cluster Autoscaler starts.
    goes: bool,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("what-if: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<bool> {
    if args.large {
        println!("{}", large());
        return Ok(true);
    }
    let binary = Binary::named()?.into_iter().next();
    let binary = binary.with_context(|| format!("{VARIABLE} names no binary of Cluster Autoscaler: set it"))?;
    let components = Arc::new(go::components()?);
    let program = args.program.clone().map_or_else(program::build, Ok)?;
    let runtime = tokio::runtime::Runtime::new()?;
    let seeds = args.seed..args.seed + args.seeds;
    let environment = Environment { components, program, binary };
    let compared = stream::iter(seeds).map(async |seed| {
        let logs = args.logs.join(seed.to_string());
        let found = Box::pin(environment.compare(seed, &logs, args)).await;
        match &found {
            Ok(compared) => println!("seed {seed}: {compared}"),
            Err(error) => println!("seed {seed}: FAILED, {error:#}"),
        }
        found.ok().filter(Compared::is_same)
    });
    let same = compared.buffer_unordered(args.at_once.get()).filter_map(std::future::ready);
    let same: Vec<_> = runtime.block_on(async {
        let mut terminated = signal(SignalKind::terminate())?;
        tokio::select! {
            same = same.collect() => anyhow::Ok(same),
            _ = terminated.recv() => bail!("ended by SIGTERM"),
        }
    })?;
    let at_once = same.iter().filter(|it| it.reals.len() == 1).count();
    println!("{} of {} clusters ended the same, {at_once} of them at once", same.len(), args.seeds);
    Ok(same.len() as u64 == args.seeds)
}

impl Compared {
    /// Returns true if a real cluster ended as `whatif` answered.
    fn is_same(&self) -> bool {
        self.reals.contains(&self.answered)
    }
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.is_same(), &*self.reals) {
            (true, [_]) => return write!(f, "the same, {}", self.answered),
            (true, reals) => write!(f, "the same as real cluster {} of its seed", reals.len())?,
            (false, _) => f.write_str("DIFFERENT")?,
        }
        for real in &self.reals {
            write!(f, "\n  real   {real}")?;
        }
        write!(f, "\n  whatif {}", self.answered)
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, without a Node: {:?}", self.sizes, self.pending)
    }
}

const CAPI: &str = "cluster.x-k8s.io/v1beta2";

/// Returns the objects of 200 groups of 25 Nodes, with a Pod on each Node that needs more than half of it.
fn large() -> Value {
    let cluster = json!({ "apiVersion": CAPI, "kind": "Cluster", "metadata": { "name": "prod", "namespace": "a" } });
    let groups = (0..200).flat_map(|group| {
        let name = format!("group-{group}");
        let members: Vec<_> = (0..25).flat_map(|number| member(&name, &format!("{name}-{number}"))).collect();
        of_group(&name).into_iter().chain(members)
    });
    let items: Vec<_> = [cluster].into_iter().chain(groups).collect();
    json!({ "apiVersion": "v1", "kind": "List", "items": items })
}

/// Returns the metadata of an object of a group, and of its owner, if it has one.
fn metadata(kind: &str, name: &str, group: &str, owner: Option<(&str, &str)>) -> Value {
    let owner = owner.map(|(api_version, kind)| {
        let uid = format!("{kind}-{group}");
        json!({ "apiVersion": api_version, "kind": kind, "name": group, "uid": uid, "controller": true })
    });
    json!({
        "name": name,
        "namespace": "a",
        "uid": format!("{kind}-{name}"),
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": { "cluster.x-k8s.io/cluster-name": "prod", "app": group },
        "annotations": {
            "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": "0",
            "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": "100",
            "capacity.cluster-autoscaler.kubernetes.io/cpu": "4",
            "capacity.cluster-autoscaler.kubernetes.io/memory": "16Gi",
        },
        "ownerReferences": owner.into_iter().collect::<Vec<_>>(),
    })
}

fn machine_spec(group: &str) -> Value {
    let template = json!({
        "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "DevMachineTemplate", "name": group,
    });
    json!({ "clusterName": "prod", "bootstrap": { "dataSecretName": "any" }, "infrastructureRef": template })
}

fn large_pod_spec() -> Value {
    let requests = json!({ "cpu": "2500m", "memory": "8Gi" });
    json!({ "containers": [{ "name": "a", "image": "a", "resources": { "requests": requests } }] })
}

fn of_group(name: &str) -> [Value; 3] {
    let labels = json!({ "app": name });
    let spec = |of_template: Value| {
        json!({
            "clusterName": "prod",
            "replicas": 25,
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": of_template },
        })
    };
    let object = |api_version: &str, kind: &str, owner, spec: Value| json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata(kind, name, name, owner), "spec": spec });
    [
        object(CAPI, "MachineDeployment", None, spec(machine_spec(name))),
        object(CAPI, "MachineSet", Some((CAPI, "MachineDeployment")), spec(machine_spec(name))),
        object("apps/v1", "ReplicaSet", None, spec(large_pod_spec())),
    ]
}

/// Returns a Machine, its Node and the Pod there.
fn member(group: &str, name: &str) -> [Value; 3] {
    let provider_id = format!("dev:///{name}");
    let (mut machine, mut pod) = (machine_spec(group), large_pod_spec());
    machine["providerID"] = json!(provider_id);
    pod["nodeName"] = json!(name);
    let amounts = json!({ "cpu": "4", "memory": "16Gi", "pods": "110" });
    let ready = json!([{ "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:02:30Z" }]);
    let labels = json!({ "kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64", "pool": group });
    [
        json!({
            "apiVersion": CAPI, "kind": "Machine",
            "metadata": metadata("Machine", name, group, Some((CAPI, "MachineSet"))), "spec": machine,
            "status": { "phase": "Running", "nodeRef": { "name": name } },
        }),
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": name, "creationTimestamp": "2026-01-01T00:02:00Z", "labels": labels },
            "spec": { "providerID": provider_id },
            "status": { "capacity": amounts, "allocatable": amounts, "conditions": ready },
        }),
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": metadata("Pod", name, group, Some(("apps/v1", "ReplicaSet"))), "spec": pod,
            "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] },
        }),
    ]
}

/// What clusters are made of.
struct Environment {
    components: Arc<Components>,
    program: PathBuf,
    binary: Binary,
}

/// A real cluster of a seed, before Cluster Autoscaler starts.
struct Generated {
    stage: Stage,
    groups: Vec<Group>,
    olds: Vec<Old>,
    /// The Pods that come.
    pods: Vec<Value>,
}

impl Environment {
    async fn compare(&self, seed: u64, logs: &Path, args: &Args) -> Result<Compared> {
        if logs.exists() {
            fs::remove_dir_all(logs)?;
        }
        let generated = self.generate(seed, logs).await?;
        let options = self.options(&generated, logs, args).await?;
        let mut reals = vec![generated.end().await?];
        let report = whatif::run(&options, &mut |_| {}).await?;
        fs::write(logs.join("report.json"), serde_json::to_string_pretty(&report)?)?;
        let sizes = report.groups.iter().map(|group| (name_of(&group.id), group.after)).collect();
        let pending = report.pending.iter().flat_map(|pending| &pending.pods);
        let answered = End { sizes, pending: counted(pending.map(|pod| name_of(pod))) };
        while !reals.contains(&answered) && reals.len() <= args.again {
            let logs = logs.join(format!("again-{}", reals.len()));
            reals.push(self.generate(seed, &logs).await?.end().await?);
        }
        Ok(Compared { answered, reals })
    }

    async fn generate(&self, seed: u64, logs: &Path) -> Result<Generated> {
        fs::create_dir_all(logs)?;
        let (logs, autoscaler) = (fs::canonicalize(logs)?, Autoscaler::Binary(self.binary.clone()));
        let stage =
            Stage::set(Arc::clone(&self.components), self.program.clone(), logs, Side::Here, autoscaler).await?;
        let mut rng = Rng::with_seed(seed);
        let (groups, olds) = create_groups(&stage, &mut rng).await?;
        create_olds(&stage, &olds).await?;
        create_priorities(&stage).await?;
        let pods = pods(&mut rng, stage.testbed.workload.namespace(), groups.len());
        Ok(Generated { stage, groups, olds, pods })
    }

    /// Writes a dump of the cluster, and the Pods that come, and returns what `whatif` is asked.
    async fn options(&self, generated: &Generated, logs: &Path, args: &Args) -> Result<Options> {
        let logs = fs::canonicalize(logs)?;
        let dump = dump(&generated.stage, &logs).await?;
        let namespace = generated.stage.testbed.workload.namespace();
        let added = logs.join("pods.yaml");
        fs::write(&added, json!({ "apiVersion": "v1", "kind": "List", "items": generated.pods }).to_string())?;
        let removed = generated.olds.iter().filter(|old| old.goes);
        let removed = removed.map(|old| Change::remove(&format!("replicaset/{namespace}/{}", old.name)));
        let changes = removed.chain([Ok(Change::add(&added.display().to_string()))]).collect::<Result<_>>()?;
        Ok(Options {
            manifests: vec![dump.display().to_string()],
            changes,
            cluster: None,
            prices: None,
            until: Duration::from_secs(7200),
            speed: SPEED,
            machine_time: Some(Duration::from_secs(60)),
            player: Player::Binary(self.binary.path.clone()),
            scheduler: args.kube_scheduler.then(|| self.components.kube_scheduler.clone()),
            flags: WAITS.map(str::to_owned).into(),
            logs: Some(logs.join("whatif")),
        })
    }
}

fn counted(pods: impl Iterator<Item = String>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for pod in pods {
        let owner = if pod.starts_with(OLD) { pod.rsplit_once('-').map(|(set, _)| set.to_owned()) } else { None };
        *counts.entry(owner.unwrap_or(pod)).or_default() += 1;
    }
    counts
}

fn name_of(id: &str) -> String {
    id.rsplit('/').next().unwrap_or(id).to_owned()
}

/// Creates the groups, waits for their Nodes, and returns the ReplicaSets that are to run there.
async fn create_groups(stage: &Stage, rng: &mut Rng) -> Result<(Vec<Group>, Vec<Old>)> {
    let mut cpus = CPUS.to_vec();
    rng.shuffle(&mut cpus);
    let (mut groups, mut olds) = (Vec::new(), Vec::new());
    let mut replicas = 0;
    for (number, cpu) in cpus.into_iter().take(rng.usize(2..5)).enumerate() {
        let name = format!("group-{number}");
        let (max, size) = (rng.i32(1..6), rng.i32(0..3));
        let (min, size) = (rng.i32(0..2).min(max), size.min(max));
        let size = size.max(min);
        replicas += size;
        let capacity = json!({ "cpu": cpu.to_string(), "memory": format!("{}Gi", cpu * 4), "pods": "110" });
        let mut workers = Workers::new(&name).bounds(min, max).replicas(size).publishing(capacity).label(POOL, &name);
        if rng.u8(0..3) == 0 {
            workers = workers.taint("dedicated", &name, "NoSchedule");
        }
        groups.push(workers.create(&stage.testbed).await?);
        if let Ok(nodes @ 1..) = usize::try_from(size) {
            // Less than half a Node each, so that all fit.
            olds.push(Old {
                name: format!("{OLD}{number}"),
                group: name,
                milli_cpus: 10 * cpu * rng.u32(5..45),
                replicas: rng.usize(0..=nodes),
                goes: rng.u8(0..4) == 0,
            });
        }
    }
    let began = Instant::now();
    loop {
        let nodes = stage.testbed.workload.list("Node", "").await?;
        let ready = nodes.iter().filter(|node| {
            let conditions = node.data["status"]["conditions"].as_array();
            let is_free =
                node.data["spec"]["taints"].as_array().into_iter().flatten().all(|it| it["key"] == "dedicated");
            is_free
                && conditions.is_some_and(|all| all.iter().any(|it| it["type"] == "Ready" && it["status"] == "True"))
        });
        if ready.count() == usize::try_from(replicas)? {
            return Ok((groups, olds));
        }
        ensure!(began.elapsed() < LONGEST, "{} of {replicas} Nodes", nodes.len());
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// Creates the ReplicaSets, and waits for their Pods to run.
async fn create_olds(stage: &Stage, olds: &[Old]) -> Result<()> {
    let workload = &stage.testbed.workload;
    for old in olds {
        let labels = json!({ "app": old.name });
        workload
            .create(json!({
                "kind": "ReplicaSet",
                "metadata": { "name": old.name },
                "spec": {
                    "replicas": old.replicas,
                    "selector": { "matchLabels": labels },
                    "template": { "metadata": { "labels": labels }, "spec": old.pod_spec() },
                },
            }))
            .await?;
    }
    refill(workload, olds, &mut 0).await?;
    let began = Instant::now();
    loop {
        let pods = workload.list("Pod", "").await?;
        if pods.iter().all(|pod| pod.data["status"]["phase"] == "Running") {
            return Ok(());
        }
        ensure!(began.elapsed() < LONGEST, "the Pods of ReplicaSets don't all run");
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// Creates a class for each Pod that comes. None takes the place of another.
async fn create_priorities(stage: &Stage) -> Result<()> {
    let workload = &stage.testbed.workload;
    for number in 0..MOST_PODS {
        workload
            .create(json!({
                "kind": "PriorityClass",
                "metadata": { "name": priority_class(workload.namespace(), number) },
                "value": HIGHEST - number,
                "preemptionPolicy": "Never",
            }))
            .await?;
    }
    Ok(())
}

fn priority_class(namespace: &str, number: usize) -> String {
    format!("{namespace}-{number}")
}

impl Old {
    fn pod_spec(&self) -> Value {
        json!({
            "terminationGracePeriodSeconds": 1,
            "nodeSelector": { POOL: self.group },
            "tolerations": [{ "key": "dedicated", "operator": "Exists" }],
            "containers": [{
                "name": "a",
                "image": "registry.k8s.io/pause:3.10.2",
                "resources": { "requests": { "cpu": format!("{}m", self.milli_cpus), "memory": "16Mi" } },
            }],
        })
    }
}

/// Makes the Pods that ReplicaSets lack, as their controller does.
async fn refill(workload: &Objects, olds: &[Old], made: &mut usize) -> Result<()> {
    for old in olds {
        let Some(set) = workload.find("ReplicaSet", &old.name).await? else { continue };
        let pods = workload.list("Pod", &format!("app={}", old.name)).await?;
        let there = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).count();
        for _ in there..old.replicas {
            *made += 1;
            let owner = json!({
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": old.name, "uid": set.metadata.uid, "controller": true,
            });
            let metadata = json!({
                "name": format!("{}-{made}", old.name), "labels": { "app": old.name }, "ownerReferences": [owner],
            });
            workload.create(json!({ "kind": "Pod", "metadata": metadata, "spec": old.pod_spec() })).await?;
        }
    }
    Ok(())
}

/// Deletes the ReplicaSets that go, with their Pods.
async fn remove(workload: &Objects, olds: &[Old]) -> Result<()> {
    for old in olds.iter().filter(|old| old.goes) {
        workload.remove("ReplicaSet", &old.name).await?;
        for pod in workload.list("Pod", &format!("app={}", old.name)).await? {
            workload.remove("Pod", &pod.metadata.name.unwrap_or_default()).await?;
        }
    }
    Ok(())
}

/// Writes what kubectl would of both clusters.
async fn dump(stage: &Stage, logs: &Path) -> Result<PathBuf> {
    let mut items = Vec::new();
    let management = &stage.testbed.objects;
    for kind in ["Cluster", "MachineDeployment", "MachineSet", "Machine", "LoopbackMachineTemplate"] {
        items.extend(listed(management, kind).await?);
    }
    for kind in ["Node", "ReplicaSet", "Pod", "PriorityClass"] {
        items.extend(listed(&stage.testbed.workload, kind).await?);
    }
    let path = logs.join("dump.yaml");
    fs::write(&path, json!({ "apiVersion": "v1", "kind": "List", "items": items }).to_string())?;
    Ok(path)
}

async fn listed(objects: &Objects, kind: &str) -> Result<Vec<Value>> {
    let place = e2e::objects::Place::of(kind, objects.contract());
    let listed = objects.list(kind, "").await?;
    let named = |object| {
        let mut value = serde_json::to_value(object)?;
        value["apiVersion"] = json!(place.resource.api_version);
        value["kind"] = json!(kind);
        Ok(value)
    };
    listed.into_iter().map(named).collect()
}

/// Returns Pods that want more or less of what groups have.
fn pods(rng: &mut Rng, namespace: &str, groups: usize) -> Vec<Value> {
    let number = rng.usize(1..=MOST_PODS);
    let pod = |number: usize, rng: &mut Rng| {
        let cpu = 250 * rng.u32(1..40);
        let mut spec = json!({
            "priorityClassName": priority_class(namespace, number),
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "a",
                "image": "registry.k8s.io/pause:3.10.2",
                "resources": { "requests": { "cpu": format!("{cpu}m"), "memory": format!("{}Mi", 64 * rng.u32(1..64)) } },
            }],
        });
        if rng.u8(0..3) == 0 {
            spec["nodeSelector"] = json!({ POOL: format!("group-{}", rng.usize(0..groups)) });
        }
        if rng.bool() {
            spec["tolerations"] = json!([{ "key": "dedicated", "operator": "Exists" }]);
        }
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": format!("pod-{number}"), "namespace": namespace },
            "spec": spec,
        })
    };
    (0..number).map(|number| pod(number, rng)).collect()
}

impl Generated {
    /// Lets Cluster Autoscaler act until nothing moves.
    async fn end(self) -> Result<End> {
        let workload = &self.stage.testbed.workload;
        remove(workload, &self.olds).await?;
        for pod in self.pods {
            workload.create(pod).await?;
        }
        tokio::select! {
            ended = settle(&self.stage, &self.groups) => ended,
            failed = keep_filled(workload, &self.olds) => Err(failed),
        }
    }
}

/// Fills ReplicaSets until it fails.
async fn keep_filled(workload: &Objects, olds: &[Old]) -> anyhow::Error {
    // Names that were made before aren't made again.
    let (mut made, mut failures) = (1000, 0);
    loop {
        match refill(workload, olds, &mut made).await {
            Ok(()) => failures = 0,
            Err(error) if failures == MOST_FAILURES => return error,
            Err(_) => failures += 1,
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Waits until nothing moves.
async fn settle(stage: &Stage, groups: &[Group]) -> Result<End> {
    let flags = ["--scale-down-unneeded-time=2s"];
    let mut run = stage.start(&stage.access(), Settings::default(), &flags).await?;
    run.wait_for_loops(2, LONGEST).await?;
    let began = Instant::now();
    let (mut last, mut since) = (None, Instant::now());
    loop {
        let seen = seen(stage, groups).await?;
        if last.as_ref() != Some(&seen) {
            (last, since) = (Some(seen), Instant::now());
        } else if since.elapsed() > QUIET {
            run.end_autoscaler().await?;
            return Ok(seen.0);
        }
        ensure!(began.elapsed() < LONGEST, "it doesn't settle: {last:?}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Returns the present end, and the number of Machines and Nodes.
async fn seen(stage: &Stage, groups: &[Group]) -> Result<(End, usize, usize)> {
    let mut sizes = BTreeMap::new();
    for group in groups {
        let size = stage.testbed.objects.scale(group.kind, &group.name).await?;
        sizes.insert(group.name.clone(), i64::from(size));
    }
    let pods = stage.testbed.workload.list("Pod", "").await?;
    let pending = pods.iter().filter(|pod| pod.data["spec"]["nodeName"].is_null());
    let pending = counted(pending.filter_map(|pod| pod.metadata.name.clone()));
    let machines = stage.testbed.objects.list("Machine", "").await?.len();
    let nodes = stage.testbed.workload.list("Node", "").await?.len();
    Ok((End { sizes, pending }, machines, nodes))
}
